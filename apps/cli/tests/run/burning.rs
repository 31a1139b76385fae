//! Everything burns at once, and each place that an operator looks at names all of it within ten seconds.

use std::process::Command;
use std::time::{Duration, Instant};

use keylapse_browser::Chrome;
use keylapse_support::eventually;

use crate::run::program::{Scene, get};
use crate::run::{Receiver, Then};

/// How soon all of it is named.
const SOON: Duration = Duration::from_secs(10);
/// The words for each fire, in all places that show alarms.
const FIRES: [(&str, &str); 6] = [
    ("unreachable", "held back"),
    ("busy", "429 Too Many Requests"),
    ("trickling", "did not answer in time"),
    ("stopped", "paused"),
    ("trimmed", "trimmed since the topic was created"),
    ("listener", "no report for"),
];

fn file(busy: &Receiver, trickling: &Receiver) -> String {
    let webhook = |topic: &str, host: &str| {
        format!(
            r#"[topics.{topic}]
pattern = "{topic}:{{id}}"
retry = {{ every = "200ms" }}
max-attempts = 1000
[topics.{topic}.webhook]
url = "http://{host}/"
allow-addresses = ["127.0.0.1"]
secret = {{ file = "secret" }}
timeout = "1s"
circuit = {{ failures = 3, open-for = "30s" }}
"#
        )
    };
    [
        webhook("unreachable", "127.0.0.1:1"),
        webhook("busy", &busy.host()),
        webhook("trickling", &trickling.host()),
        webhook("stopped", &busy.host()),
        r#"[topics.trimmed]
pattern = "trimmed:{id}"
max-attempts = 1
dead-letters = { count = 2, age = "1h" }
[topics.trimmed.exec]
argv = ["/bin/false"]
"#
        .to_owned(),
    ]
    .concat()
}

impl Scene {
    /// The program's output, and its exit code.
    fn says(&self, words: &[&str]) -> (String, Option<i32>) {
        let mut program = Command::new(env!("CARGO_BIN_EXE_keylapse"));
        program.env("KEYLAPSE_URL", self.server.plain_url()).args(words);
        let ended = program.output().expect("the program");
        (String::from_utf8_lossy(&ended.stdout).into_owned(), ended.status.code())
    }

    /// Waits until so many listeners have reported.
    async fn until_listed(&self, count: usize) {
        let are_listed = async || self.says(&["listeners"]).0.lines().count() == 1 + count;
        eventually(SOON * 6, "all to listen", are_listed).await;
    }
}

/// Waits until all is named in what this reads, and fails where it takes too long.
async fn until_all_is_named(
    since: Instant,
    place: &str,
    fires: &[(&str, &str)],
    mut read: impl AsyncFnMut() -> String,
) {
    let mut last = String::new();
    let in_time = tokio::time::timeout_at((since + SOON).into(), async {
        loop {
            last = read().await;
            if fires.iter().all(|(topic, said)| names(&last, topic, said)) {
                return;
            }
            // Each look starts a process: no more of them than show in time that all is named.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(in_time.await.is_ok(), "{place} does not name all of it within {SOON:?}:\n{last}");
}

/// True where one line says this of that.
fn names(text: &str, topic: &str, said: &str) -> bool {
    text.lines().any(|line| line.trim_start_matches("! ").starts_with(topic) && line.contains(said))
}

/// The metrics that the rules of docs/alerts.yml read.
const ALERTS: [(&str, &str); 6] = [
    (r#"keylapse_topic_alarm{topic="unreachable",kind="held-back"}"#, " 1"),
    (r#"keylapse_topic_alarm{topic="busy",kind="held-back"}"#, " 1"),
    (r#"keylapse_topic_alarm{topic="trickling",kind="held-back"}"#, " 1"),
    (r#"keylapse_topic_alarm{topic="stopped",kind="paused"}"#, " 1"),
    (r#"keylapse_topic_alarm{topic="trimmed",kind="trimmed"}"#, " 1"),
    ("keylapse_listeners_silent", " 1"),
];

#[tokio::test(flavor = "multi_thread")]
async fn each_place_that_shows_alarms_names_all_fires_within_ten_seconds() {
    let busy = Receiver::start(|_, _| Then::status(429)).await;
    let trickling = Receiver::start(|_, _| Then::Drip("HTTP/1.1 200 O")).await;
    let scene = Scene::new().await;
    scene.write("keylapse.toml", &file(&busy, &trickling));
    let _stays = scene.run();
    scene.until_listed(1).await;
    // It begins later, so nobody takes the other one for its successor.
    let goes = scene.run();
    scene.until_listed(2).await;
    let (_dashboard, at) = scene.listening("serve").await;
    let mut chrome = Chrome::start().await;
    let (_, calm) = scene.says(&["check"]);
    assert_eq!(calm, Some(0), "nothing burns yet");

    goes.kill();
    scene.says(&["pause", "stopped", "--reason", "a test"]);
    for topic in ["unreachable", "busy", "trickling", "stopped", "trimmed"] {
        for id in 0..10 {
            let armed = scene.says(&["arm", &format!("{topic}:{id}"), "--when", "0"]);
            assert_eq!(armed.1, Some(0), "{armed:?}");
        }
    }
    // All of it burns from now on.
    let began = Instant::now();
    let page = async {
        // A line of the page's text is a row, and begins with its topic.
        let Some(chrome) = &mut chrome else { return };
        until_all_is_named(began, "the first page", &FIRES, async || {
            chrome.go(&format!("http://{at}/topics")).await;
            chrome.text().await
        })
        .await;
    };
    tokio::join!(
        until_all_is_named(began, "check", &FIRES, async || scene.says(&["check"]).0),
        until_all_is_named(began, "status", &FIRES, async || scene.says(&["status"]).0),
        until_all_is_named(began, "/metrics", &ALERTS, async || get(&at, "/metrics")),
        page,
    );
    let (said, code) = scene.says(&["check", "--max-undelivered", "1s", "--json"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(r#""figure":"undelivered_ms""#), "{said}");
    let (why, _) = scene.says(&["why", "unreachable:1"]);
    assert!(why.contains("held back by 127.0.0.1:1: ") && why.contains("tried again in"), "{why}");
    assert!(why.contains("undelivered for"), "{why}");
    let (hosts, _) = scene.says(&["destinations"]);
    assert!(hosts.contains("open") && hosts.contains("busy"), "{hosts}");
}

/// They are made when the file is read, before anything is recorded, unless that is begun first.
#[tokio::test(flavor = "multi_thread")]
async fn circuits_and_classes_are_measured_from_the_start() {
    let scene = Scene::new().await;
    let text = "[topics.orders]\npattern = \"order:{id}\"\nretry = { every = \"10ms\" }\n[topics.orders.webhook]\n\
                url = \"http://127.0.0.1:1/\"\nallow-addresses = [\"127.0.0.1\"]\nsecret = { file = \"secret\" }\n\
                circuit = { failures = 3, open-for = \"1h\" }\n";
    scene.write("keylapse.toml", text);
    let (_program, at) = scene.listening("run").await;
    let has = |line: &str| get(&at, "/metrics").lines().any(|one| one == line);
    for line in [
        "keylapse_webhook_circuits_open{topic=\"orders\"} 0",
        "keylapse_webhooks_total{topic=\"orders\",class=\"unreachable\"} 0",
    ] {
        assert!(has(line), "{line} in {}", get(&at, "/metrics"));
    }
    scene.arm(0..5).await;
    let open = "keylapse_webhook_circuits_open{topic=\"orders\"} 1";
    eventually(SOON * 6, "a circuit that is open", async || has(open)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_calls_another_url_is_named() {
    let scene = Scene::new().await;
    let text = |path: &str| {
        format!(
            "[topics.orders]\npattern = \"order:{{id}}\"\n[topics.orders.webhook]\nurl = \"http://127.0.0.1:1/{path}\"\n\
             allow-addresses = [\"127.0.0.1\"]\nsecret = {{ file = \"secret\" }}\n"
        )
    };
    scene.write("keylapse.toml", &text("old"));
    let (_one, _alike) = (scene.run(), scene.run());
    scene.until_listed(2).await;
    assert_eq!(scene.says(&["check"]).1, Some(0));
    scene.write("keylapse.toml", &text("new"));
    let _other = scene.run();
    scene.until_listed(3).await;
    let (said, code) = scene.says(&["check"]);
    assert!(code == Some(1) && said.contains("orders: its listeners have 2 different handlers"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_was_killed_and_started_again_is_no_alarm() {
    let scene = Scene::new().await;
    scene.write(
        "keylapse.toml",
        "[topics.orders]\npattern = \"order:{id}\"\n[topics.orders.exec]\nargv = [\"/bin/true\"]\n",
    );
    let goes = scene.run();
    let says = async |what: &str| {
        eventually(SOON * 6, what, async || scene.says(&["check"]).0.contains(what)).await;
    };
    scene.until_listed(1).await;
    goes.kill();
    says("no report for").await;
    let _again = scene.run();
    says("topics=1 alarms=0").await;
}

/// A host that is held back is called at once, on demand.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_tried_at_once_when_an_operator_asks_for_it() {
    let works = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let answer = works.clone();
    let receiver = Receiver::start(move |_, _| {
        Then::status(if answer.load(std::sync::atomic::Ordering::Relaxed) { 200 } else { 500 })
    })
    .await;
    let scene = Scene::new().await;
    let text = format!(
        "[topics.orders]\npattern = \"order:{{id}}\"\nretry = {{ every = \"10ms\" }}\n[topics.orders.webhook]\n\
         url = \"http://{}/\"\nallow-addresses = [\"127.0.0.1\"]\nsecret = {{ file = \"secret\" }}\n\
         circuit = {{ failures = 3, open-for = \"1h\" }}\n",
        receiver.host()
    );
    scene.write("keylapse.toml", &text);
    let program = scene.run();
    scene.arm(0..5).await;
    program.has_said("the host has failed too often", 1).await;
    eventually(SOON * 6, "the host to be listed", async || scene.says(&["destinations"]).0.contains("open"))
        .await;
    works.store(true, std::sync::atomic::Ordering::Relaxed);
    let asked = scene.says(&["destinations", "orders", "--try", &receiver.host()]);
    assert_eq!(asked.1, Some(0), "{asked:?}");
    program.has_said("the host answers again", 1).await;
    scene.none_left().await;
}
