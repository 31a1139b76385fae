//! A call that is refused has written nothing.

use keylapse_support::Server;
use keylapse_wire::names::{PartitionNames, WIRE_VERSION};
use keylapse_wire::scripts::{self, Script};
use redis::{RedisResult, Value, aio::MultiplexedConnection, cmd};

use crate::source::Source;

/// A waiting timer and a claimed one, as they stand in Redis.
const RECORD: &str = "\x01arming-1\0\0\0\0\0\0\0\x01payload";
const STATE: &str = "\x01\x01token--1\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0";

struct Scene {
    at: PartitionNames,
    line: MultiplexedConnection,
    _server: Server,
}

impl Scene {
    /// An empty server.
    async fn new() -> Self {
        let server = Server::start().await;
        Self {
            at: PartitionNames::new("keylapse", "t", 0, 1, false),
            line: server.conn().await,
            _server: server,
        }
    }

    /// With `a` waiting and `b` running.
    async fn with_timers() -> Self {
        let mut scene = Self::new().await;
        let at = scene.at.clone();
        scene.say(&["HSET", at.key("meta"), "v", &WIRE_VERSION.to_string(), "partitions", "1"]).await;
        scene.say(&["ZADD", at.key("due"), "1", "a", "4e12", "b"]).await;
        scene.say(&["HSET", at.key("timers"), "a", RECORD, "b", RECORD]).await;
        scene.say(&["HSET", at.key("timer_states"), "b", STATE]).await;
        scene
    }

    fn name(&self, what: &str) -> String {
        format!("keylapse:{{{}/0}}:{what}", self.at.topic)
    }

    async fn say(&mut self, words: &[&str]) -> Value {
        cmd(words[0]).arg(&words[1..]).query_async(&mut self.line).await.expect("the server takes it")
    }

    async fn call(&mut self, script: &Script, version: u32, of: u32, words: &[&str]) -> RedisResult<Value> {
        let keys: Vec<_> = Source::all()[script.name]
            .numbered("KEYS")
            .into_values()
            .map(|name| format!("keylapse:{{t/0}}:{name}"))
            .collect();
        let mut call = cmd("EVAL");
        call.arg(&script.text).arg(keys.len()).arg(keys).arg(version).arg(of).arg(&self.at.wake).arg(words);
        call.query_async(&mut self.line).await
    }

    /// The code with which a script refuses a partition's call.
    async fn refusal(&mut self, script: &Script, version: u32, of: u32, words: &[&str]) -> String {
        let before = self.say(&["DEBUG", "DIGEST"]).await;
        let answer = self.call(script, version, of, words).await;
        assert_eq!(self.say(&["DEBUG", "DIGEST"]).await, before, "{} has written: {answer:?}", script.name);
        answer.expect_err("it is refused").code().unwrap_or_default().to_owned()
    }

    /// The same, as our version calls a topic of one partition.
    async fn refused(&mut self, script: &Script, words: &[&str]) -> String {
        self.refusal(script, WIRE_VERSION, 1, words).await
    }

    /// What a script answers that answers one text.
    async fn answered(&mut self, script: &Script, words: &[&str]) -> Vec<u8> {
        match self.call(script, WIRE_VERSION, 1, words).await {
            Ok(Value::BulkString(answer)) => answer,
            other => panic!("{} answers {other:?}", script.name),
        }
    }

    /// The same, where it writes nothing.
    async fn unchanged(&mut self, script: &Script, words: &[&str]) -> Vec<u8> {
        let before = self.say(&["DEBUG", "DIGEST"]).await;
        let answer = self.answered(script, words).await;
        assert_eq!(self.say(&["DEBUG", "DIGEST"]).await, before, "{} has written", script.name);
        answer
    }
}

fn partition_scripts() -> impl Iterator<Item = &'static Script> {
    let all = Source::all();
    scripts::all().filter(move |script| all[script.name].words("Parts").contains(&"prelude"))
}

#[tokio::test]
async fn a_partition_that_is_not_there_is_not_made_by_the_way() {
    let mut scene = Scene::new().await;
    for script in partition_scripts() {
        assert_eq!(scene.refused(script, &[]).await, "NOMETA", "{}", script.name);
    }
    assert_eq!(scene.say(&["DBSIZE"]).await, Value::Int(0));
}

#[tokio::test]
async fn callers_with_another_version_or_number_of_partitions_are_refused() {
    let mut scene = Scene::with_timers().await;
    for script in partition_scripts() {
        assert_eq!(scene.refusal(script, WIRE_VERSION - 1, 1, &[]).await, "WIREVERSION", "{}", script.name);
        assert_eq!(scene.refusal(script, WIRE_VERSION, 2, &[]).await, "PARTITIONS", "{}", script.name);
    }
}

/// What every partition script of wire version 1 began with, as it was released.
const PRELUDE_1: &str = "local meta = redis.call('HMGET', KEYS[1], 'v', 'p', 'paused', 'ms', 'n', 'kind')
if not meta[1] then return redis.error_reply('NOMETA ' .. KEYS[1] .. ' does not exist') end
if meta[1] ~= ARGV[1] then
  return redis.error_reply('WIREVERSION ' .. KEYS[1] .. ' says ' .. meta[1] .. ', the caller ' .. ARGV[1])
end
return redis.call('SET', KEYS[1], 'broken')";

#[tokio::test]
async fn scripts_of_wire_version_1_refuse_a_partition_of_ours() {
    let mut scene = Scene::with_timers().await;
    let meta = scene.at.key("meta").to_owned();
    let mut call = cmd("EVAL");
    call.arg(PRELUDE_1).arg(1).arg(&meta).arg(1).arg(1).arg(&scene.at.wake);
    let refused = call.query_async::<Value>(&mut scene.line).await.expect_err("another version");
    assert_eq!(refused.code(), Some("WIREVERSION"));
    assert_eq!(refused.detail(), Some(&*format!("{meta} says {WIRE_VERSION}, the caller 1")));
}

/// What is no time, or one that is too far away.
const NO_DEADLINES: [&str; 11] =
    ["", "x", "+", "+x", "nan", "+nan", "inf", "+inf", "8796093022208", "+8796093022208", "1e300"];
/// What is said of a timer whose deadline is refused, behind the code.
const NOTHING: [u8; 9] = [0; 9];

#[tokio::test]
async fn what_is_no_deadline_is_refused_and_changes_nothing() {
    let mut scene = Scene::with_timers().await;
    let head = &RECORD[..9];
    for when in NO_DEADLINES {
        let one = scene.unchanged(&scripts::ARM, &["r01", "c", when, head, "x"]).await;
        assert_eq!(one, [&[5][..], &NOTHING].concat(), "{when:?}");
        let both = scene.unchanged(&scripts::ARM, &["r01", "c", when, head, "x", "a", when, head, "x"]).await;
        assert_eq!(both, [&[5][..], &NOTHING, &[5], &NOTHING].concat(), "{when:?}");
        let moved = scene.unchanged(&scripts::RESCHEDULE, &["1", "a", when, "c", when]).await;
        assert_eq!(moved, [&[3][..], &NOTHING, &[0], &NOTHING].concat(), "{when:?}");
    }
}

#[tokio::test]
async fn a_deadline_is_refused_without_those_that_came_with_it() {
    for far in NO_DEADLINES.into_iter().filter(|when| !when.is_empty()) {
        let mut scene = Scene::with_timers().await;
        let (first, last) = ("\x01arming-2", "\x01arming-3");
        let words = ["r00", "c", "+60000", first, "x", "a", far, first, "x", "d", "+60000", last, "x"];
        let codes = |answer: Vec<u8>| answer.chunks(10).map(|one| one[0]).collect::<Vec<_>>();
        assert_eq!(codes(scene.answered(&scripts::ARM, &words).await), [0, 5, 0], "{far:?}");
        let rec = scene.at.key("timers").to_owned();
        let kept = scene.say(&["HGET", &rec, "a"]).await;
        assert_eq!(kept, Value::BulkString(RECORD.into()), "{far:?}");
        assert_eq!(scene.say(&["HEXISTS", &rec, "d"]).await, Value::Int(1), "{far:?}");
        let moves = ["0", "c", far, "d", "+90000", "b", "+1"];
        assert_eq!(codes(scene.answered(&scripts::RESCHEDULE, &moves).await), [3, 1, 2], "{far:?}");
    }
}

#[tokio::test]
async fn what_lacks_its_arguments_is_refused_with_all_that_came_with_it() {
    let mut scene = Scene::with_timers().await;
    let (id, head) = ("cancel-1", &RECORD[..9]);
    let short: [(&Script, &[&str]); 7] = [
        (&scripts::ARM, &["r00"]),
        (&scripts::ARM, &["r00", "c"]),
        (&scripts::ARM, &["r00", "c", "+1", head]),
        (&scripts::CANCEL, &["00"]),
        (&scripts::CANCEL, &["00", "a", id, "b"]),
        (&scripts::RESCHEDULE, &["0"]),
        (&scripts::RESCHEDULE, &["0", "a", "+1", "a2"]),
    ];
    for (script, words) in short {
        assert_eq!(scene.refused(script, words).await, "ERR", "{} with {words:?}", script.name);
    }
}

#[tokio::test]
async fn what_is_no_end_is_refused_with_all_that_came_with_it() {
    let mut scene = Scene::with_timers().await;
    let letters = ["10", "1000", "trim", "0"];
    let (good, bad) = (["release", "b", "token--1", "0", ""], ["vanish", "b", "token--1", "0", ""]);
    let ends = [&letters[..], &good, &bad].concat();
    assert_eq!(scene.refused(&scripts::SETTLE, &ends).await, "BADEND");
}

#[tokio::test]
async fn what_is_no_verdict_is_refused_with_all_that_came_with_it() {
    let mut scene = Scene::with_timers().await;
    let watch = "a watch that was looked at, ";
    let (watches, checks) = (scene.name("tracked"), scene.name("checks"));
    scene.say(&["HSET", &watches, "a", watch]).await;
    scene.say(&["ZADD", &checks, "1", "a"]).await;
    let good = ["forget", "a", watch, "7", "0", "7", "", "0"];
    let bad = ["perish", "a", watch, "7", "0", "7", "", "0"];
    let verdicts = [&["7", "0"][..], &good, &bad].concat();
    assert_eq!(scene.refused(&scripts::APPLY_CHECKS, &verdicts).await, "BADVERDICT");
}

/// Whoever knows nothing of kinds makes a managed topic, and changes no other.
#[tokio::test]
async fn the_kind_of_a_topic_is_settled_once() {
    let mut scene = Scene::new().await;
    let sent = [&["1", "1"][..], &["1", "1", "managed"], &["1", "1", "attached"]];
    for (first, kind) in [(0, "managed"), (1, "managed"), (2, "attached")] {
        scene.say(&["FLUSHALL"]).await;
        for words in [first, 0, 1, 2] {
            let call = [&["EVAL", &scripts::INIT.text, "1", "meta"], sent[words]].concat();
            let answer: Vec<String> = redis::from_redis_value(scene.say(&call).await).expect("three texts");
            assert_eq!(answer, ["1", "1", kind], "{words} after {first}");
        }
    }
}

#[tokio::test]
async fn no_timer_is_armed_where_others_write_the_keys() {
    let mut scene = Scene::with_timers().await;
    let meta = scene.at.key("meta").to_owned();
    scene.say(&["HSET", &meta, "kind", "attached"]).await;
    let arm = ["r00", "c", "1", &RECORD[..9], "x"];
    assert_eq!(scene.refused(&scripts::ARM, &arm).await, "ATTACHED");
}
