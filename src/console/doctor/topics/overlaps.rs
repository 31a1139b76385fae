//! Topics whose patterns match the same keys, of which only one has listeners.

use crate::escape::plain;
use crate::pattern::Pattern;

use super::super::codes;
use super::Topics;
use super::look::Seen;

/// So many of the others are named.
const NAMED: usize = 3;

/// Whether keys may match both is decided as a listener decides it at its start.
pub(super) fn check(topics: &mut Topics<'_>, seen: &[Seen]) {
    let patterns = seen.iter().filter_map(|seen| Some((seen, Pattern::new(&seen.entry.pattern).ok()?)));
    let (served, unserved): (Vec<_>, Vec<_>) = patterns.partition(|(seen, _)| seen.served > 0);
    for (topic, pattern) in &unserved {
        let others: Vec<_> = served
            .iter()
            .filter(|(_, other)| other.may_overlap(pattern))
            .map(|(other, _)| format!("{} ({})", other.entry.name, plain(&other.entry.pattern, 100)))
            .take(NAMED)
            .collect();
        if !others.is_empty() {
            let observed = format!("{} overlaps with {}", plain(pattern.as_str(), 100), others.join(", "));
            topics.say(&codes::OVERLAP, &topic.entry.name, &observed);
        }
    }
}
