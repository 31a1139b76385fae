//! The costs of one timer, from measured figures.

use crate::Fault;
use crate::scale::{Record, Row};

/// The costs of one timer, from its arming to the end of its handler, which does nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// µs of a server's processor.
    pub server_us: f64,
    /// µs of a producer's processor.
    pub producer_us: f64,
    /// µs of the listener's processor.
    pub listener_us: f64,
    /// Requests to the server. Commands that arrive together count once.
    pub requests: f64,
    /// Bytes to the server and from it.
    pub bytes: f64,
    /// Bytes of the server's memory while it is armed.
    pub bytes_armed: f64,
    /// The additional costs for each listener but the first; zero without marker keys.
    pub further: Further,
    /// Requests a second of a listener without work, to the primary that gets the most.
    pub idle_requests_per_s: f64,
    /// The pause of a server that forks, in ms for each GiB of its memory.
    pub fork_ms_per_gib: f64,
}

/// The additional costs of a timer for each listener but the first: each listener receives every published expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Further {
    /// µs of a server's processor.
    pub server_us: f64,
    /// µs of that listener's processor.
    pub listener_us: f64,
    /// Bytes from the server to that listener.
    pub bytes: f64,
}

impl Costs {
    /// Returns the costs on the largest cluster that was measured, with or without marker keys.
    ///
    /// # Errors
    /// If a figure is missing.
    pub fn of(record: &Record, marker_keys: bool) -> Result<Self, Fault> {
        let largest = record.rows(marker_keys).max_by_key(|row| row.primaries);
        let row = largest.ok_or("the record has no row with one listener")?;
        let sum = |names: &[&str]| names.iter().map(|name| figure(row, name)).sum::<Result<f64, Fault>>();
        let forked = record.rows(marker_keys).find(|row| row.median("fork_ms_per_gib").is_some());
        // Without marker keys, no expiry is published when a timer fires.
        let further = record.crowd(marker_keys).map(further).transpose()?;
        Ok(Self {
            server_us: sum(&["arm_server_us", "timely_server_us"])?,
            producer_us: figure(row, "arm_client_us")?,
            listener_us: figure(row, "timely_client_us")?,
            requests: sum(&["arm_requests", "timely_requests"])?,
            bytes: sum(&["arm_bytes_in", "arm_bytes_out", "timely_bytes_in", "timely_bytes_out"])?,
            bytes_armed: figure(row, "bytes_armed")?,
            further: further.unwrap_or_default(),
            idle_requests_per_s: figure(row, "idle_requests_per_s")?,
            fork_ms_per_gib: figure(forked.unwrap_or(row), "fork_ms_per_gib")?,
        })
    }
}

/// Returns the costs of one expiry for one listener. Negative figures are noise, and count as zero.
fn further(crowd: &Row) -> Result<Further, Fault> {
    let more = |name| Ok::<_, Fault>(figure(crowd, name)?.max(0.0));
    Ok(Further {
        server_us: more("hear_server_us")?,
        listener_us: more("hear_client_us")?,
        bytes: more("hear_bytes_out")?,
    })
}

fn figure(row: &Row, name: &str) -> Result<f64, Fault> {
    row.median(name).ok_or_else(|| format!("{} primaries: {name} was not measured", row.primaries).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spread;

    fn row(primaries: usize, listeners: usize, timely: f64) -> Row {
        let names = [
            "arm_server_us",
            "arm_client_us",
            "timely_client_us",
            "arm_requests",
            "timely_requests",
            "arm_bytes_in",
            "arm_bytes_out",
            "timely_bytes_in",
            "timely_bytes_out",
            "bytes_armed",
            "idle_requests_per_s",
            "fork_ms_per_gib",
            "hear_client_us",
            "hear_bytes_out",
        ];
        let of = |value| Spread::of(&[value]).unwrap();
        let mut figures: std::collections::BTreeMap<_, _> =
            names.map(|name| (name.to_owned(), of(2.0))).into();
        figures.insert("timely_server_us".to_owned(), of(timely));
        figures.insert("hear_server_us".to_owned(), of(timely - 10.0));
        Row { primaries, marker_keys: true, listeners, figures }
    }

    fn record(rows: Vec<Row>) -> Record {
        let word = String::new;
        Record {
            command: word(),
            commit: word(),
            server: word(),
            processors: 2,
            model: word(),
            busy: word(),
            size: word(),
            rows,
        }
    }

    #[test]
    fn costs_are_those_of_the_largest_cluster_and_each_further_listener_adds_its_part() {
        let costs = Costs::of(&record(vec![row(0, 1, 9.0), row(3, 1, 10.0), row(3, 4, 16.0)]), true).unwrap();
        assert_eq!((costs.server_us, costs.bytes), (12.0, 8.0));
        assert_eq!(costs.further, Further { server_us: 6.0, listener_us: 2.0, bytes: 2.0 });
        let costs = Costs::of(&record(vec![row(3, 1, 10.0), row(3, 4, 9.0)]), true).unwrap();
        assert_eq!(costs.further.server_us, 0.0, "noise");
    }

    #[test]
    fn what_was_not_measured_is_named() {
        let mut lacking = row(1, 1, 1.0);
        lacking.figures.remove("bytes_armed");
        let refused = Costs::of(&record(vec![lacking]), true).unwrap_err().to_string();
        assert_eq!(refused, "1 primaries: bytes_armed was not measured");
        assert!(Costs::of(&record(Vec::new()), true).is_err());
    }
}
