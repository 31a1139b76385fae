//! Random histories of plain commands, also from within scripts.

use super::pair::{cases, with_each_alike};
use super::random::Random;
use super::vocabulary::{COMMANDS, command};

const STEPS: usize = 400;

#[tokio::test]
async fn plain_commands_are_answered_alike() {
    with_each_alike(async |pair| {
        for seed in cases(12) {
            pair.clear().await;
            let mut random = Random::new(seed);
            for _ in 0..STEPS {
                let form = random.one(COMMANDS);
                let words = command(&mut random, form);
                pair.same_or_note(&words).await;
            }
            for line in ["DISCARD", "SELECT 0"] {
                pair.same(&line.split(' ').collect::<Vec<_>>()).await;
            }
        }
        pair.finish();
    })
    .await;
}

/// Flattens whatever comes, with the types that a script sees.
const REPORT: &str = "local function show(v) local t = type(v) if t ~= 'table' then return t .. ':' .. tostring(v) end \
     if v.err then return 'err:' .. v.err end if v.ok then return 'ok:' .. v.ok end \
     local o = {} for i, x in ipairs(v) do o[i] = show(x) end \
     if ARGV[1] == 'sorted' then table.sort(o) end return '{' .. table.concat(o, ',') .. '}' end \
     local args = {} for i = 2, #ARGV do args[#args + 1] = ARGV[i] end ";

#[tokio::test]
async fn commands_are_answered_alike_within_scripts() {
    with_each_alike(async |pair| {
        for seed in cases(8) {
            pair.clear().await;
            let mut random = Random::new(seed);
            for _ in 0..STEPS {
                let form = random.one(COMMANDS);
                if ["MULTI", "SCRIPT", "CONFIG"].iter().any(|word| form.starts_with(word))
                    && random.below(4) > 0
                {
                    continue;
                }
                let words = command(&mut random, form);
                let sorted = ["KEYS", "SCAN", "HSCAN", "ZSCAN", "HGETALL", "HKEYS", "HVALS", "SMEMBERS"];
                let order = if sorted.iter().any(|name| form.starts_with(name)) { "sorted" } else { "" };
                let how = random.one(&["pcall", "call"]);
                let head = random.one(&["", "#!lua\n", "#!lua flags=allow-oom\n", "#!lua flags=no-writes\n"]);
                let text = format!("{head}{REPORT} return show(redis.{how}(unpack(args)))");
                let mut call = vec![b"EVAL".to_vec(), text.into_bytes(), b"0".to_vec(), order.into()];
                call.extend(words);
                pair.same_or_note(&call).await;
            }
        }
        pair.finish();
    })
    .await;
}
