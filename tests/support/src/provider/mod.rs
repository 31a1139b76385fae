//! Imitates services that support a part of Redis, by a proxy before a real server. It has the refusals and limits that the
//! services document. docs/providers.md has the sources, and the limits of an imitation.
//!
//! [`table`] describes the services, [`front`] is the proxy, and [`guard`] limits scripts.

mod front;
mod guard;
mod table;

use bytes::Bytes;

pub(crate) use front::Front;

/// The refusals and limits of a service.
#[derive(Debug, PartialEq, Eq)]
pub struct Provider {
    /// The name in `KEYLAPSE_TEST_PROVIDER` and in docs/providers.md.
    pub name: &'static str,
    pub(crate) shape: Shape,
    /// The settings of the server behind the proxy.
    pub(crate) settings: &'static [(&'static str, &'static str)],
    /// The refused commands, and subcommands after the name of their command, separated by commas.
    refuses: &'static str,
    refusal: Refusal,
    /// The maximum number of words of a request.
    most_words: Option<usize>,
    scripts: Scripts,
}

/// The servers of a service, as clients see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One server.
    One,
    /// A cluster of one primary, which supports the commands of clusters.
    Cluster,
    /// One server that refuses a command with keys of two slots, because the slots may be on two shards.
    Shards,
}

/// The way in which a service refuses a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Replies with this error, in which `{}` stands for the command.
    Error(&'static str),
    /// Closes the connection.
    Close,
}

/// The permissions of scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scripts {
    /// All commands of a client, with any keys.
    Free,
    /// All commands of a client, with the keys that the call declares. A call without keys is refused.
    Declared,
    /// All commands of the server: the service routes a call by its first key, and does not check the commands of the
    /// script.
    Unseen,
}

/// The decision about a request.
enum Verdict {
    Passes,
    /// The server gets these words instead.
    Instead(Vec<Bytes>),
    Refused(String),
    Closes,
}

impl Provider {
    /// Returns all imitated services.
    pub fn all() -> &'static [Self] {
        table::ALL
    }

    /// Returns the service with this name.
    ///
    /// # Panics
    ///
    /// If no service has this name.
    pub fn named(name: &str) -> &'static Self {
        let names: Vec<_> = Self::all().iter().map(|one| one.name).collect();
        Self::all()
            .iter()
            .find(|one| one.name == name)
            .unwrap_or_else(|| panic!("unknown provider `{name}`: use one of {}", names.join(", ")))
    }

    fn judge(&self, words: &[Bytes], texts: &guard::Texts) -> Verdict {
        let word = |place: usize| {
            words.get(place).map_or(String::new(), |word| String::from_utf8_lossy(word).to_uppercase())
        };
        let (name, sub) = (word(0), word(1));
        let both = format!("{name} {sub}");
        if let Some(refused) = self.refused().find(|refused| *refused == name || *refused == both) {
            return self.refuse(refused);
        }
        if self.most_words.is_some_and(|most| words.len() > most) {
            return Verdict::Refused(format!("ERR {} arguments are too many for '{name}'", words.len()));
        }
        let calls_script = matches!(&*name, "EVAL" | "EVALSHA" | "EVAL_RO" | "EVALSHA_RO");
        if calls_script && self.scripts != Scripts::Free && word(2) == "0" {
            return match self.refusal {
                Refusal::Error(_) => {
                    Verdict::Refused("ERR Lua scripts without any input keys are not supported.".to_owned())
                }
                Refusal::Close => Verdict::Closes,
            };
        }
        match texts.guarded(self, &name, &sub, words) {
            Some(words) => Verdict::Instead(words),
            None => Verdict::Passes,
        }
    }

    fn refused(&self) -> impl Iterator<Item = &'static str> {
        self.refuses.split(", ")
    }

    fn refuse(&self, command: &str) -> Verdict {
        match self.refusal {
            Refusal::Error(text) => Verdict::Refused(text.replace("{}", command)),
            Refusal::Close => Verdict::Closes,
        }
    }
}
