//! A call that is refused has written nothing.

use keylapse::internals::names::{PartitionNames, WIRE_VERSION};
use keylapse::internals::scripts::{self, Script};
use keylapse_support::Server;
use redis::{RedisResult, Value, aio::MultiplexedConnection, cmd};

use super::source::Source;

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
        scene.say(&["HSET", at.key("meta"), "v", &WIRE_VERSION.to_string(), "p", "1"]).await;
        scene.say(&["ZADD", at.key("due"), "1", "a", "4e12", "b"]).await;
        scene.say(&["HSET", at.key("rec"), "a", RECORD, "b", RECORD]).await;
        scene.say(&["HSET", at.key("run"), "b", STATE]).await;
        scene
    }

    fn name(&self, what: &str) -> String {
        format!("keylapse:{{{}/0}}:{what}", self.at.topic)
    }

    async fn say(&mut self, words: &[&str]) -> Value {
        cmd(words[0]).arg(&words[1..]).query_async(&mut self.line).await.expect("the server takes it")
    }

    /// The code with which a script refuses a partition's call.
    async fn refusal(&mut self, script: &Script, version: u32, of: u32, words: &[&str]) -> String {
        let before = self.say(&["DEBUG", "DIGEST"]).await;
        let keys: Vec<_> = Source::all()[script.name]
            .numbered("KEYS")
            .into_values()
            .map(|name| format!("keylapse:{{t/0}}:{name}"))
            .collect();
        let mut call = cmd("EVAL");
        call.arg(&script.text).arg(keys.len()).arg(keys).arg(version).arg(of).arg(&self.at.wake).arg(words);
        let answer: RedisResult<Value> = call.query_async(&mut self.line).await;
        assert_eq!(self.say(&["DEBUG", "DIGEST"]).await, before, "{} has written: {answer:?}", script.name);
        answer.expect_err("it is refused").code().unwrap_or_default().to_owned()
    }

    /// The same, as our version calls a topic of one partition.
    async fn refused(&mut self, script: &Script, words: &[&str]) -> String {
        self.refusal(script, WIRE_VERSION, 1, words).await
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
    assert_eq!(refused.detail(), Some(&*format!("{meta} says 3, the caller 1")));
}

#[tokio::test]
async fn what_is_no_deadline_is_refused() {
    let mut scene = Scene::with_timers().await;
    for when in ["", "x", "+", "+x", "nan", "+nan", "inf", "+inf", "8796093022208", "+8796093022208", "1e300"]
    {
        let head = &RECORD[..9];
        let arm = ["replace", "0", "", "c", "1", head, "x", "a", when, head, "x"];
        assert_eq!(scene.refused(&scripts::ARM, &arm).await, "BADDEADLINE", "{when:?}");
        assert_eq!(scene.refused(&scripts::RESCHEDULE, &["a", when]).await, "BADDEADLINE", "{when:?}");
    }
}

#[tokio::test]
async fn what_is_no_end_is_refused_with_all_that_came_with_it() {
    let mut scene = Scene::with_timers().await;
    let letters = ["10", "1000", "trim"];
    let (good, bad) = (["release", "b", "token--1", "0", ""], ["vanish", "b", "token--1", "0", ""]);
    let ends = [&letters[..], &good, &bad].concat();
    assert_eq!(scene.refused(&scripts::SETTLE, &ends).await, "BADEND");
}

#[tokio::test]
async fn what_is_no_verdict_is_refused_with_all_that_came_with_it() {
    let mut scene = Scene::with_timers().await;
    let watch = "a watch that was looked at, ";
    let (watches, checks) = (scene.name("watch"), scene.name("checks"));
    scene.say(&["HSET", &watches, "a", watch]).await;
    scene.say(&["ZADD", &checks, "1", "a"]).await;
    let good = ["forget", "a", watch, "7", "0", "7", "", "0"];
    let bad = ["perish", "a", watch, "7", "0", "7", "", "0"];
    let verdicts = [&["7", "0"][..], &good, &bad].concat();
    assert_eq!(scene.refused(&scripts::JUDGE, &verdicts).await, "BADVERDICT");
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
    let arm = ["replace", "0", "", "c", "1", &RECORD[..9], "x"];
    assert_eq!(scene.refused(&scripts::ARM, &arm).await, "ATTACHED");
}
