//! What was refused, and what follows from it.

use super::super::super::case::Case;
use super::super::super::codes::{self, Code};

/// What a right is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::console::doctor) enum Need {
    /// Everything.
    Timers,
    /// To hear expired keys.
    Events,
    /// To tell listeners of new timers, and to hear of them.
    WakeUps,
    /// Keys of other programs.
    Attached,
    /// To look at settings.
    Looks,
}

/// A server's no.
#[derive(Clone, Debug)]
pub(in crate::console::doctor) struct Refusal {
    need: Need,
    /// What the no is about: a command, a key or a channel.
    about: About,
    /// The rules that grant it.
    pub(super) rules: String,
    said: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Command,
    Key,
    Channel,
}

impl Refusal {
    pub(in crate::console::doctor) fn new(need: Need, rules: &str, said: &str) -> Self {
        Self { need, about: About::of(said), rules: rules.to_owned(), said: said.to_owned() }
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

/// One finding for each need, with all rules that are missing.
pub(super) fn report(case: &mut Case, how: &str) {
    let refusals = std::mem::take(&mut case.refusals);
    let (keys, others): (Vec<_>, Vec<_>) = refusals.into_iter().partition(|one| one.about == About::Key);
    if let Some(first) = keys.first() {
        case.say(&codes::KEYS_REFUSED, format!("{} commands were refused: {}", keys.len(), first.said));
    }
    for (need, code) in [
        (Need::Timers, codes::COMMANDS_REFUSED),
        (Need::Events, codes::EVENTS_REFUSED),
        (Need::WakeUps, codes::WAKE_UPS_REFUSED),
        (Need::Attached, codes::ATTACHED_REFUSED),
        (Need::Looks, codes::LOOKS_REFUSED),
    ] {
        say_of(case, &code, others.iter().filter(|refusal| refusal.need == need));
    }
    let bad = [codes::COMMANDS_REFUSED, codes::KEYS_REFUSED, codes::EVENTS_REFUSED, codes::WAKE_UPS_REFUSED];
    if !case.has_said(&bad) {
        let user = case.patient.user.clone();
        case.say(&codes::RIGHTS_FINE, format!("user {user}, by {how}"));
    }
}

fn say_of<'a>(case: &mut Case, code: &Code, refusals: impl Iterator<Item = &'a Refusal>) {
    let refusals: Vec<_> = refusals.collect();
    let Some(first) = refusals.first() else { return };
    let mut rules: Vec<_> = refusals.iter().flat_map(|refusal| refusal.rules.split(' ')).collect();
    // Rules of a channel come once each; the order is that of the table.
    let mut seen = std::collections::BTreeSet::new();
    rules.retain(|rule| seen.insert(*rule));
    let rules = rules.join(" ");
    case.say_with(code, format!("it lacks {rules}: {}", first.said), &[("rules", &rules)]);
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
