//! This server and a real one, which are asked the same.

use std::time::Duration;

use keylapse_support::{Binary, Server as Real, skipped};
use keylapse_testserver::TestServer;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::sync::mpsc;

pub(crate) struct Pair {
    _ours: TestServer,
    sides: [Side; 2],
    /// Whose version this server follows to the letter; of others, only what an error's code says is alike.
    exact: bool,
    history: Vec<String>,
    noted: Vec<String>,
    _real: Real,
}

struct Side {
    connection: MultiplexedConnection,
    listening: MultiplexedConnection,
    pushed: mpsc::UnboundedReceiver<PushInfo>,
}

/// How many histories of a kind there are to be, and the first seed.
pub(crate) fn cases(default: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("TESTSERVER_SEED").unwrap_or(1);
    first..first + number("TESTSERVER_CASES").unwrap_or(default)
}

/// Runs a test against each real server; says so where there is none.
pub(crate) async fn with_each(test: impl AsyncFn(&mut Pair)) {
    match Binary::all() {
        Ok(binaries) => {
            for binary in binaries {
                test(&mut Pair::start(binary).await).await;
            }
        }
        Err(why) => skipped(&why.to_string()),
    }
}

/// The same, but only against servers of the version that this one follows to the letter.
pub(crate) async fn with_each_alike(test: impl AsyncFn(&mut Pair)) {
    with_each(async |pair| {
        if pair.exact {
            test(pair).await;
        } else {
            skipped("the server at hand is not Redis 7.0, which is followed to the letter");
        }
    })
    .await;
}

impl Pair {
    async fn start(binary: Binary) -> Self {
        let version = binary.version();
        let exact = !version.is_valkey && version.number.0 == 7 && version.number.1 == 0;
        let real = Real::builder().binary(binary).start().await;
        // Neither finds by itself what has expired, so that both find it at the same command.
        let ours = TestServer::builder().expires_within(Duration::from_secs(u64::MAX / 2)).build();
        real.cmd(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).await;
        let sides = [Side::ours(&ours).await, Side::real(&real).await];
        let mut pair =
            Self { _ours: ours, sides, exact, history: Vec::new(), noted: Vec::new(), _real: real };
        pair.clear().await;
        pair
    }

    pub(crate) async fn clear(&mut self) {
        self.history.clear();
        for line in ["CONFIG SET notify-keyspace-events KEA maxmemory 0", "FLUSHALL", "SCRIPT FLUSH"] {
            self.same(&line.split(' ').collect::<Vec<_>>()).await;
        }
    }

    /// Asks both, and panics with the history if they answer otherwise.
    pub(crate) async fn same(&mut self, words: &[impl AsRef<[u8]>]) -> Value {
        let (answer, difference) = self.ask(words, is_unordered(words)).await;
        if let Some(difference) = difference {
            let from = self.history.len().saturating_sub(25);
            panic!("after\n  {}\n{difference}", self.history[from..].join("\n  "));
        }
        answer
    }

    /// Asks both, and goes on; [`finish`](Self::finish) panics with all differences.
    pub(crate) async fn same_or_note(&mut self, words: &[impl AsRef<[u8]>]) {
        self.note(words, is_unordered(words)).await;
    }

    /// The same for a script that answers a hash's fields, whose order is each server's own affair.
    pub(crate) async fn same_in_any_order_or_note(&mut self, words: &[impl AsRef<[u8]>]) {
        self.note(words, true).await;
    }

    async fn note(&mut self, words: &[impl AsRef<[u8]>], sorted: bool) {
        if let (_, Some(difference)) = self.ask(words, sorted).await {
            let command = self.history.last().map_or("", String::as_str);
            self.noted.push(format!("{command}\n{difference}"));
        }
    }

    pub(crate) fn finish(&mut self) {
        assert!(self.noted.is_empty(), "{} differences:\n{}", self.noted.len(), self.noted.join("\n"));
    }

    /// Our answer, and where the other server's differs.
    async fn ask(&mut self, words: &[impl AsRef<[u8]>], sorted: bool) -> (Value, Option<String>) {
        let shown: Vec<_> = words.iter().map(|word| word.as_ref().escape_ascii().to_string()).collect();
        self.history.push(shown.join(" ").chars().take(600).collect());
        let ours = self.sides[0].ask(words).await;
        let real = self.sides[1].ask(words).await;
        let [a, b] = [&ours, &real].map(|answer| normal(answer, sorted, self.exact));
        let answers = (a != b).then(|| format!("ours: {a}\nreal: {b}"));
        let [a, b] = [self.sides[0].heard().await, self.sides[1].heard().await];
        let heard = (self.exact && a != b).then(|| format!("ours heard: {a:?}\nreal heard: {b:?}"));
        (ours, answers.or(heard))
    }
}

impl Side {
    async fn ours(server: &TestServer) -> Self {
        let (pushes, pushed) = mpsc::unbounded_channel();
        let connection = Self::over(server, AsyncConnectionConfig::new()).await;
        let listening = AsyncConnectionConfig::new().set_push_sender(pushes);
        let listening = Self::over(server, listening).await;
        Self { connection, listening, pushed }.listen().await
    }

    async fn over(server: &TestServer, config: AsyncConnectionConfig) -> MultiplexedConnection {
        let info = redis::RedisConnectionInfo::default().set_protocol(redis::ProtocolVersion::RESP3);
        let config = config.set_response_timeout(Some(Duration::from_secs(20)));
        let connected = MultiplexedConnection::new_with_config(&info, server.connect(), config).await;
        let (connection, driver) = connected.expect("a connection");
        tokio::spawn(driver);
        connection
    }

    async fn real(server: &Real) -> Self {
        let (pushes, pushed) = mpsc::unbounded_channel();
        let client = redis::Client::open(format!("{}?protocol=resp3", server.url())).expect("a URL");
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(20)));
        let connect = async |config: AsyncConnectionConfig| {
            client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection")
        };
        let connection = connect(config.clone()).await;
        let listening = connect(config.set_push_sender(pushes)).await;
        Self { connection, listening, pushed }.listen().await
    }

    async fn listen(mut self) -> Self {
        self.listening.psubscribe("__key*@0__:*").await.expect("subscribed");
        self
    }

    async fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Value {
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| _ = command.arg(word.as_ref()));
        self.connection.send_packed_command(&command).await.expect("an answer")
    }

    /// What was published since: an answer on the listening connection stands behind all of it.
    async fn heard(&mut self) -> Vec<String> {
        redis::cmd("PING").exec_async(&mut self.listening).await.expect("an answer");
        let pushes = std::iter::from_fn(|| self.pushed.try_recv().ok());
        let messages = pushes.filter(|push| push.kind == PushKind::PMessage);
        messages.map(|push| format!("{:?}", &push.data[1..])).collect()
    }
}

fn is_unordered(words: &[impl AsRef<[u8]>]) -> bool {
    let name = words[0].as_ref().to_ascii_uppercase();
    ["KEYS", "SMEMBERS", "HGETALL", "HKEYS", "HVALS", "HSCAN", "SSCAN", "ZSCAN", "SCAN", "CONFIG", "EXEC"]
        .iter()
        .any(|known| known.as_bytes() == name)
}

/// An answer as text, in one order and, for servers of other versions, without what they say otherwise.
fn normal(value: &Value, sorted: bool, exact: bool) -> String {
    let all = |items: &[Value]| {
        let mut items: Vec<_> = items.iter().map(|item| normal(item, sorted, exact)).collect();
        if sorted {
            items.sort();
        }
        format!("[{}]", items.join(", "))
    };
    match value {
        Value::Array(items) | Value::Set(items) => all(items),
        Value::Map(pairs) => {
            let pairs: Vec<_> =
                pairs.iter().map(|(key, value)| Value::Array(vec![key.clone(), value.clone()])).collect();
            all(&pairs)
        }
        Value::ServerError(error) if !exact => format!("error {}", error.code()),
        Value::BulkString(bytes) if !exact => {
            let text = String::from_utf8_lossy(bytes);
            match text.parse::<f64>() {
                Ok(number) => format!("{number}"),
                Err(_) => format!("{}", bytes.escape_ascii()),
            }
        }
        Value::BulkString(bytes) => format!("{}", bytes.escape_ascii()),
        other => format!("{other:?}"),
    }
}
