//! A server with topics, a listener, and the program run beside it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use keylapse::{Done, Failure, Key, Lapse, Listener, Outcome, Schedule, Topic};
use keylapse_support::{Server, eventually};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What a payload makes the handler do.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Do {
    Succeed,
    /// End as a dead letter at once.
    Die,
    /// Fail, and be retried in an hour.
    Fail,
    /// Run until the listener stops.
    Hang,
}

pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) schedule: Schedule,
    pub(crate) orders: Topic<Do>,
    listener: Option<(oneshot::Sender<()>, JoinHandle<keylapse::Result<()>>)>,
}

/// What the program has written, and how it has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let server = Server::start().await;
        let schedule = Schedule::connect(&server.plain_url()).await.expect("a schedule");
        Self::with(server, schedule)
    }

    pub(crate) fn with(server: Server, schedule: Schedule) -> Self {
        Self { server, schedule, orders: orders(1), listener: None }
    }

    pub(crate) async fn partitioned(partitions: u32) -> Self {
        let scene = Self::new().await;
        Self { orders: orders(partitions), ..scene }
    }

    /// With a listener that serves the orders.
    pub(crate) async fn listening(self) -> Self {
        let url = self.server.plain_url();
        self.listening_at(url).await
    }

    pub(crate) async fn listening_at(mut self, url: String) -> Self {
        let builder = Listener::builder(url).on(self.orders.clone(), handle);
        let listener = builder.build().expect("a listener");
        let (stop, stopped) = oneshot::channel();
        self.listener = Some((stop, tokio::spawn(async move { listener.run_until(stopped).await })));
        eventually(PATIENCE, "the listener's report", async || {
            !self.schedule.serving(&self.orders).await.expect("reports").is_empty()
        })
        .await;
        self
    }

    pub(crate) async fn stop_listening(&mut self) {
        if let Some((stop, task)) = self.listener.take() {
            drop(stop);
            task.await.expect("the listener's task").expect("the listener");
        }
    }

    pub(crate) async fn arm(&self, key: &[u8], delay: Duration, what: Do) {
        let key = [b"order:unpaid:", key].concat();
        let armed = self.schedule.arm(&self.orders, Key(key), delay, &what).await.expect("an arming");
        assert!(armed.is_armed(), "{armed:?}");
    }

    /// With so many dead letters, of keys `dead-0` and so on.
    pub(crate) async fn bury(&self, letters: u64) {
        for n in 0..letters {
            self.arm(format!("dead-{n}").as_bytes(), Duration::ZERO, Do::Die).await;
        }
        eventually(PATIENCE, "the dead letters", async || {
            self.schedule.dead_letter_counts(&self.orders).await.expect("counts").0 == letters
        })
        .await;
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        run_at(&self.server.plain_url(), args, b"")
    }

    pub(crate) fn run_with(&self, args: &[&str], input: &[u8]) -> Ran {
        run_at(&self.server.plain_url(), args, input)
    }

    /// Each line of JSON.
    pub(crate) fn lines(&self, args: &[&str]) -> Vec<serde_json::Value> {
        let ran = self.run(&[&["--json"], args].concat());
        assert!(ran.code <= 1, "{ran:?}");
        ran.out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// A number out of the overview of the orders.
    pub(crate) fn status(&self, field: &str) -> u64 {
        let lines = self.lines(&["status", "order.unpaid"]);
        lines[0][field].as_u64().unwrap_or_else(|| panic!("{field} in {}", lines[0]))
    }
}

fn orders(partitions: u32) -> Topic<Do> {
    Topic::new("order:unpaid:{id}").expect("a topic").partitions(partitions)
}

async fn handle(lapse: Lapse<Do>) -> Result<Outcome, Failure> {
    match lapse.payload() {
        Do::Succeed => Ok(Done.into()),
        Do::Die => Err(Failure::dead("the shop is closed")),
        Do::Fail => Err(Failure::retry_after(Duration::from_secs(3600), "timeout while calling the shop")),
        Do::Hang => std::future::pending().await,
    }
}

/// Runs the program to its end.
pub(crate) fn run_at(url: &str, args: &[&str], input: &[u8]) -> Ran {
    let mut program = Command::new(env!("CARGO_BIN_EXE_keylapse"));
    program.env_remove("KEYLAPSE_URL").env("KEYLAPSE_URL", url).args(args);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().expect("the program");
    let mut stdin = child.stdin.take().expect("its input");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || _ = stdin.write_all(&input));
    let ended = child.wait_with_output().expect("its end");
    writer.join().expect("its input");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: ended.status.code().unwrap_or(-1), out: text(ended.stdout), err: text(ended.stderr) }
}

/// With times, ids and the like replaced by words, so that it can be compared.
pub(crate) fn plain(text: &str) -> String {
    let patterns = [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME"),
        (r"\b(in )?(\d+\.)?\d+(ms|s|m|h|d)(\d+(ms|s|m|h|d))?( ago)?\b *", "SPAN "),
        (r"\b[0-9a-f]{16}\b", "ID"),
        (r"process \d+", "process PID"),
        // A column is as wide as what stands in it.
        (r"  +", "  "),
    ];
    patterns.iter().fold(text.to_owned(), |text, (pattern, word)| {
        regex::Regex::new(pattern).expect("a pattern").replace_all(&text, *word).into_owned()
    })
}
