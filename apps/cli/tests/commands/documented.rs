//! Lines of JSON have the fields that docs/json-lines.md lists for their type, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keylapse::destinations::{Destination, DestinationState, Destinations};
use keylapse_support::eventually;
use serde_json::{Map, Value};

use crate::commands::scene::{Do, PATIENCE, Ran, Scene, run_at};

const HOUR: Duration = Duration::from_secs(3600);
/// What no scene here brings about, and what of the table of both only letters have.
const UNSEEN: [(&str, &str); 8] = [
    ("listener", "nodes[].gap"),
    ("listener", "handlers_stalled_ms"),
    ("timer", "reason"),
    ("timer", "lost_leases"),
    ("survey", "missing[].figure"),
    ("survey", "missing[].right"),
    ("tail", "missed"),
    ("tail", "count"),
];

/// A place that handlers here would call.
#[derive(Debug)]
struct Bank;

impl Destinations for Bank {
    fn states(&self) -> Vec<Destination> {
        let mut bank = Destination::new("bank.example:443", DestinationState::Open);
        (bank.failures, bank.retry_in_ms) = (10, Some(12_000));
        bank.last_answer = Some("503 Service Unavailable".to_owned());
        bank.last_error = Some("the receiver answered 503 Service Unavailable".to_owned());
        vec![bank]
    }

    fn try_now(&self, _: &str) {}

    fn identity(&self) -> Option<String> {
        Some("a bank".to_owned())
    }
}

/// The fields of a type: whether each is always there, and whose fields it has in turn.
type Fields = BTreeMap<String, Field>;

#[derive(Clone)]
struct Field {
    always: bool,
    like: Option<String>,
}

/// By type, what the tables below headings in code font say. A type may have the fields of another one, too.
fn documented() -> BTreeMap<String, Fields> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json-lines.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let mut types = BTreeMap::<String, Fields>::new();
    for part in page.split("\n## ").filter(|part| part.starts_with('`')) {
        let (heading, text) = part.split_once('\n').expect("a heading");
        let fields = || text.lines().filter_map(field);
        assert!(fields().next().is_some(), "{heading} has no table");
        let (text, _) = text.split_once("\n| ").expect("a table");
        let other = text.split_once("fields of [`").and_then(|(_, other)| other.split_once('`'));
        let others = other.map(|(other, _)| types.get(other).expect("a type before this one").clone());
        for name in heading.split('`').skip(1).step_by(2) {
            types.insert(name.to_owned(), others.clone().into_iter().flatten().chain(fields()).collect());
        }
    }
    types
}

fn field(row: &str) -> Option<(String, Field)> {
    let (name, rest) = row.strip_prefix("| `")?.split_once('`')?;
    let (mark, what) = rest.split_once('|')?;
    let like =
        what.split_once("[`").and_then(|(_, like)| like.split_once("`](#")).map(|(like, _)| like.to_owned());
    Some((name.to_owned(), Field { always: !mark.contains("optional"), like }))
}

/// What was found, compared with what is documented.
struct Judge {
    types: BTreeMap<String, Fields>,
    seen: BTreeSet<(String, String)>,
    faults: BTreeSet<String>,
}

impl Judge {
    fn line(&mut self, line: &Value) {
        let kind = line["type"].as_str().expect("a type");
        let mut fields = line.as_object().expect("fields").clone();
        assert!(fields.remove("v") == Some(1.into()) && fields.remove("type").is_some(), "{line}");
        match self.types.contains_key(kind) {
            true => self.fields(kind, "", &fields, true),
            false => _ = self.faults.insert(format!("no table for {kind}")),
        }
    }

    fn fields(&mut self, kind: &str, before: &str, fields: &Map<String, Value>, top: bool) {
        for (name, value) in fields {
            self.value(kind, &format!("{before}{name}"), value);
        }
        let always = |(name, field): (&String, &Field)| {
            (field.always && !name.contains(['.', '[']) && !fields.contains_key(name)).then(|| name.clone())
        };
        if top {
            let missing: Vec<_> = self.types[kind].iter().filter_map(always).collect();
            self.faults.extend(missing.into_iter().map(|name| format!("{kind} without {name}")));
        }
    }

    fn value(&mut self, kind: &str, name: &str, value: &Value) {
        let known = self.types[kind].get(name).map(|field| field.like.clone());
        let below =
            |sign: &str| self.types[kind].keys().any(|other| other.starts_with(&format!("{name}{sign}")));
        let (map, list, fixed) = (below(".*"), below("[]."), below("."));
        if known.is_none() && !map && !list && !fixed {
            self.faults.insert(format!("{kind}.{name} is not documented"));
            return;
        }
        self.seen.insert((kind.to_owned(), name.to_owned()));
        match (value, known.flatten()) {
            (Value::Object(of), Some(like)) => self.fields(&like, "", of, true),
            (Value::Array(of), Some(like)) => {
                of.iter().filter_map(Value::as_object).for_each(|of| self.fields(&like, "", of, true));
            }
            (Value::Object(of), None) if map => {
                of.values().for_each(|of| self.below(kind, &format!("{name}.*"), of));
            }
            (Value::Array(of), None) if list => {
                of.iter().for_each(|of| self.below(kind, &format!("{name}[]"), of));
            }
            (Value::Object(of), None) if fixed => self.fields(kind, &format!("{name}."), of, false),
            (Value::Object(_), None) => {
                _ = self.faults.insert(format!("what is in {kind}.{name} is not documented"));
            }
            _ => {}
        }
    }

    fn below(&mut self, kind: &str, name: &str, value: &Value) {
        match value {
            Value::Object(fields) => self.fields(kind, &format!("{name}."), fields, false),
            value => self.value(kind, name, value),
        }
    }
}

fn json(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Somebody who looks on until a timer has failed, two have died and one is done.
async fn looked_on(scene: &Scene) -> std::thread::JoinHandle<Ran> {
    let url = scene.server.plain_url();
    let tail =
        std::thread::spawn(move || run_at(&url, &["--json", "tail", "--limit", "8", "--for", "60s"], b""));
    eventually(PATIENCE, "somebody who looks on", async || {
        let known = ["HEXISTS", "keylapse:{order.unpaid/0}:meta", "watched_until"];
        scene.server.cmd(&known).await == redis::Value::Int(1)
    })
    .await;
    tail
}

/// Answers one probe, as a program that is ready.
fn ready() -> String {
    let door = TcpListener::bind("127.0.0.1:0").expect("an address");
    let at = format!("http://{}", door.local_addr().expect("its address"));
    std::thread::spawn(move || {
        let (mut caller, _) = door.accept().expect("a probe");
        let head = BufReader::new(&caller).lines().map_while(Result::ok);
        assert!(head.take_while(|line| !line.is_empty()).count() > 0, "a request");
        _ = caller.write_all(b"HTTP/1.1 200 OK\r\n\r\nok\n");
    });
    at
}

/// Lines of each type, with all that they can have.
async fn lines(scene: &mut Scene) -> Vec<Value> {
    scene.arm(b"later", HOUR, Do::Succeed).await;
    let tail = looked_on(scene).await;
    scene.arm(b"failed", Duration::ZERO, Do::Fail).await;
    scene.arm(b"fine", Duration::ZERO, Do::Succeed).await;
    scene.arm(b"runs", Duration::ZERO, Do::Hang).await;
    scene.bury(2).await;
    eventually(PATIENCE, "the attempts, and a report of them", async || {
        scene.lines(&["ls", "order.unpaid", "attempt:2"]).len() == 1
            && (scene.status("handled"), scene.status("running")) == (1, 1)
    })
    .await;
    let mut lines = json(&tail.join().expect("the tail").out);
    let probed = ready();
    for command in [
        &["topics"][..],
        &["status"],
        &["listeners"],
        &["destinations"],
        &["ls", "order.unpaid"],
        &["show", "order:unpaid:dead-0", "--payloads"],
        &["why", "order:unpaid:failed"],
        &["why", "order:unpaid:dead-0"],
        &["why", "order:unpaid:fine"],
        &["journal", "order.unpaid"],
        &["doctor"],
        &["health", "--at", &probed],
        &["attach", "--dry-run", "order:unpaid:{id}", "--watch", "0"],
        &["arm", "order:unpaid:1", "--when", "1h"],
        &["arm", "order:unpaid:1", "--when", "1h", "--only-if-absent"],
        &["reschedule", "order:unpaid:1", "--to", "2h"],
        &["cancel", "order:unpaid:1"],
        &["pause", "order.unpaid", "--reason", "a test"],
        &["resume", "order.unpaid"],
        &["dead", "replay", "order.unpaid", "--dry-run"],
        &["dead", "drop", "order.unpaid", "--limit", "1", "--yes", "--expect", "1"],
        &["check", "--max-dead", "0"],
        &["export", "order.unpaid"],
        &["export", "order.unpaid", "--dead"],
    ] {
        lines.extend(scene.lines(command));
    }
    // What takes long to come about by itself.
    let odd = |kind: &str| {
        let mut line = lines.iter().find(|line| line["type"] == kind).expect("a line").clone();
        for (field, value) in
            [("id", "00000000000000ff".into()), ("snoozes", 1.into()), ("lost_leases", 2.into())]
        {
            line[field] = value;
        }
        line["key"] = format!("order:unpaid:odd-{kind}").into();
        line["failures"] = serde_json::json!([{"attempt": 1, "at": 7, "kind": "error", "error": "odd"}]);
        format!("{line}\n")
    };
    let odd = [odd("timer"), odd("dead_letter")].concat();
    let imported = scene.run_with(&["--json", "import"], odd.as_bytes());
    lines.push(serde_json::from_str(&imported.out).expect("a line"));
    lines.extend(scene.lines(&["export", "order.unpaid"]));
    lines.extend(scene.lines(&["export", "order.unpaid", "--dead"]));
    scene.server.cmd(&["HDEL", "keylapse:{order.unpaid/0}:timers", "order:unpaid:odd-timer"]).await;
    lines.extend(scene.lines(&["verify"]));
    scene.server.cmd(&["HSET", "keylapse:topics", "odd", "x"]).await;
    lines.extend(scene.lines(&["topics"]));
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn each_line_of_json_has_the_fields_that_are_documented() {
    let mut scene = Scene::new().await;
    scene.orders = scene.orders.clone().journal(100, HOUR).destinations(Arc::new(Bank));
    let mut scene = scene.listening().await;
    let mut judge = Judge { types: documented(), seen: BTreeSet::new(), faults: BTreeSet::new() };
    for line in lines(&mut scene).await {
        judge.line(&line);
    }
    let all = judge
        .types
        .iter()
        .flat_map(|(kind, fields)| fields.keys().map(move |name| (kind.clone(), name.clone())));
    let unseen = all.filter(|found| !judge.seen.contains(found));
    let unseen = unseen.filter(|(kind, name)| !UNSEEN.contains(&(kind, name)));
    judge.faults.extend(unseen.map(|(kind, name)| format!("{kind}.{name} is documented and was not found")));
    assert!(judge.faults.is_empty(), "{:#?}", judge.faults);
}
