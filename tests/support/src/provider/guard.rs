//! Limits scripts to the commands that a service allows. The server runs each script with a prefix, which checks the calls
//! of the script.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;

use super::{Provider, Refusal, Scripts};

/// Maps the hash of each script to the hash of its guarded text on the server.
#[derive(Debug, Default)]
pub(super) struct Texts(Mutex<HashMap<String, String>>);

/// A hash of no script. It replaces the hash of a script that was not loaded through this proxy.
const UNKNOWN_HASH: &str = "0000000000000000000000000000000000000000";

impl Texts {
    /// Returns the request with the guarded script, if it loads or runs a script.
    pub(super) fn guarded(
        &self,
        provider: &Provider,
        name: &str,
        sub: &str,
        words: &[Bytes],
    ) -> Option<Vec<Bytes>> {
        let (place, new) = match name {
            "EVAL" | "EVAL_RO" => (1, self.note(provider, &words.get(1)?.clone())),
            "SCRIPT" if sub == "LOAD" => (2, self.note(provider, &words.get(2)?.clone())),
            "EVALSHA" | "EVALSHA_RO" => (1, self.hash_of(&String::from_utf8_lossy(words.get(1)?))),
            _ => return None,
        };
        let mut words = words.to_vec();
        words[place] = new.into();
        Some(words)
    }

    fn note(&self, provider: &Provider, text: &[u8]) -> String {
        let text = String::from_utf8_lossy(text);
        let guarded = guarded(provider, &text);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(hash(&text), hash(&guarded));
        guarded
    }

    fn hash_of(&self, asked: &str) -> String {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&asked.to_lowercase()).map_or(UNKNOWN_HASH, String::as_str).to_owned()
    }
}

fn hash(text: &str) -> String {
    redis::Script::new(text).get_hash().to_owned()
}

/// Inserts the guard into the first line after the shebang, so that errors have the right line numbers.
fn guarded(provider: &Provider, text: &str) -> String {
    let guard = guard(provider);
    match text.split_once('\n') {
        Some((shebang, rest)) if text.starts_with("#!") => format!("{shebang}\n{guard} {rest}"),
        _ => format!("{guard} {text}"),
    }
}

/// The first argument of each command that keylapse's scripts call is its key, except in the keyless commands.
const GUARD: &str = r"local redis = (function(real)
local refused, keyless, free = {REFUSED}, {TIME = true, PUBLISH = true, SPUBLISH = true}, FREE
local declared = {}
for _, key in ipairs(KEYS) do declared[key] = true end
local function fault(name, key)
  name = string.upper(name)
  if refused[name] then return refused[name] end
  if free or keyless[name] or declared[key] then return nil end
  return 'ERR Script attempted to access an undeclared key'
end
local guarded = {}
function guarded.call(name, ...)
  local why = fault(name, (...))
  if why then error(real.error_reply(why)) end
  return real.call(name, ...)
end
function guarded.pcall(name, ...)
  local why = fault(name, (...))
  if why then return real.error_reply(why) end
  return real.pcall(name, ...)
end
return setmetatable(guarded, {__index = real})
end)(redis)";

fn guard(provider: &Provider) -> String {
    let text = match (provider.scripts, provider.refusal) {
        (Scripts::Unseen, _) | (_, Refusal::Close) => return String::new(),
        (_, Refusal::Error(text)) => text,
    };
    let refused: Vec<_> = provider
        .refused()
        .filter(|name| !name.contains(' '))
        .map(|name| format!("['{name}'] = \"{}\"", text.replace("{}", name)))
        .collect();
    GUARD
        .replace("REFUSED", &refused.join(", "))
        .replace("FREE", if provider.scripts == Scripts::Free { "true" } else { "false" })
        .replace('\n', " ")
}
