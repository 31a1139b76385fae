//! What befalls the server, by signals and by its own levers.

use std::time::Duration;

use keylapse_support::Server;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::sleep;

use crate::harness::Harness;

/// What befalls the server. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFault {
    /// SIGKILL, and it is started again.
    Crash,
    /// SIGTERM, and it is started again.
    Restart,
    /// Its data set is saved and loaded; what expires meanwhile is dropped without an event.
    Reload,
    /// SIGSTOP, and SIGCONT so much later.
    Freeze(u64),
    /// DEBUG SLEEP: it answers nobody.
    Sleep(u64),
    /// A script of others that runs so long; others are told BUSY.
    Busy(u64),
    /// CLIENT PAUSE ALL.
    PauseAll(u64),
    /// CLIENT PAUSE WRITE, as a failover does: no key expires meanwhile.
    PauseWrite(u64),
    /// It becomes a replica of nobody for so long, and refuses writes.
    ReadOnly(u64),
    /// It has too few replicas for so long, and refuses writes.
    NoReplicas(u64),
    /// It is out of memory for so long.
    Full(u64),
    /// All subscriptions are killed.
    KillSubscribers,
    /// All other connections are killed.
    KillClients,
    /// All scripts are forgotten, so many times.
    ForgetScripts(u8),
    /// Notifications are switched off for so long.
    Mute(u64),
    /// No key is deleted for having expired, unless it is touched, for so long.
    Lazy(u64),
    /// So many expiries are forged.
    Forge(u16),
}

impl ServerFault {
    /// Any of them; none lasts longer than a lease and a half.
    pub(super) fn any(random: &mut StdRng, lease_ms: u64) -> Self {
        let ms = random.random_range(20..lease_ms * 3 / 2);
        match random.random_range(0..19) {
            0..3 => Self::Crash,
            3 => Self::Restart,
            4 => Self::Freeze(ms),
            5 => Self::Sleep(ms),
            6 => Self::Busy(ms),
            7 => Self::PauseAll(ms),
            8 => Self::PauseWrite(ms),
            9 => Self::ReadOnly(ms),
            10 => Self::NoReplicas(ms),
            11 => Self::Full(ms),
            12 => Self::KillSubscribers,
            13 => Self::KillClients,
            14 => Self::ForgetScripts(random.random_range(1..10)),
            15 => Self::Mute(ms),
            16 => Self::Lazy(ms),
            17 => Self::Reload,
            _ => Self::Forge(random.random_range(1..2000)),
        }
    }

    /// Makes it happen, ends it, and puts it on record.
    pub async fn strike(self, harness: &Harness) {
        let since = crate::clock::now();
        self.act(&mut *harness.server().await).await;
        harness.troupe.record_fault(since, None, &self, self.is_outage());
    }

    /// Whether nothing can be settled meanwhile. A full server still drains.
    fn is_outage(self) -> bool {
        !matches!(
            self,
            Self::Full(_) | Self::KillSubscribers | Self::Mute(_) | Self::Lazy(_) | Self::Forge(_)
        )
    }

    async fn act(self, server: &mut Server) {
        match self {
            Self::Crash => {
                server.kill().await;
                server.restart().await;
            }
            Self::Restart => server.restart().await,
            Self::Reload => tell(server, "DEBUG RELOAD").await,
            Self::Freeze(ms) => {
                server.stop();
                lasting(ms).await;
                server.cont();
            }
            Self::Sleep(ms) => {
                tell(server, &format!("DEBUG SLEEP {}", Duration::from_millis(ms).as_secs_f64())).await;
            }
            Self::Busy(ms) => busy(server, ms).await,
            Self::PauseAll(ms) => pause(server, ms, "ALL").await,
            Self::PauseWrite(ms) => pause(server, ms, "WRITE").await,
            // Nothing listens on port 1.
            Self::ReadOnly(ms) => between(server, "REPLICAOF 127.0.0.1 1", ms, "REPLICAOF NO ONE").await,
            Self::NoReplicas(ms) => set(server, "min-replicas-to-write", ["1", "0"], ms).await,
            Self::Full(ms) => set(server, "maxmemory", ["1", "0"], ms).await,
            Self::Mute(ms) => {
                let flags = flags(server).await;
                set(server, "notify-keyspace-events", ["", &flags], ms).await;
            }
            Self::Lazy(ms) => {
                between(server, "DEBUG SET-ACTIVE-EXPIRE 0", ms, "DEBUG SET-ACTIVE-EXPIRE 1").await;
            }
            Self::KillSubscribers => tell(server, "CLIENT KILL TYPE pubsub").await,
            Self::KillClients => tell(server, "CLIENT KILL TYPE normal").await,
            Self::ForgetScripts(times) => {
                for _ in 0..times {
                    tell(server, "SCRIPT FLUSH").await;
                    lasting(10).await;
                }
            }
            Self::Forge(count) => {
                let forge = format!(
                    "for n = 1, {count} do redis.call('PUBLISH', '__keyevent@0__:expired', 'loud:0-' .. n) end"
                );
                server.cmd(&["EVAL", &forge, "0"]).await;
            }
        }
    }
}

async fn lasting(ms: u64) {
    sleep(Duration::from_millis(ms)).await;
}

async fn tell(server: &Server, words: &str) {
    server.cmd(&words.split(' ').collect::<Vec<_>>()).await;
}

async fn between(server: &Server, first: &str, ms: u64, then: &str) {
    tell(server, first).await;
    lasting(ms).await;
    tell(server, then).await;
}

async fn set(server: &Server, setting: &str, [fault, normal]: [&str; 2], ms: u64) {
    server.cmd(&["CONFIG", "SET", setting, fault]).await;
    lasting(ms).await;
    server.cmd(&["CONFIG", "SET", setting, normal]).await;
}

/// What the server tells of.
async fn flags(server: &Server) -> String {
    let answer = server.cmd(&["CONFIG", "GET", "notify-keyspace-events"]).await;
    let [_, flags]: [String; 2] = redis::from_redis_value(answer).expect("a name and a value");
    flags
}

async fn pause(server: &Server, ms: u64, what: &str) {
    tell(server, &format!("CLIENT PAUSE {ms} {what}")).await;
    lasting(ms).await;
}

async fn busy(server: &Server, ms: u64) {
    tell(server, "CONFIG SET busy-reply-threshold 50").await;
    let spin = format!(
        "local function now() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end \
         local started = now() while now() - started < {ms} do end"
    );
    server.cmd(&["EVAL", &spin, "0"]).await;
}
