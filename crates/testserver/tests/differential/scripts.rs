//! keylapse's own scripts, on histories in which they meet each other's work.

mod arguments;
mod source;

use std::collections::BTreeSet;

use super::pair::{Pair, cases, with_each};
use super::random::Random;
use arguments::{World, arguments};
use source::Script;

const STEPS: usize = 250;

#[tokio::test]
async fn every_script_is_answered_alike() {
    let Some(scripts) = source::all() else {
        println!("skipped: the scripts of keylapse are not beside this crate");
        return;
    };
    with_each(async |pair| {
        for seed in cases(10) {
            pair.clear().await;
            history(pair, &scripts, &mut Random::new(seed)).await;
            pair.finish();
        }
    })
    .await;
}

async fn history(pair: &mut Pair, scripts: &[Script], random: &mut Random) {
    let mut world = World::new();
    for script in scripts {
        pair.same(&["SCRIPT", "LOAD", &script.text]).await;
    }
    for step in 0..STEPS {
        world.pass(random);
        pair.same(&["SET", "clock", &world.now_micros.to_string()]).await;
        meddle(pair, random).await;
        world.heads = heads(pair).await;
        let script = random.one(scripts);
        let mut args = arguments(&script.name, &world, random);
        if random.once_in(25) && !args.is_empty() {
            let at = random.below(args.len());
            args[at] = random.text(30);
        }
        if random.once_in(60) {
            args.pop();
        }
        let keys = script.keys(&world, random);
        let sha = redis::Script::new(&script.text).get_hash().to_owned();
        let mut call = vec![b"EVALSHA".to_vec(), sha.into_bytes(), keys.len().to_string().into_bytes()];
        call.extend(keys);
        call.extend(args);
        match &*script.name {
            "list_reports" => pair.same_in_any_order_or_note(&call).await,
            _ => pair.same_or_note(&call).await,
        }
        if step % 10 == 9 {
            compare(pair, scripts).await;
        }
    }
}

/// What others do: another type where a script expects its own, a full server, a wrong record.
async fn meddle(pair: &mut Pair, random: &mut Random) {
    let line = match random.below(120) {
        0 => "SET k:{a/0}:timer_states wrong",
        1 => "DEL k:{a/0}:timer_states k:{a/0}:meta",
        2 => "LPUSH k:{a/0}:tombstones wrong",
        3 => "DEL k:{a/0}:tombstones",
        4 => "HSET k:{a/0}:timers key1 short",
        5 => "HSET k:{a/0}:timer_states key2 s",
        6 => "ZADD k:{a/0}:due 1 orphan",
        7 => "HDEL k:{a/0}:timers key1",
        8 | 9 => "CONFIG SET maxmemory 1",
        10..=30 => "CONFIG SET maxmemory 0",
        31 => "HSET k:{a/0}:queued key1 L",
        32 => "DEL k:{a/0}:quarantine k:{a/0}:due",
        33 => "SET app:1 value PXAT 4102444800000",
        34 => "HSET app:2 f v",
        35 => "PEXPIREAT app:2 4102444800000",
        36 => "DEL app:1 app:2",
        37 => "FLUSHALL",
        _ => return,
    };
    pair.same(&line.split(' ').collect::<Vec<_>>()).await;
}

/// What a judge has looked at.
async fn heads(pair: &mut Pair) -> Vec<(Vec<u8>, Vec<u8>)> {
    let redis::Value::Map(pairs) = pair.same(&["HGETALL", "k:{a/0}:tracked"]).await else {
        return Vec::new();
    };
    let bytes = |value| redis::from_redis_value::<Vec<u8>>(value).unwrap_or_default();
    let heads = pairs.into_iter().map(|(key, value)| (bytes(key), bytes(value)));
    heads.map(|(key, value)| (key, value[..value.len().min(28)].to_vec())).collect()
}

/// All that there is: of each name one of the two is refused.
async fn compare(pair: &mut Pair, scripts: &[Script]) {
    pair.same(&["KEYS", "*"]).await;
    let names: BTreeSet<_> = scripts.iter().flat_map(|script| &script.key_names).collect();
    for name in names {
        pair.same(&["HGETALL", &format!("k:{{a/0}}:{name}")]).await;
        pair.same(&["ZRANGE", &format!("k:{{a/0}}:{name}"), "0", "-1", "WITHSCORES"]).await;
    }
}
