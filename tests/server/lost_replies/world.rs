//! A server, with a clock of its own, and two ways to it.

use keylapse_support::{Binary, Proxy, Server, connect};
use keylapse_wire::names::PartitionNames;
use keylapse_wire::{Store, TopicEntry};
use redis::{aio::MultiplexedConnection, cmd};

use super::call::{CANARY, Caller, START};
use super::dump::{CLOCK, Dump};
use super::step::Step;

pub(super) struct World {
    admin: MultiplexedConnection,
    pub(super) direct: Caller,
    /// Through the proxy.
    pub(super) proxied: Caller,
    pub(super) proxy: Proxy,
    /// How many bytes a new connection carries before the first answer.
    pub(super) introduction: usize,
    now: u64,
    _server: Server,
}

impl World {
    pub(super) async fn start(binary: Binary) -> Self {
        let server = Server::builder().binary(binary).start().await;
        let proxy = Proxy::before(&server).await;
        let (direct, proxied) = (Caller::at(server.app_url()), Caller::at(proxy.app_url()));
        let mut admin = server.conn().await;
        cmd("SCRIPT").arg("LOAD").arg(&CANARY.0).exec_async(&mut admin).await.expect("it loads");
        let introduction = introduction(&proxy).await;
        Self { admin, direct, proxied, proxy, introduction, now: START, _server: server }
    }

    pub(super) async fn dump(&mut self) -> Dump {
        Dump::take(&mut self.admin).await
    }

    /// An empty server at the first moment, and then what is given.
    pub(super) async fn begin(&mut self, given: &[Step]) {
        cmd("FLUSHALL").exec_async(&mut self.admin).await.expect("FLUSHALL");
        self.now = START;
        self.pass(0).await;
        self.direct.register().await;
        self.all(given).await;
    }

    pub(super) async fn all(&mut self, steps: &[Step]) {
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

    pub(super) async fn pass(&mut self, ms: u64) {
        self.now += ms;
        cmd("SET").arg(CLOCK).arg(self.now * 1000).exec_async(&mut self.admin).await.expect("SET");
    }
}

async fn introduction(proxy: &Proxy) -> usize {
    let mut carried = 0;
    let is_torn = async |after| {
        proxy.tear(Some(after));
        connect(&proxy.app_url()).await.is_err()
    };
    while is_torn(carried).await {
        carried += 1;
    }
    proxy.tear(None);
    carried
}

impl Caller {
    fn at(url: String) -> Self {
        let store = Store::at(&url).expect("a store").with_clock_key(CLOCK);
        let watched = PartitionNames::new("keylapse", "w", 0, 1, true);
        Self { store, url, at: PartitionNames::new("keylapse", "t", 0, 1, false), watched }
    }

    async fn register(&self) {
        for at in [&self.at, &self.watched] {
            let entry = TopicEntry {
                name: at.topic.clone(),
                pattern: format!("app:{}:{{id}}", at.topic),
                partitions: 1,
                marker_keys: !at.attached,
                attached: at.attached,
            };
            self.store.register(&entry, std::slice::from_ref(at)).await.expect("a partition");
        }
    }
}
