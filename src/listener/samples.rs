//! All statistics, one after the other.

use crate::distribution::Distribution;
use crate::listener::{AttachedBacklog, Health, Stats};
use crate::runtime::RunningTopic;
use crate::stats::Sample;

type Labels = Vec<(&'static str, String)>;

impl Stats {
    /// Everything that is counted and measured, as names, labels and values: what an exporter needs.
    ///
    /// Counts have the names of the fields of [`TopicStats`](crate::TopicStats), [`AttachedStats`](crate::AttachedStats)
    /// and [`ListenerStats`](crate::ListenerStats), the first two with the label `topic`. Times are
    /// `lateness_seconds` and `handler_seconds`, each with `_bucket` (cumulative, with the label `le`), `_sum` and
    /// `_count`. `running`, `limit` and `oldest_overdue_seconds` are those of each topic; `ready`, `connected` and
    /// `canary_heard` are 0 or 1. With attached topics, `attached_reads_bytes` and
    /// `attached_writes_bytes` are those of [`AttachedBacklog`](crate::AttachedBacklog). There are no keys in labels.
    ///
    /// ```
    /// # fn text(stats: keylapse::Stats) -> String {
    /// stats.samples().map(|sample| format!("keylapse_{sample}\n")).collect() // for Prometheus
    /// # }
    /// ```
    pub fn samples(&self) -> impl Iterator<Item = Sample> + use<> {
        let mut samples = Vec::new();
        for topic in &self.0.topics {
            self.of_topic(topic, &mut samples);
        }
        let health = Health(self.0.clone());
        let yes = |yes: bool| f64::from(u8::from(yes));
        let states = [
            ("ready", yes(health.is_ready())),
            ("connected", yes(health.connected())),
            ("canary_heard", yes(health.canary_heard())),
        ];
        let AttachedBacklog { reads, writes } = health.attached_backlog();
        let waiting = [("attached_reads_bytes", reads as f64), ("attached_writes_bytes", writes as f64)];
        let waiting = waiting.into_iter().filter(|_| self.0.attached_topics().next().is_some());
        let counts = self.listener().iter().map(|(name, count)| (name, count as f64));
        samples.extend(counts.chain(states).chain(waiting).map(|(name, value)| Sample {
            name,
            labels: Vec::new(),
            value,
        }));
        samples.into_iter()
    }

    fn of_topic(&self, topic: &RunningTopic, samples: &mut Vec<Sample>) {
        let labels = || vec![("topic", topic.config.name.clone())];
        let attached = topic.config.attach.as_ref().map(|_| topic.attached.snapshot());
        let counts =
            topic.stats.snapshot().iter().chain(attached.iter().flat_map(|attached| attached.iter()));
        samples.extend(counts.map(|(name, count)| Sample { name, labels: labels(), value: count as f64 }));
        let overdue = self.0.partitions_of(topic).iter().map(|one| one.condition.overdue_ms()).max();
        let (running, limit) = self.0.permits.usage_of(topic.index);
        for (name, value) in [
            ("running", running as f64),
            ("limit", limit as f64),
            ("oldest_overdue_seconds", overdue.unwrap_or(0) as f64 / 1000.0),
        ] {
            samples.push(Sample { name, labels: labels(), value });
        }
        let names = ["lateness_seconds_bucket", "lateness_seconds_sum", "lateness_seconds_count"];
        of_times(names, labels, &topic.meter.lateness.snapshot(), samples);
        let names = ["handler_seconds_bucket", "handler_seconds_sum", "handler_seconds_count"];
        of_times(names, labels, &topic.meter.handler.snapshot(), samples);
    }
}

fn of_times(
    names: [&'static str; 3],
    labels: impl Fn() -> Labels,
    times: &Distribution,
    samples: &mut Vec<Sample>,
) {
    let [bucket, sum, count] = names;
    let mut below = 0;
    for (bound, here) in times.buckets() {
        below += here;
        let le = bound.map_or("+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
        let labels = labels().into_iter().chain([("le", le)]).collect();
        samples.push(Sample { name: bucket, labels, value: below as f64 });
    }
    samples.push(Sample { name: sum, labels: labels(), value: times.sum().as_secs_f64() });
    samples.push(Sample { name: count, labels: labels(), value: below as f64 });
}
