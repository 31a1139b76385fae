//! A user and its selectors.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::rules::{Commands, KeyPermission};
use crate::commands::RedisCommand;
use crate::glob;
use crate::reply::ErrorReply;

/// The missing permission, from the first that is checked to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Denial {
    Command,
    Key,
    Channel,
}

/// A user: its passwords, and the permissions of its selectors.
#[derive(Clone, Debug, Default)]
pub(crate) struct User {
    on: bool,
    no_password: bool,
    passwords: BTreeSet<Bytes>,
    /// The permissions that are not in a selector.
    root: Selector,
    selectors: Vec<Selector>,
}

/// The allowed commands, keys and channels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    pub(super) commands: Commands,
    pub(super) keys: Vec<KeyPermission>,
    pub(super) channels: Vec<Bytes>,
}

impl User {
    pub(super) fn almighty() -> Self {
        let root = Selector {
            commands: Commands::all(),
            keys: vec![KeyPermission::all()],
            channels: vec![Bytes::from_static(b"*")],
        };
        Self { on: true, no_password: true, root, ..Self::default() }
    }

    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    pub(super) fn needs_no_password(&self) -> bool {
        self.no_password
    }

    pub(super) fn admits(&self, password: &[u8]) -> bool {
        self.on && (self.no_password || self.passwords.contains(password))
    }

    pub(super) fn apply(&mut self, rule: &str) -> Result<(), ErrorReply> {
        match rule.to_ascii_lowercase().as_str() {
            "on" => self.on = true,
            "off" => self.on = false,
            "nopass" => (self.no_password, self.passwords) = (true, BTreeSet::new()),
            "resetpass" => (self.no_password, self.passwords) = (false, BTreeSet::new()),
            "clearselectors" => self.selectors.clear(),
            "reset" => *self = Self::default(),
            "sanitize-payload" | "skip-sanitize-payload" => {}
            _ => self.apply_right(rule)?,
        }
        Ok(())
    }

    fn apply_right(&mut self, rule: &str) -> Result<(), ErrorReply> {
        if let Some(password) = rule.strip_prefix('>') {
            self.no_password = false;
            self.passwords.insert(Bytes::copy_from_slice(password.as_bytes()));
        } else if let Some(password) = rule.strip_prefix('<') {
            self.passwords.remove(password.as_bytes());
        } else if let Some(rules) = rule.strip_prefix('(').and_then(|rule| rule.strip_suffix(')')) {
            let mut selector = Selector::default();
            let applied = rules.split_whitespace().try_for_each(|rule| selector.apply(rule));
            applied.map_err(|refusal| {
                super::rules::refused(rule, refusal.0.rsplit(": ").next().unwrap_or_default())
            })?;
            self.selectors.push(selector);
        } else {
            self.root.apply(rule)?;
        }
        Ok(())
    }

    fn selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Checks a command. One selector must allow all of it. The error comes from the selector that allows most.
    pub(super) fn check(&self, command: &RedisCommand, args: &[Bytes]) -> Result<(), Denial> {
        let mut worst = Denial::Command;
        for selector in self.selectors() {
            match selector.check(command, args) {
                Ok(()) => return Ok(()),
                Err(denial) => worst = worst.max(denial),
            }
        }
        Err(worst)
    }

    pub(super) fn may_subscribe(&self, pattern: bool, name: &[u8]) -> bool {
        self.selectors().any(|selector| selector.allows_channel(pattern, name))
    }

    /// Returns the rules in the format of ACL LIST.
    pub(crate) fn rules(&self) -> String {
        let mut words = vec![if self.on { "on" } else { "off" }.to_owned()];
        words.extend(self.no_password.then(|| "nopass".to_owned()));
        words.extend(self.passwords.iter().map(|word| format!(">{}", String::from_utf8_lossy(word))));
        words.push(self.root.rules());
        words.extend(self.selectors.iter().map(|selector| format!("({})", selector.rules())));
        words.join(" ")
    }

    /// Returns the rules of commands, keys and channels outside selectors.
    pub(crate) fn rights(&self) -> [String; 3] {
        [self.root.commands.rules(), self.root.key_rules(), self.root.channel_rules()]
    }

    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.on { "on" } else { "off" }];
        flags.extend(self.no_password.then_some("nopass"));
        flags
    }
}

impl Selector {
    fn check(&self, command: &RedisCommand, args: &[Bytes]) -> Result<(), Denial> {
        if !self.commands.has(command) {
            return Err(Denial::Command);
        }
        let (reads, writes) = command.access();
        let every = self.keys.contains(&KeyPermission::all());
        if !every && !command.keys_of(args).all(|key| self.allows_key(key, reads, writes)) {
            return Err(Denial::Key);
        }
        match command.name {
            "publish" | "spublish" => self.all_channels(false, args.get(1..2)),
            "subscribe" | "ssubscribe" => self.all_channels(false, args.get(1..)),
            "psubscribe" => self.all_channels(true, args.get(1..)),
            _ => Ok(()),
        }
    }

    fn all_channels(&self, pattern: bool, names: Option<&[Bytes]>) -> Result<(), Denial> {
        let allowed = names.unwrap_or_default().iter().all(|name| self.allows_channel(pattern, name));
        if allowed { Ok(()) } else { Err(Denial::Channel) }
    }

    fn allows_key(&self, key: &[u8], reads: bool, writes: bool) -> bool {
        let enough = |keys: &&KeyPermission| (keys.read || !reads) && (keys.write || !writes);
        self.keys.iter().filter(enough).any(|keys| glob::matches(&keys.pattern, key))
    }

    /// Returns whether a channel is allowed. A pattern must be equal to a rule.
    fn allows_channel(&self, pattern: bool, name: &[u8]) -> bool {
        self.channels.iter().any(|allowed| {
            &allowed[..] == b"*" || if pattern { &allowed[..] == name } else { glob::matches(allowed, name) }
        })
    }

    fn rules(&self) -> String {
        let words = [self.key_rules(), self.channel_rules(), self.commands.rules()];
        words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn key_rules(&self) -> String {
        self.keys.iter().map(KeyPermission::rule).collect::<Vec<_>>().join(" ")
    }

    fn channel_rules(&self) -> String {
        let rules: Vec<_> =
            self.channels.iter().map(|name| format!("&{}", String::from_utf8_lossy(name))).collect();
        if rules.is_empty() { "resetchannels".to_owned() } else { rules.join(" ") }
    }
}
