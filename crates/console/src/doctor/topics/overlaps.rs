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
    let mut patterns = Vec::with_capacity(seen.len());
    for seen in seen {
        match Pattern::new(&seen.entry.pattern) {
            Ok(pattern) => patterns.push((seen, pattern)),
            Err(error) => topics.say_unreadable(&seen.entry.name, &error.to_string()),
        }
    }
    let (served, unserved): (Vec<_>, Vec<_>) = patterns.into_iter().partition(|(seen, _)| seen.served > 0);
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
