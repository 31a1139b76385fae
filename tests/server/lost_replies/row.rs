//! One row: a call, what came before it, and what comes between it and its
//! repeat.

use keylapse::store::keys::Partition;
use keylapse::store::{RedisStore, TopicEntry, scripts};
use keylapse_support::{Binary, Proxy, Server, Then, command};
use redis::{aio::MultiplexedConnection, cmd};

use super::call::{Caller, START};
use super::dump::{CLOCK, Dump};
use super::step::Step;

/// A repeat comes some time after the first call.
const LATER: u64 = 40;

/// A case, and what must hold for it. The repeat must answer as the first call
/// would have, and change nothing, unless the row says otherwise.
#[derive(Clone, Debug)]
pub(super) struct Row {
    name: &'static str,
    given: Vec<Step>,
    call: Step,
    meanwhile: Vec<Step>,
    says: Option<&'static str>,
    acts: Vec<Step>,
}

impl Row {
    pub(super) fn of(name: &'static str, given: impl Into<Vec<Step>>, call: Step) -> Self {
        Self { name, given: given.into(), call, meanwhile: Vec::new(), says: None, acts: Vec::new() }
    }

    /// What others do between the call and its repeat.
    pub(super) fn meanwhile(mut self, steps: impl Into<Vec<Step>>) -> Self {
        self.meanwhile = steps.into();
        self
    }

    /// What the repeat answers.
    pub(super) fn repeat_says(mut self, answer: &'static str) -> Self {
        self.says = Some(answer);
        self
    }

    /// What the repeat does to Redis, as a step that would do the same.
    pub(super) fn repeat_acts_as(mut self, step: Step) -> Self {
        self.acts = vec![step];
        self
    }

    pub(super) fn script(&self) -> &'static str {
        self.call.script().expect("rows are about calls")
    }
}

/// A server, and two ways to it.
struct World {
    admin: MultiplexedConnection,
    direct: Caller,
    proxied: Caller,
    proxy: Proxy,
    now: u64,
    _server: Server,
}

/// Checks rows, on each server that is at hand, and tells of all that fail.
pub(super) async fn check(rows: &[Row]) {
    for binary in Binary::all().expect("a server") {
        let version = binary.version();
        let mut world = World::start(binary).await;
        let mut failed = Vec::new();
        for row in rows {
            failed.extend(world.check(row).await.map(|wrong| format!("{}: {wrong}", row.name)));
        }
        assert!(failed.is_empty(), "on {version}:\n{}", failed.join("\n"));
    }
}

impl World {
    async fn start(binary: Binary) -> Self {
        let server = Server::builder().binary(binary).start().await;
        let proxy = Proxy::before(&server).await;
        let (direct, proxied) = (Caller::at(server.app_url()), Caller::at(proxy.app_url()));
        let mut admin = server.conn().await;
        cmd("SCRIPT").arg("LOAD").arg(&scripts::CANARY.text).exec_async(&mut admin).await.expect("it loads");
        Self { admin, direct, proxied, proxy, now: START, _server: server }
    }

    /// What is wrong with a row, if anything.
    async fn check(&mut self, row: &Row) -> Option<String> {
        let (first, expected) = self.undisturbed(row).await;
        let (repeated, found) = self.disturbed(row).await;
        let expected_answer = row.says.unwrap_or(&first);
        if repeated != expected_answer {
            return Some(format!("the first call said {first:?}, its repeat {repeated:?}"));
        }
        if row.says == Some(&first) {
            return Some(format!("{first:?} is no exception"));
        }
        let differences = found.differences(&expected);
        (!differences.is_empty()).then(|| format!("the repeat left in Redis\n  {}", differences.join("\n  ")))
    }

    async fn undisturbed(&mut self, row: &Row) -> (String, Dump) {
        self.begin(&row.given).await;
        let answer = self.direct.make(&row.call, false).await.expect("an answer");
        self.all(&row.meanwhile).await;
        self.pass(LATER).await;
        self.all(&row.acts).await;
        (answer, Dump::take(&mut self.admin).await)
    }

    async fn disturbed(&mut self, row: &Row) -> (String, Dump) {
        self.begin(&row.given).await;
        let lost = self.proxy.lost();
        self.proxy.lose_reply(command("EVALSHA"), Then::Close);
        let unheard = self.proxied.make(&row.call, false).await;
        assert!(unheard.is_err() && self.proxy.lost() == lost + 1, "{}: {unheard:?}", row.name);
        self.all(&row.meanwhile).await;
        self.pass(LATER).await;
        let answer = self.proxied.make(&row.call, true).await.expect("an answer to the repeat");
        (answer, Dump::take(&mut self.admin).await)
    }

    /// An empty server at the first moment, and what the row presupposes.
    async fn begin(&mut self, given: &[Step]) {
        cmd("FLUSHALL").exec_async(&mut self.admin).await.expect("FLUSHALL");
        self.now = START;
        self.pass(0).await;
        self.direct.register().await;
        self.all(given).await;
    }

    async fn all(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Wait(ms) => self.pass(*ms).await,
                Step::Raw(words) => {
                    let mut raw = cmd(words[0]);
                    words[1..].iter().for_each(|word| {
                        raw.arg(word);
                    });
                    raw.exec_async(&mut self.admin).await.expect("the server takes it");
                }
                call => {
                    self.direct.make(call, false).await.expect("an undisturbed call");
                }
            }
        }
    }

    async fn pass(&mut self, ms: u64) {
        self.now += ms;
        cmd("SET").arg(CLOCK).arg(self.now * 1000).exec_async(&mut self.admin).await.expect("SET");
    }
}

impl Caller {
    fn at(url: String) -> Self {
        let store = RedisStore::with_clock_key(&url, CLOCK).expect("a store");
        Self { store, url, at: Partition::new("keylapse", "t", 0, 1) }
    }

    async fn register(&self) {
        use keylapse::store::Store;
        let entry =
            TopicEntry { name: "t".into(), pattern: "app:t:{id}".into(), partitions: 1, triggers: true };
        self.store.register(&entry, std::slice::from_ref(&self.at)).await.expect("a partition");
    }
}
