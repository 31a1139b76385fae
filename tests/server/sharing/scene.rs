//! A server, a line to it on which answers can be held up, and a book of the script calls that went over it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::future::{BoxFuture, join, join_all};
use keylapse::Client;
use keylapse::timers::Timer;
use keylapse_support::{Direction, Proxy, Server, Then, eventually};
use keylapse_wire::scripts;
use tokio::task::JoinHandle;

pub(super) use super::caller::{Caller, LATER, word_of};
use crate::server::support::{PATIENCE, load_scripts, show_log};

const PREFIX: &str = "app:share:";

/// A producers' script call that has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) script: &'static str,
    /// Its fourth argument.
    pub(super) how: String,
    /// Of its timers, in their order.
    pub(super) ids: Vec<String>,
    /// All of the request.
    pub(super) bytes: usize,
}

pub(super) struct Scene {
    pub(super) server: Server,
    pub(super) proxy: Proxy,
    /// Does not use the line.
    pub(super) direct: Caller,
    book: Arc<Mutex<Vec<Seen>>>,
}

impl Scene {
    pub(super) async fn start() -> Self {
        show_log();
        let server = Server::start().await;
        let proxy = Proxy::before(&server).await;
        // Or each would be called twice at first, and the first reply be a NOSCRIPT.
        load_scripts(&server).await;
        let book = Arc::<Mutex<Vec<Seen>>>::default();
        let writing = book.clone();
        let note = move |words: &[Bytes]| {
            writing.lock().unwrap().extend(Seen::read(words));
            false
        };
        proxy.lose_reply(note, Then::Close);
        let direct = Caller::of(&Client::new(&server.app_url()).unwrap());
        direct.connected().await;
        Self { server, proxy, direct, book }
    }

    /// Of one who waits long for each answer, and longer for the end.
    pub(super) fn client(&self) -> Client {
        let client = Client::new(&self.proxy.app_url()).unwrap();
        client.answer_within(Duration::from_secs(30)).unwrap().retry_for(Duration::from_secs(60))
    }

    pub(super) async fn caller(&self) -> Caller {
        self.caller_of(self.client()).await
    }

    /// One who soon repeats what has no answer.
    pub(super) async fn quick_caller(&self) -> Caller {
        self.caller_of(self.client().answer_within(Duration::from_millis(500)).unwrap()).await
    }

    pub(super) async fn caller_of(&self, client: Client) -> Caller {
        let caller = Caller::of(&client);
        caller.connected().await;
        caller
    }

    /// What has passed since this was asked last.
    pub(super) fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.book.lock().unwrap())
    }

    pub(super) fn has_seen(&self, id: &str) -> bool {
        self.book.lock().unwrap().iter().any(|seen| seen.ids.iter().any(|one| one == id))
    }

    pub(super) fn count_seen(&self) -> usize {
        self.book.lock().unwrap().len()
    }

    #[track_caller]
    pub(super) fn until_seen<'a>(&'a self, id: &'a str) -> impl Future<Output = ()> + 'a {
        eventually(PATIENCE, "the call to pass", async move || self.has_seen(id))
    }

    /// Loses the reply to the next script call that names this timer.
    pub(super) fn lose(&self, id: &str, then: Then) {
        let key = key(id);
        self.proxy.lose_reply(move |words: &[Bytes]| words.contains(&key), then);
    }

    pub(super) async fn standing(&self, id: &str) -> Option<Timer<String>> {
        self.direct.schedule.look_up(&self.direct.topic, [id]).await.expect("an answer")
    }

    pub(super) async fn all_stand(&self, ids: &[&str]) {
        for id in ids {
            assert!(self.standing(id).await.is_some(), "{id} is not armed");
        }
    }

    pub(super) async fn none_stands(&self, ids: &[&str]) {
        for id in ids {
            let timer = self.standing(id).await;
            assert!(timer.is_none(), "{id} is armed: {timer:?}");
        }
    }

    /// The server's clock.
    pub(super) async fn now(&self) -> SystemTime {
        let (secs, micros): (u64, u64) = redis::from_redis_value(self.server.cmd(&["TIME"]).await).unwrap();
        SystemTime::UNIX_EPOCH + Duration::from_micros(secs * 1_000_000 + micros)
    }

    /// Sends two calls, and holds up all answers: one went alone, one is carried by a driver. What is called
    /// behind them gathers. The caller must be one that has made no others: theirs may still have a driver.
    pub(super) async fn hold(&self, caller: &Caller) -> Held<'_> {
        self.proxy.stall(Direction::Replies);
        let mut calls = Vec::new();
        for id in ["held-1", "held-2"] {
            calls.push(tokio::spawn(caller.arm(id)));
            self.until_seen(id).await;
        }
        self.take_seen();
        Held { scene: self, calls }
    }
}

/// Calls whose answers are held up.
pub(super) struct Held<'a> {
    scene: &'a Scene,
    calls: Vec<JoinHandle<String>>,
}

impl Held<'_> {
    /// Makes these calls, in this order, before it lets the answers through.
    pub(super) async fn release<T>(self, calls: impl IntoIterator<Item = BoxFuture<'static, T>>) -> Vec<T> {
        let through = async { self.scene.proxy.resume() };
        let (answers, ()) = join(join_all(calls), through).await;
        for call in self.calls {
            let answer = call.await.expect("an answer");
            assert!(["Armed", "Replaced"].contains(&&*answer), "{answer}");
        }
        answers
    }

    /// Lets answers through, whatever has become of those who waited for them.
    pub(super) async fn abandon(self) {
        self.scene.proxy.resume();
        for call in self.calls {
            call.await.expect("some answer");
        }
    }
}

pub(super) fn key(id: &str) -> Bytes {
    Bytes::from(format!("{PREFIX}{id}"))
}

impl Seen {
    fn read(words: &[Bytes]) -> Option<Self> {
        let sha = words.get(1).filter(|_| words[0].eq_ignore_ascii_case(b"EVALSHA"))?;
        let script = scripts::all().find(|script| *sha == script.sha.as_bytes())?.name;
        let width = match script {
            "arm" => 4,
            "cancel" | "reschedule" => 2,
            _ => return None,
        };
        let keys: usize = std::str::from_utf8(&words[2]).ok()?.parse().ok()?;
        let (head, timers) = words[3 + keys..].split_at(4);
        let id = |timer: &[Bytes]| String::from_utf8_lossy(&timer[0]).replacen(PREFIX, "", 1);
        Some(Self {
            script,
            how: String::from_utf8_lossy(&head[3]).into_owned(),
            ids: timers.chunks(width).map(id).collect(),
            bytes: words.iter().map(Bytes::len).sum(),
        })
    }
}
