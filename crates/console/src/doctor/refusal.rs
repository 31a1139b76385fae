//! What a server has refused.

/// What a right is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Everything.
    Timers,
    /// To hear expired keys.
    Events,
    /// To tell listeners of new timers, and to hear of them.
    WakeUps,
    /// Keys of other programs.
    Attached,
    /// To hand on what is due, to lists and streams.
    Forwarding,
    /// To look at settings.
    Looks,
}

/// A server's no.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) need: Need,
    /// What the no is about: a command, a key or a channel.
    about: About,
    /// The rules that grant it.
    pub(super) rules: String,
    pub(super) said: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Command,
    Key,
    Channel,
}

impl Refusal {
    pub(super) fn new(need: Need, rules: &str, said: &str) -> Self {
        Self { need, about: About::of(said), rules: rules.to_owned(), said: said.to_owned() }
    }

    pub(super) fn is_of_keys(&self) -> bool {
        self.about == About::Key
    }
}

impl About {
    /// Servers have no codes for it: "no permissions to run the 'get' command", "… to access one of the keys used as
    /// arguments", "… to access the 'a' channel".
    fn of(said: &str) -> Self {
        match (said.contains("to run"), said.contains(" channel")) {
            (true, _) => Self::Command,
            (false, true) => Self::Channel,
            (false, false) if said.contains(" key") => Self::Key,
            (false, false) => Self::Command,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Redis 7.0 and 8.2, and Valkey 9.1 say it, to a command and to ACL DRYRUN.
    #[test]
    fn refusals_are_told_apart() {
        for (said, about) in [
            ("NOPERM this user has no permissions to run the 'hkeys' command", About::Command),
            ("User keylapse has no permissions to run the 'script|load' command", About::Command),
            ("NOPERM this user has no permissions to access one of the keys used as arguments", About::Key),
            ("NOPERM No permissions to access a key", About::Key),
            ("User u has no permissions to access the 'k' key", About::Key),
            (
                "NOPERM this user has no permissions to access one of the channels used as arguments",
                About::Channel,
            ),
            ("NOPERM No permissions to access a channel", About::Channel),
        ] {
            assert_eq!(About::of(said), about, "{said}");
        }
    }
}
