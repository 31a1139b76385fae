//! Services that offer a part of Redis, imitated from their documentation: what each refuses and limits, before a real
//! server. docs/providers.md names the pages that this was read from, and says how far an imitation goes.
//!
//! A service is a few lines of [`table`]. [`front`] is the proxy that they are for, and [`guard`] holds scripts to them.

mod front;
mod guard;
mod table;

use bytes::Bytes;

pub(crate) use front::Front;

/// The refusals and limits of a service.
#[derive(Debug, PartialEq, Eq)]
pub struct Provider {
    /// Its name in `KEYLAPSE_TEST_PROVIDER` and in docs/providers.md.
    pub name: &'static str,
    pub(crate) shape: Shape,
    /// Settings of the server behind it.
    pub(crate) settings: &'static [(&'static str, &'static str)],
    /// Commands, or subcommands behind the name of their command, that it does not have; commas divide them.
    refuses: &'static str,
    refusal: Refusal,
    /// Words that a request has at most.
    most_words: Option<usize>,
    scripts: Scripts,
}

/// How clients see its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One server.
    One,
    /// A cluster of one primary, by the commands of clusters.
    Cluster,
    /// One server that knows slots: keys of two are refused to one command, as they may lie on two shards.
    Shards,
}

/// How it refuses a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// By an error, in which `{}` stands for the command.
    Error(&'static str),
    /// By closing the connection.
    Close,
}

/// Rights of scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scripts {
    /// All that a client may, with any keys.
    Free,
    /// The same with the keys that the call names; it names some.
    Declared,
    /// A proxy takes the call to the server of its first key, and does not see what runs there.
    Unseen,
}

/// The fate of a request.
enum Verdict {
    Passes,
    /// The server gets these words instead.
    Instead(Vec<Bytes>),
    Refused(String),
    Closes,
}

impl Provider {
    /// All that are imitated.
    pub fn all() -> &'static [Self] {
        table::ALL
    }

    /// The one of this name.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn named(name: &str) -> &'static Self {
        let names: Vec<_> = Self::all().iter().map(|one| one.name).collect();
        Self::all()
            .iter()
            .find(|one| one.name == name)
            .unwrap_or_else(|| panic!("no provider is called `{name}`; there are {}", names.join(", ")))
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
