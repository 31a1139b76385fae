//! The settings of CONFIG GET and CONFIG SET.

use crate::events::EventFlags;
use crate::reply::ErrorReply;

/// The settings that have an effect, and others that are only stored.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) events: EventFlags,
    pub(crate) max_memory: u64,
    inert: Vec<(&'static str, String)>,
}

/// Settings without effect, with the values of a server without persistence.
const INERT_SETTINGS: [(&str, &str); 12] = [
    ("maxmemory-policy", "noeviction"),
    ("appendonly", "no"),
    ("appendfsync", "everysec"),
    ("save", ""),
    ("databases", "16"),
    ("hz", "10"),
    ("active-expire-effort", "1"),
    ("timeout", "0"),
    ("tcp-keepalive", "300"),
    ("maxclients", "10000"),
    ("min-replicas-to-write", "0"),
    ("client-output-buffer-limit", "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"),
];

const POLICIES: [&str; 8] = [
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
];

impl Default for Config {
    fn default() -> Self {
        let inert = INERT_SETTINGS.map(|(name, value)| (name, value.to_owned())).into();
        Self { events: EventFlags::default(), max_memory: 0, inert }
    }
}

impl Config {
    pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
        let mut all =
            vec![("notify-keyspace-events", self.events.print()), ("maxmemory", self.max_memory.to_string())];
        all.extend(self.inert.iter().cloned());
        all
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.all().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), ErrorReply> {
        match name.to_ascii_lowercase().as_str() {
            "notify-keyspace-events" => {
                let why = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
                self.events = EventFlags::parse(value).ok_or_else(|| failed(name, why))?;
            }
            "maxmemory" => {
                let bytes = memory(value).ok_or_else(|| failed(name, "argument must be a memory value"))?;
                self.max_memory = bytes;
            }
            "maxmemory-policy" if !POLICIES.contains(&value) => {
                let names = POLICIES.join(", ");
                return Err(failed(name, &format!("argument(s) must be one of the following: {names}")));
            }
            lower => {
                let unknown =
                    || format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
                let setting = self.inert.iter_mut().find(|(known, _)| *known == lower);
                setting.ok_or_else(unknown)?.1 = value.to_owned();
            }
        }
        Ok(())
    }
}

pub(crate) fn failed(name: &str, why: &str) -> ErrorReply {
    format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}").into()
}

/// Parses a number of bytes: `100mb`, `1g`, `42`.
fn memory(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1024,
        "m" => 1_000_000,
        "mb" => 1024 * 1024,
        "g" => 1_000_000_000,
        "gb" => 1024 * 1024 * 1024,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_as_the_server_does() {
        let mut config = Config::default();
        assert_eq!(config.set("maxmemory", "100mb"), Ok(()));
        assert_eq!(config.get("maxmemory").as_deref(), Some("104857600"));
        assert_eq!(config.set("NOTIFY-keyspace-events", "Ex"), Ok(()));
        assert_eq!(config.get("notify-keyspace-events").as_deref(), Some("xE"));
        for (name, value) in
            [("maxmemory", "x"), ("maxmemory-policy", "x"), ("nope", "1"), ("notify-keyspace-events", "q")]
        {
            assert!(config.set(name, value).is_err(), "{name}");
        }
    }
}
