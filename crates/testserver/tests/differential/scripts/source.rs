//! The scripts, put together from their files by what their headers say.

use std::fs;
use std::path::{Path, PathBuf};

use super::arguments::World;
use crate::differential::random::Random;

pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) key_names: Vec<String>,
    parts: Vec<String>,
}

const PARTS_GO_HERE: &str = "-- Parts are inserted here.\n";

/// In place of TIME, for both servers: µs since 1970 from a key.
const CLOCK: &str = "(function() local t = tonumber(redis.call('GET', 'clock')) \
     return { math.floor(t / 1e6), t % 1e6 } end)()";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/src/scripts")
}

fn read(name: &str) -> Option<String> {
    fs::read_to_string(folder().join(format!("{name}.lua"))).ok()
}

/// Every script that is not a part of others; nothing where there are none.
pub(crate) fn all() -> Option<Vec<Script>> {
    let files = fs::read_dir(folder()).ok()?;
    let names = files.filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()));
    let mut scripts: Vec<Script> = names.filter_map(Script::read).collect();
    scripts.sort_by(|one, other| one.name.cmp(&other.name));
    let parts: Vec<String> = scripts.iter().flat_map(|script| script.parts.clone()).collect();
    scripts.retain(|script| !parts.contains(&script.name));
    Some(scripts)
}

impl Script {
    fn read(name: String) -> Option<Self> {
        let body = read(&name)?;
        let flags = header(&body, "Flags").join(",");
        let mut text = if flags.is_empty() { "#!lua\n".to_owned() } else { format!("#!lua flags={flags}\n") };
        let parts = header(&body, "Parts");
        // A line of the body may say where they stand, all but the prelude.
        let (ahead, behind) = body.split_once(PARTS_GO_HERE).map_or(("", &*body), |both| both);
        let stands_ahead = |part: &&String| !body.contains(PARTS_GO_HERE) || *part == "prelude";
        for part in parts.iter().filter(stands_ahead) {
            text.push_str(&read(part)?);
        }
        text.push_str(ahead);
        for part in parts.iter().filter(|part| !stands_ahead(part)) {
            text.push_str(&read(part)?);
        }
        text.push_str(behind);
        Some(Self {
            name,
            text: text.replace("redis.call('TIME')", CLOCK),
            key_names: key_names(&body),
            parts,
        })
    }

    /// The keys that it is called with: now and then one too few.
    pub(crate) fn keys(&self, world: &World, random: &mut Random) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = match self.name.as_str() {
            "canary" => vec![b"k:canary".to_vec()],
            "peek" => ["due", "quarantine"].map(|name| format!("k:{{a/0}}:{name}").into_bytes()).into(),
            "read_keys" | "set_marker" => world.app_keys(),
            "forward" => {
                let into = *random.one(&["jobs", "events", "app:1"]);
                [into.to_owned(), format!("k:{{{into}}}:forwarded:{}", random.below(3))]
                    .map(String::into_bytes)
                    .into()
            }
            "delete_marker" | "write_back" => vec![random.one(&world.app_keys()).clone()],
            _ => self.key_names.iter().map(|name| format!("k:{{a/0}}:{name}").into_bytes()).collect(),
        };
        if random.once_in(80) {
            keys.pop();
        }
        keys
    }
}

/// The words of a header line, without what is in parentheses.
fn header(body: &str, field: &str) -> Vec<String> {
    let line = body.lines().find_map(|line| line.strip_prefix("-- ")?.strip_prefix(field)?.strip_prefix(':'));
    let words = line.unwrap_or_default().split(',').map(str::trim);
    words.filter(|word| !word.is_empty() && !word.starts_with('(')).map(str::to_owned).collect()
}

/// `KEYS 1 meta, 2 due, …`, over several lines.
fn key_names(body: &str) -> Vec<String> {
    let from = body.find("-- KEYS ").map_or("", |at| &body[at + 8..]);
    let lines = from.lines().enumerate();
    let lines = lines.take_while(|(at, line)| *at == 0 || line.starts_with("--   "));
    let all: Vec<&str> = lines.map(|(_, line)| line.trim_start_matches("--").trim()).collect();
    let names = all.join(" ");
    names.split(',').filter_map(|entry| entry.split_whitespace().nth(1)).map(str::to_owned).collect()
}
