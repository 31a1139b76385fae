//! Builds a topic for the listener from its table.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use keylapse::{Attached, Backoff, Topic};
use toml::Spanned;

use super::bounds::{DAY, if_within, time};
use super::deliveries::delivery;
use super::fault::ConfigError;
use super::tables::{KeepTable, RetryTable, TopicTable};
use super::values::Span;
use super::{AT_ONCE, RelayTopic, TopicSource};
use crate::delivery::Delivery;

/// How long after the delivery's own timeout an attempt is stopped.
const MARGIN: Duration = Duration::from_secs(5);
/// Practically no limit: timers are snoozed while their host is full or its circuit is open. `max-age` ends those that are
/// never delivered.
const MAX_SNOOZES: u16 = u16::MAX;

/// The shortest delay before a retry, and the shortest age.
const SHORTEST: Duration = Duration::from_millis(10);
/// The longest delay before a retry, and the longest age.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// The text that has a topic's table, for errors about it.
pub(super) struct TableContext<'a> {
    pub(super) text: &'a str,
    pub(super) folder: &'a Path,
    pub(super) name: &'a str,
    /// How many deliveries of all topics run at a time, if the file sets it.
    pub(super) at_once: Option<usize>,
}

impl TableContext<'_> {
    pub(super) fn refuse(&self, span: &Range<usize>, what: impl std::fmt::Display) -> ConfigError {
        ConfigError::at(self.text, span, format!("topic {}: {what}", self.name))
    }
}

pub(super) fn relayed(
    name: &str,
    table: Spanned<TopicTable>,
    text: &str,
    folder: &Path,
    at_once: Option<usize>,
) -> Result<RelayTopic, ConfigError> {
    let (span, at) = (table.span(), TableContext { text, folder, name, at_once });
    let mut table = table.into_inner();
    let delivery = delivery(&at, &span, &mut table)?;
    let source = source(&at, &span, &table, &delivery)?;
    Ok(RelayTopic { name: name.to_owned(), source, delivery })
}

fn source(
    at: &TableContext<'_>,
    span: &Range<usize>,
    table: &TopicTable,
    delivery: &Delivery,
) -> Result<TopicSource, ConfigError> {
    let (pattern, is_attached) = match (&table.attach, &table.pattern) {
        (Some(pattern), None) => (pattern, true),
        (None, Some(pattern)) => (pattern, false),
        _ => {
            let what = "write either `attach`, a pattern of keys that other programs write, or `pattern`, a pattern of timers \
                        that are armed through keylapse";
            return Err(at.refuse(span, what));
        }
    };
    let refuse = |error: keylapse::Error| at.refuse(&pattern.span(), error);
    let topic = Topic::raw_named(at.name, pattern.get_ref()).map_err(refuse)?;
    let topic = of_both(topic, table, delivery).map_err(|why| at.refuse(span, why))?;
    captured(&topic, delivery).map_err(|why| at.refuse(span, why))?;
    if is_attached {
        misplaced(at, span, "pattern", &[("marker-keys", table.marker_keys.is_some())])?;
        Ok(TopicSource::Attached(attached(topic, table)))
    } else {
        let foreign = [
            ("allow-any-prefix", table.allow_any_prefix.is_some()),
            ("keep-values", table.keep_values.is_some()),
            ("keep-fields", table.keep_fields.is_some()),
            ("untracked", table.untracked.is_some()),
            ("vanished", table.vanished.is_some()),
            ("recovered", table.recovered.is_some()),
            ("revision", table.revision.is_some()),
            ("cap", table.cap.is_some()),
            ("scan-rate", table.scan_rate.is_some()),
            ("scan-every", table.scan_every.is_some()),
        ];
        misplaced(at, span, "attach", &foreign)?;
        Ok(TopicSource::Managed(managed(topic, table)))
    }
}

/// Refuses a setting that has no effect on this kind of topic.
fn misplaced(
    at: &TableContext<'_>,
    span: &Range<usize>,
    of: &str,
    settings: &[(&str, bool)],
) -> Result<(), ConfigError> {
    match settings.iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(at.refuse(span, format!("{name} is a setting of topics with `{of}`"))),
        None => Ok(()),
    }
}

/// Checks that the pattern has all captures of the URL.
fn captured(topic: &Topic<Bytes>, delivery: &Delivery) -> Result<(), String> {
    let Delivery::Webhook(webhook) = delivery else { return Ok(()) };
    let known: Vec<_> = topic.pattern().capture_names().collect();
    match webhook.captures().find(|name| !known.contains(name)) {
        Some(name) => {
            Err(format!("the URL has {{{name}}}, but the pattern's captures are: {}", known.join(", ")))
        }
        None => Ok(()),
    }
}

fn of_both(topic: Topic<Bytes>, table: &TopicTable, delivery: &Delivery) -> Result<Topic<Bytes>, String> {
    let mut topic =
        topic.timeout(delivery.timeout() + MARGIN).max_snoozes(table.max_snoozes.unwrap_or(MAX_SNOOZES));
    if let Some(retry) = &table.retry {
        topic = topic.retry(backoff(retry)?);
    }
    if let Some(attempts) = if_within("max-attempts", table.max_attempts, 1..=1_000_000)? {
        topic = topic.max_attempts(attempts);
    }
    if let Some(age) = time("max-age", table.max_age, SHORTEST..=LONGEST)? {
        topic = topic.max_age(age);
    }
    if let Some(lease) = time("lease", table.lease, Duration::from_secs(1)..=DAY)? {
        topic = topic.lease(lease);
    }
    if let Some(attempts) = at_once(table, delivery)? {
        topic = topic.concurrency(attempts);
    }
    if let Some(partitions) = if_within("partitions", table.partitions, 1..=1024)? {
        topic = topic.partitions(partitions);
    }
    kept(topic, table)
}

/// Returns how many attempts run at a time. A timer that is claimed without a free slot only waits, while another listener
/// could run it.
fn at_once(table: &TopicTable, delivery: &Delivery) -> Result<Option<usize>, String> {
    let most = delivery.most_at_once();
    let asked = if_within("concurrency", table.concurrency, 1..=AT_ONCE)?;
    Ok(match (asked, most) {
        (Some(asked), Some(most)) => Some(asked.min(most)),
        (asked, most) => asked.or(most),
    })
}

/// Sets how many dead letters and journal entries are kept.
fn kept(mut topic: Topic<Bytes>, table: &TopicTable) -> Result<Topic<Bytes>, String> {
    let age = |name: &str, of: &KeepTable| {
        time(name, Some(of.age), SHORTEST..=LONGEST).map(Option::unwrap_or_default)
    };
    if let Some(letters) = &table.dead_letters {
        topic = topic.dead_letters(letters.count, age("dead-letters.age", letters)?);
        if letters.pause_when_full {
            topic = topic.pause_when_dead_letters_full();
        }
    }
    if let Some(journal) = &table.journal {
        if journal.pause_when_full {
            return Err("pause-when-full is a setting of dead-letters".to_owned());
        }
        topic = topic.journal(journal.count, age("journal.age", journal)?);
    }
    Ok(topic)
}

fn managed(mut topic: Topic<Bytes>, table: &TopicTable) -> Topic<Bytes> {
    if let Some(enabled) = table.marker_keys {
        topic = topic.marker_keys(enabled);
    }
    topic
}

fn attached(topic: Topic<Bytes>, table: &TopicTable) -> Attached<Bytes> {
    let mut attached = Attached::new(topic);
    if table.allow_any_prefix == Some(true) {
        attached = attached.allow_any_prefix();
    }
    if let Some(cap) = table.keep_values {
        attached = attached.keep_values(cap.0);
    }
    if let Some(names) = &table.keep_fields {
        attached = attached.keep_fields(names);
    }
    if let Some(treatment) = table.untracked {
        attached = attached.untracked(treatment);
    }
    if let Some(treatment) = table.vanished {
        attached = attached.vanished(treatment);
    }
    if let Some(treatment) = table.recovered {
        attached = attached.recovered(treatment);
    }
    if let Some(number) = table.revision {
        attached = attached.revision(number);
    }
    if let Some(keys) = table.cap {
        attached = attached.cap(keys);
    }
    if let Some(rate) = table.scan_rate {
        attached = attached.scan_rate(rate);
    }
    if let Some(pause) = table.scan_every {
        attached = attached.scan_every(pause.0);
    }
    attached
}

fn backoff(table: &RetryTable) -> Result<Backoff, String> {
    let delay = |span: Span| time("retry", Some(span), SHORTEST..=LONGEST).map(Option::unwrap_or_default);
    match (table.every, &table.after, table.from, table.to) {
        (Some(every), None, None, None) => Ok(Backoff::fixed(delay(every)?)),
        (None, Some(after), None, None) if !after.is_empty() => {
            let delays: Vec<_> = after.iter().map(|span| delay(*span)).collect::<Result<_, _>>()?;
            Ok(Backoff::table(delays))
        }
        (None, None, Some(from), Some(to)) if from.0 <= to.0 => Ok(Backoff::exponential(delay(from)?, delay(to)?)),
        _ => Err("retry is { every = \"30s\" }, { after = [\"15s\", \"3m\", \"6h\"] } or { from = \"1s\", to = \"10m\" }".to_owned()),
    }
}
