//! Shows the progress of an action on many entries.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::{count, span};

/// How often a line is printed if standard error is no terminal.
const EVERY: Duration = Duration::from_secs(3);
/// No line is printed for this many entries or fewer.
const MIN_REPORTED_ENTRIES: u64 = 1000;

/// A line that stays up to date on a terminal, and elsewhere a new line every few seconds.
pub(crate) struct ProgressLine {
    done: &'static str,
    of: Option<u64>,
    bar: Option<ProgressBar>,
    begun: Instant,
    said: Instant,
}

impl ProgressLine {
    /// Starts at 0. `done` is the word for a finished entry; `of` is the number of entries, if it is known.
    pub(crate) fn new(done: &'static str, of: Option<u64>) -> Self {
        let now = Instant::now();
        Self { done, of, bar: io::stderr().is_terminal().then(|| bar(of)), begun: now, said: now }
    }

    /// Shows the progress of entries that are printed. There is no updated line if they are printed to a terminal.
    pub(crate) fn beside_output(done: &'static str) -> Self {
        let progress = Self::new(done, None);
        Self { bar: progress.bar.filter(|_| !io::stdout().is_terminal()), ..progress }
    }

    /// Shows that this many entries are finished.
    pub(crate) fn at(&mut self, done: u64) {
        match &self.bar {
            Some(bar) => bar.set_position(done),
            None => self.line(done, Instant::now()).into_iter().for_each(|line| eprintln!("{line}")),
        }
    }

    /// Removes the line from the terminal.
    pub(crate) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    /// Returns the line to write now, if it is time for one.
    fn line(&mut self, done: u64, now: Instant) -> Option<String> {
        if now.duration_since(self.said) < EVERY || self.of.unwrap_or(done) <= MIN_REPORTED_ENTRIES {
            return None;
        }
        self.said = now;
        let each = (now - self.begun).as_secs_f64() / done.max(1) as f64;
        let rate = count((1.0 / each) as u64);
        let (so_far, what) = (count(done), self.done);
        Some(match self.of {
            None => format!("{so_far} {what}, {rate}/s"),
            Some(of) => {
                let left = Duration::from_secs_f64(each * of.saturating_sub(done) as f64);
                format!(
                    "{so_far} of {} {what}, {rate}/s, about {} left",
                    count(of),
                    span(left.as_secs() * 1000)
                )
            }
        })
    }
}

fn bar(of: Option<u64>) -> ProgressBar {
    let (bar, template) = match of {
        Some(of) => (ProgressBar::new(of), "{wide_bar} {human_pos}/{human_len}  {per_sec}  {eta}"),
        None => (ProgressBar::no_length(), "{human_pos}  {per_sec}"),
    };
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn piped(of: Option<u64>) -> ProgressLine {
        ProgressLine { bar: None, ..ProgressLine::new("moved", of) }
    }

    #[test]
    fn a_line_comes_every_few_seconds_and_none_for_a_few() {
        let (mut many, begun) = (piped(Some(100_000)), Instant::now());
        many.begun = begun;
        many.said = begun;
        let mut said = |seconds, done| many.line(done, begun + seconds * SECOND);
        assert_eq!(said(2, 20_000), None);
        assert_eq!(said(4, 40_000).as_deref(), Some("40,000 of 100,000 moved, 10,000/s, about 6s left"));
        assert_eq!(said(5, 50_000), None);
        assert!(said(8, 80_000).is_some());
        assert_eq!(piped(Some(1000)).line(900, begun + 9 * SECOND), None);
    }

    #[test]
    fn where_nobody_has_counted_it_says_how_many_are_done() {
        let mut unknown = piped(None);
        let begun = unknown.begun;
        assert_eq!(unknown.line(1000, begun + 4 * SECOND), None);
        assert_eq!(unknown.line(8000, begun + 4 * SECOND).as_deref(), Some("8,000 moved, 2,000/s"));
    }
}
