//! What is kept of topics, beside who listens. Read-only, and so much at most, however much there is.

mod look;
mod orphans;
mod overlaps;
mod spread;

use crate::error::{Error, ErrorKind, Result};
use crate::overview::overviews;
use crate::wire::{ListenerReport, PartitionNames, TopicEntry, listeners};
use crate::{Overview, counted, show_count, text};
use keylapse::Client;
use keylapse::inside::ClientInside as _;

use super::codes::{self, Code};
use super::finding::Finding;
use look::Seen;

/// More topics than these are not looked at.
const MOST: usize = 1000;
/// Topics whose partitions are asked in one go.
const AT_A_TIME: usize = 100;

/// Looks at the topics that are registered, if any.
pub(super) struct Topics<'a> {
    client: &'a Client,
    findings: Vec<Finding>,
}

impl<'a> Topics<'a> {
    pub(super) fn of(client: &'a Client) -> Self {
        Self { client, findings: Vec::new() }
    }

    /// Errors that are no matter of what is kept belong to the servers' findings.
    pub(super) async fn examine(mut self) -> Vec<Finding> {
        match self.look().await {
            Err(error) if is_of_what_is_kept(&error) => {
                let observed = format!("{}:topics: {error}", self.client.prefix());
                let names = [("line", "-n ANOTHER status")];
                self.findings.push(Finding::new(&codes::UNREADABLE, None, observed, &names));
            }
            _ => {}
        }
        self.findings
    }

    async fn look(&mut self) -> Result<()> {
        let (mut registered, unreadable) = self.client.store().registry(self.client.prefix()).await?;
        for (name, why) in unreadable.iter().take(MOST) {
            self.say_unreadable(&text::escape(name), why);
        }
        let present = self.client.store().listeners(&listeners(self.client.prefix())).await?;
        let (all, mut seen) = (registered.len(), Vec::new());
        registered.truncate(MOST);
        for some in registered.chunks(AT_A_TIME) {
            let partitions: Vec<_> =
                some.iter().map(|entry| entry.all_partitions(self.client.prefix())).collect();
            let each: Vec<_> = partitions.iter().map(Vec::as_slice).collect();
            let held = overviews(self.client.store(), &each).await;
            for ((entry, partitions), held) in some.iter().zip(partitions).zip(held) {
                seen.extend(self.look_at(entry.clone(), partitions, held, &present)?);
            }
        }
        orphans::check(self, &seen).await?;
        overlaps::check(self, &seen);
        spread::check(self, &seen).await?;
        self.conclude(all, &seen, present.len());
        Ok(())
    }

    /// One topic; none where it cannot be read.
    fn look_at(
        &mut self,
        entry: TopicEntry,
        partitions: Vec<PartitionNames>,
        held: Result<Overview>,
        present: &[ListenerReport],
    ) -> Result<Option<Seen>> {
        let name = entry.name.clone();
        let served = present.iter().filter(|listener| listener.serves(&name)).count();
        match held.and_then(|held| Seen::of(entry, partitions, held, served)) {
            Ok(seen) => {
                look::check(self, &seen);
                Ok(Some(seen))
            }
            Err(error) if is_of_what_is_kept(&error) => {
                self.say_with(&codes::UNREADABLE, &name, &error.to_string(), &[("line", "status")]);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn conclude(&mut self, all: usize, seen: &[Seen], listeners: usize) {
        let bad = self.findings.iter().any(|finding| finding.code != codes::PAUSED.code);
        if !bad {
            let some = if all > seen.len() {
                format!(" ({} looked at)", show_count(seen.len() as u64))
            } else {
                String::new()
            };
            let timers = counted(seen.iter().map(|seen| seen.timers).sum(), "timer");
            let (all, listeners) = (counted(all as u64, "topic"), counted(listeners as u64, "listener"));
            let observed = format!("{all}{some}, {timers}, {listeners}");
            self.findings.push(Finding::new(&codes::TOPICS_FINE, None, observed, &[]));
        }
    }

    /// An entry of the registry, whoever has written it.
    fn say_unreadable(&mut self, name: &str, why: &str) {
        let observed = format!("{name}, as it is registered: {why}");
        self.findings.push(Finding::new(&codes::UNREADABLE, None, observed, &[("line", "status")]));
    }

    fn say(&mut self, code: &Code, topic: &str, observed: &str) {
        self.say_with(code, topic, observed, &[]);
    }

    fn say_with(&mut self, code: &Code, topic: &str, observed: &str, names: &[(&str, &str)]) {
        let names = [&[("topic", topic)], names].concat();
        self.findings.push(Finding::new(code, None, format!("{topic}: {observed}"), &names));
    }
}

/// Returns whether it says that what is kept is strange, and not that the server is away, busy or refuses.
fn is_of_what_is_kept(error: &Error) -> bool {
    use ErrorKind::{Auth, Permission, Tls, Unsupported};
    !error.is_transient() && !matches!(error.kind(), Auth | Permission | Tls | Unsupported)
}

/// Another version's, or another program's.
fn strange(message: String) -> Error {
    Error::new(ErrorKind::WireVersion, message)
}
