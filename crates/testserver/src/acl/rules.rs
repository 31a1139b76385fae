//! The rules of ACL SETUSER.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;

use super::user::Selector;
use crate::commands::{self, CommandCategory, CommandFlags, RedisCommand};
use crate::reply::ErrorReply;

/// The permission to read or write keys that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyPermission {
    pub(super) pattern: Bytes,
    pub(super) read: bool,
    pub(super) write: bool,
}

impl KeyPermission {
    pub(super) fn all() -> Self {
        Self { pattern: Bytes::from_static(b"*"), read: true, write: true }
    }

    pub(super) fn rule(&self) -> String {
        let pattern = String::from_utf8_lossy(&self.pattern);
        match (self.read, self.write) {
            (true, true) => format!("~{pattern}"),
            (true, false) => format!("%R~{pattern}"),
            _ => format!("%W~{pattern}"),
        }
    }
}

/// The allowed commands, and the rules that allow them.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    allowed: Arc<BTreeSet<&'static str>>,
    rules: Vec<String>,
}

/// All commands, shared by users with `+@all`.
static ALL: LazyLock<Arc<BTreeSet<&'static str>>> =
    LazyLock::new(|| Arc::new(commands::all().map(|command| command.name).collect()));

impl Default for Commands {
    fn default() -> Self {
        Self { allowed: Arc::default(), rules: vec!["-@all".to_owned()] }
    }
}

impl Commands {
    pub(super) fn all() -> Self {
        Self { allowed: ALL.clone(), rules: vec!["+@all".to_owned()] }
    }

    pub(super) fn has(&self, command: &RedisCommand) -> bool {
        Arc::ptr_eq(&self.allowed, &ALL) || self.allowed.contains(command.name)
    }

    pub(super) fn rules(&self) -> String {
        self.rules.join(" ")
    }

    /// Applies `+get`, `+config|get` or `-@dangerous`. Returns `None` if the name is unknown.
    fn change(&mut self, rule: &str) -> Option<()> {
        let (allow, name) = (rule.starts_with('+'), rule.get(1..)?.to_ascii_lowercase());
        if name == "@all" {
            *self = if allow { Self::all() } else { Self::default() };
            return Some(());
        }
        let (names, allowed) = (named(&name)?, Arc::make_mut(&mut self.allowed));
        for name in names {
            if allow {
                allowed.insert(name);
            } else {
                allowed.remove(name);
            }
        }
        let rule = rule.to_ascii_lowercase();
        self.rules.retain(|known| known.get(1..) != rule.get(1..));
        self.rules.push(rule);
        Some(())
    }
}

/// Returns the commands of a category, or a command with its subcommands. Returns `None` if the name is unknown.
fn named(name: &str) -> Option<Vec<&'static str>> {
    let inside =
        |known: &str| known.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'));
    let names: Vec<_> = match name.strip_prefix('@') {
        Some(category) => of_category(category)?,
        None => commands::all().map(|command| command.name).filter(|known| inside(known)).collect(),
    };
    // Rules may name commands of real servers that this one does not have.
    let plausible = name.starts_with('@')
        || name.chars().all(|letter| letter.is_ascii_lowercase() || "|-_".contains(letter));
    (plausible && (!names.is_empty() || name.starts_with('@') || UNIMPLEMENTED_COMMANDS.contains(&name)))
        .then_some(names)
}

/// Commands that rules may name, although this server does not have them.
const UNIMPLEMENTED_COMMANDS: [&str; 12] = [
    "hincrbyfloat",
    "incrbyfloat",
    "setrange",
    "zpopmax",
    "blpop",
    "brpop",
    "xread",
    "xrange",
    "move",
    "sunion",
    "sinter",
    "debug",
];

fn of_category(category: &str) -> Option<Vec<&'static str>> {
    let group = CommandCategory::named(category);
    let flag = match category {
        "read" => Some(CommandFlags::READ),
        "write" => Some(CommandFlags::WRITE),
        "dangerous" => Some(CommandFlags::DANGEROUS),
        "fast" | "slow" | "blocking" | "bitmap" | "hyperloglog" | "geo" => return Some(Vec::new()),
        _ => None,
    };
    if group.is_none() && flag.is_none() {
        return None;
    }
    let inside = |command: &&RedisCommand| {
        Some(command.group) == group || flag.is_some_and(|flag| command.flags.has(flag))
    };
    Some(commands::all().filter(inside).map(|command| command.name).collect())
}

impl Selector {
    pub(super) fn apply(&mut self, rule: &str) -> Result<(), ErrorReply> {
        let unknown = |why: &str| refused(rule, why);
        match rule.to_ascii_lowercase().as_str() {
            "allkeys" => self.keys = vec![KeyPermission::all()],
            "resetkeys" => self.keys.clear(),
            "allchannels" => self.channels = vec![Bytes::from_static(b"*")],
            "resetchannels" => self.channels.clear(),
            "allcommands" => self.commands = Commands::all(),
            "nocommands" => self.commands = Commands::default(),
            lower if lower.starts_with(['+', '-']) => {
                let why = "Unknown command or category name in ACL";
                self.commands.change(lower).ok_or_else(|| unknown(why))?;
            }
            _ => self.apply_pattern(rule).ok_or_else(|| unknown("Syntax error"))?,
        }
        Ok(())
    }

    fn apply_pattern(&mut self, rule: &str) -> Option<()> {
        if let Some(channel) = rule.strip_prefix('&') {
            let channel = Bytes::copy_from_slice(channel.as_bytes());
            if !self.channels.contains(&channel) {
                self.channels.push(channel);
            }
            return Some(());
        }
        let (rights, pattern) = rule.split_once('~')?;
        let (read, write) = match rights.to_ascii_uppercase().as_str() {
            "" | "%RW" | "%WR" => (true, true),
            "%R" => (true, false),
            "%W" => (false, true),
            _ => return None,
        };
        let keys = KeyPermission { pattern: Bytes::copy_from_slice(pattern.as_bytes()), read, write };
        if !self.keys.contains(&keys) {
            self.keys.push(keys);
        }
        Some(())
    }
}

pub(super) fn refused(rule: &str, why: &str) -> ErrorReply {
    format!("ERR Error in ACL SETUSER modifier '{rule}': {why}").into()
}

/// Joins the words of selectors in parentheses.
pub(super) fn joined(words: &[Bytes]) -> Result<Vec<String>, ErrorReply> {
    let mut rules: Vec<String> = Vec::new();
    let mut open = false;
    for word in words {
        let word = String::from_utf8_lossy(word);
        match rules.last_mut().filter(|_| open) {
            Some(last) => {
                last.push(' ');
                last.push_str(&word);
            }
            None => rules.push(word.into_owned()),
        }
        open = rules.last().is_some_and(|rule| rule.starts_with('(') && !rule.ends_with(')'));
    }
    if let Some(rule) = rules.last().filter(|_| open) {
        return Err(format!("ERR Unmatched parenthesis in acl selector starting at '{rule}'.").into());
    }
    Ok(rules)
}
