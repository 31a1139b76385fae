//! A writer that writes keys again as soon as they have expired, at a steady pace.

use std::time::Duration;

use keylapse_bench::Fault;
use serde::{Deserialize, Serialize};

use crate::line::{Line, Pace};
use crate::listening::key;
use crate::role::{Asked, Report, Reporter};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Rewriting {
    pub(crate) port: u16,
    pub(crate) keys: u32,
    /// The TTL of the keys, in ms.
    pub(crate) ttl: u64,
    /// The time from the expiry of a key to its next write, in ms.
    pub(crate) gap: u64,
    pub(crate) seconds: f64,
}

impl Rewriting {
    pub(crate) fn play(&self) -> Result<(), Fault> {
        let (reporter, writing) = Reporter::open();
        let (asked, mut line) = (Asked::listen(), Line::to(self.port)?);
        let (ttl, names) = (self.ttl.to_string(), (0..self.keys).map(key).collect::<Vec<_>>());
        let mut pace = Pace::of(f64::from(self.keys) * 1000.0 / (self.ttl + self.gap) as f64);
        let mut next = names.iter().cycle();
        while pace.elapsed() < Duration::from_secs_f64(self.seconds) && !asked.ends() {
            let portion = pace.portion() as usize;
            for name in next.by_ref().take(portion) {
                line.push(&[b"SET", name.as_bytes(), b"1", b"PX", ttl.as_bytes()]);
            }
            line.exchange(portion)?;
        }
        reporter.send(Report::Written {
            commands: pace.done(),
            seconds: pace.elapsed().as_secs_f64(),
            gone: 0,
        });
        drop(reporter);
        writing.join().map_err(|_| "the writer of lines panicked")??;
        Ok(())
    }
}
