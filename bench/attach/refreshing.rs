//! A writer that extends sessions at a steady pace. Some are logged out, and some are left alone.

use std::time::Duration;

use keylapse_bench::Fault;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use crate::line::{Line, Pace};
use crate::listening::key;
use crate::role::{Asked, Report, Reporter};

/// The TTL, in seconds, of sessions that are left at the end.
const FOR_EVER: &[u8] = b"36000";

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Refreshing {
    pub(crate) port: u16,
    pub(crate) keys: u32,
    pub(crate) rate: f64,
    pub(crate) seconds: f64,
    /// The TTL that a refresh gives, in seconds.
    pub(crate) ttl: u64,
    /// The number of sessions that are logged out.
    pub(crate) shortened: u32,
    /// The number of sessions that are not refreshed any more.
    pub(crate) left: u32,
}

/// Events at even distances in a span of time.
struct Times {
    from: f64,
    distance: f64,
    left: u32,
}

impl Times {
    /// Creates `count` events; none if the span is empty.
    fn of(count: u32, from: f64, to: f64) -> Self {
        let span = (to - from).max(0.0);
        Self { from, distance: span / f64::from(count.max(1)), left: if span > 0.0 { count } else { 0 } }
    }

    /// Takes an event if it is due, and returns whether it was.
    fn take(&mut self, now: f64) -> bool {
        let due = self.left > 0 && now >= self.from;
        if due {
            self.from += self.distance;
            self.left -= 1;
        }
        due
    }
}

/// A command whose reply is expected.
enum Sent {
    Refresh,
    Leave { key: u32, shortened: bool },
}

impl Refreshing {
    pub(crate) fn play(&self) -> Result<(), Fault> {
        let (reporter, writing) = Reporter::open();
        Writer::of(self, reporter)?.write()?;
        writing.join().map_err(|_| "the writer of lines panicked")??;
        Ok(())
    }
}

struct Writer<'a> {
    plan: &'a Refreshing,
    reporter: Reporter,
    asked: Asked,
    line: Line,
    names: Vec<String>,
    /// The sessions that are refreshed in turn, in random order.
    present: Vec<u32>,
    place: usize,
    sent: Vec<Sent>,
    /// Sessions that should have lived.
    gone: u64,
}

impl<'a> Writer<'a> {
    fn of(plan: &'a Refreshing, reporter: Reporter) -> Result<Self, Fault> {
        let mut present: Vec<u32> = (0..plan.keys).collect();
        present.shuffle(&mut rand::rng());
        Ok(Self {
            plan,
            reporter,
            asked: Asked::listen(),
            line: Line::to(plan.port)?,
            names: (0..plan.keys).map(key).collect(),
            present,
            place: 0,
            sent: Vec::new(),
            gone: 0,
        })
    }

    fn write(mut self) -> Result<(), Fault> {
        let mut pace = Pace::of(self.plan.rate);
        while !self.asked.counts() && !self.asked.ends() {
            self.refresh(pace.portion(), || false, || false)?;
        }
        let (seconds, ttl) = (self.plan.seconds, self.plan.ttl as f64);
        let mut shortened = Times::of(self.plan.shortened, seconds * 0.05, seconds - 2.0);
        let mut left = Times::of(self.plan.left, seconds * 0.05, seconds - ttl - 1.0);
        let mut pace = Pace::of(self.plan.rate);
        while pace.elapsed() < Duration::from_secs_f64(seconds) && !self.asked.ends() {
            self.refresh(pace.portion(), || shortened.take(pace.seconds()), || left.take(pace.seconds()))?;
        }
        let (commands, seconds) = (pace.done(), pace.seconds());
        self.reporter.send(Report::Written { commands, seconds, gone: self.gone });
        self.keep_the_rest()
    }

    /// Refreshes the next `count` sessions. The callbacks decide which of them are logged out, and which are left.
    fn refresh(
        &mut self,
        count: u64,
        mut shortens: impl FnMut() -> bool,
        mut leaves: impl FnMut() -> bool,
    ) -> Result<(), Fault> {
        let ttl = self.plan.ttl.to_string();
        for _ in 0..count {
            self.place %= self.present.len().max(1);
            let key = *self.present.get(self.place).ok_or("all sessions are gone")?;
            let (name, shortened) = (self.names[key as usize].as_bytes(), shortens());
            self.line.push(&[b"EXPIRE", name, if shortened { b"1" } else { ttl.as_bytes() }]);
            if shortened || leaves() {
                self.line.push(&[b"PEXPIRETIME", name]);
                self.sent.push(Sent::Leave { key, shortened });
                self.present.swap_remove(self.place);
            } else {
                self.sent.push(Sent::Refresh);
                self.place += 1;
            }
        }
        self.line.send()?;
        for one in self.sent.drain(..) {
            self.gone += u64::from(self.line.reply()? != 1);
            if let Sent::Leave { key, shortened } = one {
                let deadline = u64::try_from(self.line.reply()?)? * 1000;
                self.reporter.send(Report::Left { key, deadline, shortened });
            }
        }
        Ok(())
    }

    /// Extends the other sessions at the same pace, so that none of them expires in the scene.
    fn keep_the_rest(mut self) -> Result<(), Fault> {
        let mut pace = Pace::of(self.plan.rate);
        while !self.present.is_empty() {
            let rest = self.present.len().saturating_sub(pace.portion() as usize);
            let portion = self.present.split_off(rest);
            for &key in &portion {
                self.line.push(&[b"EXPIRE", self.names[key as usize].as_bytes(), FOR_EVER]);
            }
            self.line.exchange(portion.len())?;
        }
        Ok(())
    }
}
