//! docs/internals/wire.md says what is so.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use keylapse::dead_letters::DeadReason;
use keylapse::timers::ArmingId;
use keylapse::{Done, Expired, Failure, Lapse, Topic};
use keylapse_support::{Server, eventually, skipped};
use keylapse_wire::record::{Record, State, StoredDeadLetter};
use keylapse_wire::time::ServerTime;
use keylapse_wire::{AnnouncedExpiry, CheckAction};
use keylapse_wire::{History, scripts};
use redis::{AsyncCommands, FromRedisValue};
use regex::Regex;
use tokio::process::Command;

use crate::REPOSITORY;
use crate::model::rules::attached::{Scene, on, since};
use crate::server::support::{PATIENCE, Running, listener, reports, server_and_schedule};

const PAGE: &str = include_str!("../../docs/internals/wire.md");

/// The bytes of the page's examples, by what they are.
fn examples() -> BTreeMap<String, Vec<Bytes>> {
    let example = Regex::new(r"(?m)^(record|state|letter|watch|values|history|cycles) +((?:[0-9a-f]+\s+)+)")
        .expect("a pattern");
    let mut examples = BTreeMap::<_, Vec<_>>::new();
    for found in example.captures_iter(PAGE) {
        let digits: Vec<u8> = found[2].bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
        let byte = |two: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(two), 16).expect("two digits");
        examples.entry(found[1].to_owned()).or_default().push(digits.chunks(2).map(byte).collect());
    }
    examples
}

#[test]
fn the_examples_of_bytes_are_what_they_are_said_to_be() {
    let examples = examples();
    let record = Record::decode(examples["record"][0].clone()).expect("a record");
    assert_eq!((record.deadline, &record.payload[..]), (1_700_000_000_000, &br#"{"amount":1999}"#[..]));
    let states = &examples["state"];
    let first = State::decode(states[0].clone()).expect("a state");
    assert_eq!(first, State::first(first.token));
    let second = State::decode(states[1].clone()).expect("a state");
    assert_eq!((second.attempt, second.claimed, second.deadline), (2, false, 1_700_000_015_000));
    let history = String::from_utf8_lossy(&second.history);
    assert_eq!(History::decode(&second.history).0[0].error, "503");
    assert!(PAGE.contains(&*history), "{history}");
    let letter = StoredDeadLetter::decode(examples["letter"][0].clone()).expect("a letter");
    assert_eq!((letter.reason, letter.died), (DeadReason::Permanent, 1_700_000_015_000));
    assert_eq!((&letter.state, letter.record), (&State::waiting(1).encode(), record.encode()));
}

/// The scripts write what the page says of attached topics.
#[tokio::test]
async fn the_examples_of_attached_topics_are_what_is_written() {
    let mut scene = Scene::real("w").await;
    let examples = examples();
    let (begin, deadline, end) = (1_700_000_000_000, 1_700_000_015_000, 1_700_000_030_000);
    let copy = b"\x02{\"sum\":1999}";
    let id = |digits: &[u8]| ArmingId::from_bytes(digits).expect("eight bytes");
    let recorded = examples["record"][1].clone();

    scene.clock(begin + 500).await;
    scene.enrol("a", deadline, (begin, 0), ServerTime::from_ms(begin + 500), copy).await;
    assert_eq!(scene.get("tracked", "a").await, examples["watch"][0]);
    assert_eq!(scene.get("values", "a").await, examples["values"][0]);

    scene.clock(deadline + 1).await;
    let note = |at, arming| AnnouncedExpiry { identity: since(begin, at), arming, ..scene.note_of("a") };
    let notes = [note((deadline - 1000, 1), id(&recorded[1..9]))];
    scene.notes(&on(), &notes).await;
    assert_eq!(scene.get("timers", "a").await, recorded);
    assert_eq!(scene.get("expiry_history", "a").await, examples["history"][0]);

    scene.clock(end).await;
    let note = |at, arming| AnnouncedExpiry { identity: since(begin, at), arming, ..scene.note_of("a") };
    let cycles = &examples["cycles"][0];
    let notes = [note((end - 1000, 1), ArmingId::random()), note((end - 1000, 2), id(&cycles[6..14]))];
    scene.notes(&on(), &notes).await;
    assert_eq!(scene.get("queued", "a").await, cycles);

    scene.enrol("b", deadline, (begin, 0), ServerTime::from_ms(begin + 500), copy).await;
    let watch = scene.watch("b").await;
    let deed = CheckAction::Fire { arming: id(&recorded[1..9]), flags: 3 };
    scene.judge(&watch, (deadline, 0), ServerTime::from_ms(deadline + 500), deed).await;
    assert_eq!(scene.get("expiry_history", "b").await, examples["history"][1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_redis_has_another_name() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:wire:{id}").expect("a topic").partitions(2);
    let mut line = server.conn().await;
    // One will expire and be remembered; the other is watched for as long as this takes.
    for (id, ms) in [("1", 3000), ("2", 60_000)] {
        let _: () = line.pset_ex(format!("app:watched:{id}"), "x", ms).await.expect("SET");
    }
    let (report, mut reported) = reports();
    let watched = Topic::raw("app:watched:{id}").expect("a topic");
    let builder =
        listener(&server).attach(watched, |_: Lapse<Expired<Bytes>>| async { Ok::<_, Failure>(Done) });
    let running = Running::start(builder.on(topic.clone(), move |_: Lapse<u32>| {
        report.send(()).ok();
        async { Err::<Done, _>(Failure::dead("it shall be buried")) }
    }));
    for (id, delay) in [("1", 0), ("2", 60), ("3", 60)] {
        let armed = schedule.arm(&topic, [id], Duration::from_secs(delay), &1).await.expect("an answer");
        assert!(armed.is_armed());
    }
    let _ = schedule.cancel(&topic, ["2"]).await.expect("an answer");
    reported.next().await;
    for (what, name) in [
        ("an expiry to be noted", "keylapse:{app.watched/0}:expiry_history"),
        ("a key to be enrolled", "keylapse:{app.watched/0}:tracked"),
        ("a canary", "keylapse:{heartbeat/0}"),
    ] {
        eventually(PATIENCE, what, async || line.exists(name).await.expect("an answer")).await;
    }
    let keys: Vec<String> = line.keys("*").await.expect("KEYS");
    for key in &keys {
        assert!(is_listed(key), "{key}");
    }
    for topic in ["wire", "watched"] {
        let fields: Vec<String> =
            line.hkeys(format!("keylapse:{{app.{topic}/0}}:meta")).await.expect("HKEYS");
        assert!(fields.iter().all(|field| PAGE.contains(&format!("\n| `{field}` | "))), "{fields:?}");
    }
    running.stop().await.expect("an orderly end");
}

fn is_listed(key: &str) -> bool {
    let general = match key.split_once("}:") {
        Some(("keylapse:{app.wire/0" | "keylapse:{app.wire/1" | "keylapse:{app.watched/0", word)) => {
            format!("\n| `{word}` | ")
        }
        Some(("keylapse:{heartbeat/0", _)) => "\n| `keylapse:{heartbeat/0}:<n>:<m>` | ".to_owned(),
        Some(_) => return false,
        None if key.starts_with("app:wire:") || key.starts_with("app:watched:") => {
            "\n| the timer's key itself | ".to_owned()
        }
        None => format!("\n| `{key}` | "),
    };
    PAGE.contains(&general)
}

/// The example in a shell, as it stands on the page.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_in_a_shell_arms_and_cancels() {
    let help = Command::new("redis-cli").arg("--help").output().await;
    if !help.is_ok_and(|help| String::from_utf8_lossy(&[help.stdout, help.stderr].concat()).contains("<tag>"))
    {
        skipped("redis-cli 7.0 or later is needed");
        return;
    }
    let server = Server::start().await;
    let (_, rest) = PAGE.split_once("```sh\n").expect("an example in a shell");
    let (example, _) = rest.split_once("```").expect("its end");
    let example = example.replace("6379", &server.port().to_string());
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &example]).current_dir(REPOSITORY).stdin(Stdio::null());
    let output = shell.output().await.expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("app:trans:notice:42") && said.contains(r#"{\"amount\":1999}"#), "{said}");
    assert!(said.contains(r"\x01\x00"), "cancelled: {said} {}", String::from_utf8_lossy(&output.stderr));
    for script in [&*scripts::INIT, &*scripts::ARM, &*scripts::CANCEL] {
        let known = server.cmd(&["SCRIPT", "EXISTS", &script.sha]).await;
        assert_eq!(
            Vec::<u8>::from_redis_value(known).expect("one answer"),
            [1],
            "{} is as ours",
            script.name
        );
    }
}
