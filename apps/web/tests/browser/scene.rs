//! A server with timers of all kinds, listeners, and the dashboard before them.

use std::time::Duration;

use keylapse::{Attached, Client, Done, Expired, Failure, Key, Lapse, Listener, Outcome, Schedule, Topic};
use keylapse_console::{Console, Export, text};
use keylapse_support::{Server, eventually};
use keylapse_web::{Access, Web, WebServer as Http};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use keylapse_browser::WITHIN;

/// Nobody waits long for a server that is gone.
const SHORT: Duration = Duration::from_millis(300);

/// What a payload makes the handler do.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Do {
    Succeed,
    Die(String),
    Fail(String),
    Hang,
}

/// Ends what it serves when it is dropped.
pub(crate) struct Task {
    _stop: oneshot::Sender<()>,
    _task: JoinHandle<()>,
}

pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) schedule: Schedule,
    pub(crate) orders: Topic<Do>,
    listener: Option<Task>,
    _http: Task,
    /// Where the dashboard begins.
    pub(crate) at: String,
}

impl Scene {
    /// A dashboard that everybody may use, before a server with nothing in it.
    pub(crate) async fn empty() -> Self {
        Self::with(|web| web, Access::to_loopback()).await
    }

    pub(crate) async fn with(make: impl FnOnce(Web) -> Web, access: Access) -> Self {
        Self::before(Server::start().await, make, access).await
    }

    pub(crate) async fn before(server: Server, make: impl FnOnce(Web) -> Web, access: Access) -> Self {
        let schedule = Schedule::connect(&server.plain_url()).await.expect("a schedule");
        let (_http, at) = serve(&server, make, access).await;
        let orders = Topic::named("order.unpaid", "order:unpaid:{id}").expect("a topic");
        Self { server, schedule, orders, listener: None, _http, at }
    }

    /// A dashboard with something of everything.
    pub(crate) async fn shop() -> Self {
        let mut scene = Self::empty().await;
        scene.fill().await;
        scene
    }

    pub(crate) async fn fill(&mut self) {
        self.listen().await;
        for n in 0..60_u64 {
            self.arm(format!("{}", 1000 + n).as_bytes(), Duration::from_secs(600 + 97 * n), Do::Succeed)
                .await;
        }
        self.arm(b"2001", Duration::ZERO, Do::Hang).await;
        self.arm(b"2002", Duration::ZERO, Do::Fail("timeout while calling the shop".to_owned())).await;
        self.arm(b"2003", Duration::ZERO, Do::Die("402: the card was declined".to_owned())).await;
        let mails = Topic::<Do>::named("mail.reminder", "mail:{id}").expect("a topic");
        for n in 0..5_u64 {
            self.armed(&mails, format!("mail:{n}").as_bytes(), Duration::from_secs(3600 * (n + 1))).await;
        }
        self.schedule.pause(&mails, "the mail provider is down").await.expect("a pause");
        let jobs = Topic::<Do>::named("report.nightly", "report:{day}").expect("a topic");
        self.armed(&jobs, b"report:monday", Duration::ZERO).await;
        let errors = [
            "timeout while calling the shop",
            "connection refused (os error 111)",
            "500 Internal Server Error",
        ];
        for n in 0..24_u64 {
            let error = errors[usize::try_from(n % 5).expect("small").min(2)];
            self.bury(&format!("order:unpaid:{}", 3000 + n), n + 1, error).await;
        }
        eventually(WITHIN, "what the listener does", async || {
            let (dead, _) = self.schedule.dead_letter_counts(&self.orders).await.expect("counts");
            dead == 25
        })
        .await;
    }

    /// What has ended is kept from now on.
    pub(crate) fn keep_journal(&mut self) {
        self.orders = self.orders.clone().journal(1000, Duration::from_secs(3600));
    }

    /// With a listener that serves the orders.
    pub(crate) async fn listen(&mut self) {
        let listener = Listener::builder(self.server.plain_url()).on(self.orders.clone(), handle).build();
        self.listener = Some(run(listener.expect("a listener")));
        eventually(WITHIN, "the listener's report", async || {
            !self.schedule.serving(&self.orders).await.expect("reports").is_empty()
        })
        .await;
    }

    /// With a listener that hears of sessions that expire, which another program writes.
    pub(crate) async fn attach(&mut self) {
        let sessions = Topic::<String>::named("session", "session:{id}").expect("a topic");
        let sessions = Attached::new(sessions).scan_every(Duration::from_secs(1));
        let expired = async |_: Lapse<Expired<String>>| Ok::<_, Failure>(Done);
        let listener = Listener::builder(self.server.plain_url()).attach(sessions, expired).build();
        self.listener = Some(run(listener.expect("a listener")));
    }

    pub(crate) async fn arm(&self, key: &[u8], delay: Duration, what: Do) {
        let key = [b"order:unpaid:", key].concat();
        let armed = self.schedule.arm(&self.orders, Key(&key), delay, &what).await.expect("an arming");
        assert!(armed.is_armed(), "{armed:?}");
    }

    async fn armed(&self, topic: &Topic<Do>, key: &[u8], delay: Duration) {
        let armed = self.schedule.arm(topic, Key(key), delay, &Do::Succeed).await.expect("an arming");
        assert!(armed.is_armed(), "{armed:?}");
    }

    /// A dead letter of the orders.
    pub(crate) async fn bury(&self, key: &str, id: u64, error: &str) {
        self.bury_in("order.unpaid", key, id, error).await;
    }

    pub(crate) async fn bury_in(&self, topic: &str, key: &str, id: u64, error: &str) {
        let console = self.console().await;
        let topic = console.topic(topic).await.expect("the topic");
        let at_ms = now_ms() - 60_000 * id;
        let letter: Export = serde_json::from_value(serde_json::json!({
            "v": 1, "type": "dead_letter", "topic": topic.name(), "key": text::escape(key.as_bytes()), "id": format!("{id:016x}"),
            "deadline_ms": at_ms - 600_000, "at_ms": at_ms, "reason": "exhausted", "attempt": 3, "payload": "\"Succeed\"",
            "failures": [
                {"attempt": 2, "at": at_ms - 60_000, "kind": "error", "error": error},
                {"attempt": 3, "at": at_ms, "kind": "error", "error": error},
            ],
        }))
        .expect("a letter");
        assert_eq!(topic.import(&[letter]).await.expect("an import").imported, 1);
    }

    pub(crate) async fn console(&self) -> Console {
        Console::connect(self.server.plain_url().as_str()).await.expect("a console")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.at)
    }

    /// The address of a page about a key of the orders.
    pub(crate) fn timer(&self, key: &str) -> String {
        self.url(&format!("/timer?topic=order.unpaid&key=order:unpaid:{key}"))
    }
}

/// Runs a listener until it is dropped.
fn run(listener: Listener) -> Task {
    let (stop, stopped) = oneshot::channel::<()>();
    let run = async move { listener.run_until(stopped).await.expect("the listener") };
    Task { _stop: stop, _task: tokio::spawn(run) }
}

/// Serves a dashboard, and says where.
pub(crate) async fn serve(server: &Server, make: impl FnOnce(Web) -> Web, access: Access) -> (Task, String) {
    let http = Http::bind(([127, 0, 0, 1], 0).into(), &access, None).await.expect("an address");
    let at = format!("http://{}", http.address().expect("an address"));
    let client = Client::new(&server.plain_url()).expect("a client").retry_for(SHORT);
    let console = Console::new(client);
    let web = make(Web::new(console, access));
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move { http.run(web.router(), async { _ = stopped.await }).await });
    (Task { _stop: stop, _task: task }, at)
}

async fn handle(lapse: Lapse<Do>) -> Result<Outcome, Failure> {
    match lapse.payload() {
        Do::Succeed => Ok(Done.into()),
        Do::Die(why) => Err(Failure::dead(why.clone())),
        Do::Fail(why) => Err(Failure::retry_after(Duration::from_secs(3600), why.clone())),
        Do::Hang => std::future::pending().await,
    }
}

pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("a time")
}
