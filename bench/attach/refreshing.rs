//! A writer that extends sessions at a steady pace. Some are logged out, and some are left alone.

use std::time::Duration;

use keylapse_bench::Fault;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use crate::line::{Line, Pace};
use crate::listening::key;
use crate::role::{Asked, Mouth, Told};

/// For so many seconds those live who are still there at the end.
const FOR_EVER: &[u8] = b"36000";

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Refreshing {
    pub(crate) port: u16,
    pub(crate) keys: u32,
    pub(crate) rate: f64,
    pub(crate) seconds: f64,
    /// What a refresh gives, in seconds.
    pub(crate) ttl: u64,
    /// How many are logged out.
    pub(crate) shortened: u32,
    /// How many are refreshed no more.
    pub(crate) left: u32,
}

/// When so many happen, at even distances in a span of time.
struct Times {
    from: f64,
    distance: f64,
    left: u32,
}

impl Times {
    /// None if the span is empty.
    fn of(count: u32, from: f64, to: f64) -> Self {
        let span = (to - from).max(0.0);
        Self { from, distance: span / f64::from(count.max(1)), left: if span > 0.0 { count } else { 0 } }
    }

    /// Whether one is due now; it is then done.
    fn take(&mut self, now: f64) -> bool {
        let due = self.left > 0 && now >= self.from;
        if due {
            self.from += self.distance;
            self.left -= 1;
        }
        due
    }
}

/// What a key's reply is waited for with.
enum Sent {
    Refresh,
    Leave { key: u32, shortened: bool },
}

impl Refreshing {
    pub(crate) fn play(&self) -> Result<(), Fault> {
        let (mouth, writing) = Mouth::open();
        Writer::of(self, mouth)?.write()?;
        writing.join().map_err(|_| "the writer of lines panicked")??;
        Ok(())
    }
}

struct Writer<'a> {
    plan: &'a Refreshing,
    mouth: Mouth,
    asked: Asked,
    line: Line,
    names: Vec<String>,
    /// Whose turn it is, in an order without meaning.
    present: Vec<u32>,
    place: usize,
    sent: Vec<Sent>,
    /// Sessions that should have lived.
    gone: u64,
}

impl<'a> Writer<'a> {
    fn of(plan: &'a Refreshing, mouth: Mouth) -> Result<Self, Fault> {
        let mut present: Vec<u32> = (0..plan.keys).collect();
        present.shuffle(&mut rand::rng());
        Ok(Self {
            plan,
            mouth,
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
        self.mouth.say(Told::Written { commands, seconds, gone: self.gone });
        self.keep_the_rest()
    }

    /// Refreshes so many of those whose turn it is; asks of each whether it leaves, and how.
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
            self.line.say(&[b"EXPIRE", name, if shortened { b"1" } else { ttl.as_bytes() }]);
            if shortened || leaves() {
                self.line.say(&[b"PEXPIRETIME", name]);
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
                self.mouth.say(Told::Left { key, deadline, shortened });
            }
        }
        Ok(())
    }

    /// Those who are still there live on, at the same pace: nobody is to see their end.
    fn keep_the_rest(mut self) -> Result<(), Fault> {
        let mut pace = Pace::of(self.plan.rate);
        while !self.present.is_empty() {
            let rest = self.present.len().saturating_sub(pace.portion() as usize);
            let portion = self.present.split_off(rest);
            for &key in &portion {
                self.line.say(&[b"EXPIRE", self.names[key as usize].as_bytes(), FOR_EVER]);
            }
            self.line.exchange(portion.len())?;
        }
        Ok(())
    }
}
