//! What follows from refusals.

use crate::counted;
use crate::doctor::case::Case;
use crate::doctor::codes::{self, Code};
use crate::doctor::refusal::{Need, Refusal};

/// One finding for each need, with all rules that are missing.
pub(super) fn report(case: &mut Case, how: &str) {
    let refusals = std::mem::take(&mut case.refusals);
    let (keys, others): (Vec<_>, Vec<_>) = refusals.into_iter().partition(Refusal::is_of_keys);
    if let Some(first) = keys.first() {
        let refused = counted(keys.len() as u64, "refused command");
        case.say(&codes::KEYS_REFUSED, format!("{refused}, as of: {}", first.said));
    }
    for (need, code) in [
        (Need::Timers, codes::COMMANDS_REFUSED),
        (Need::Events, codes::EVENTS_REFUSED),
        (Need::WakeUps, codes::WAKE_UPS_REFUSED),
        (Need::Attached, codes::ATTACHED_REFUSED),
        (Need::Looks, codes::LOOKS_REFUSED),
        (Need::Forwarding, codes::FORWARDING_REFUSED),
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
