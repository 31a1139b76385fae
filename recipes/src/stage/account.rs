//! The result of one side of a scene: how its jobs ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::ledger::{Entry, Event};

/// How the jobs of one side ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Number of jobs.
    pub given: usize,
    /// Jobs that never succeeded.
    pub lost: usize,
    /// Runs after the first that did not fail. Each may have sent a second mail.
    pub doubled: usize,
    /// Repeated runs that no killed or stopped process explains, or that had another ID.
    pub unexplained: usize,
    /// Jobs whose first run began before they were due.
    pub early: usize,
    /// Jobs that still waited when the scene ended. They are not lost.
    #[serde(default)]
    pub overdue: usize,
    /// Delay from each job's deadline to its first run, in microseconds, in ascending order. For overdue jobs it is
    /// the delay until the end of the scene.
    pub late_us: Vec<u64>,
}

impl Account {
    /// Counts how the jobs ended, from their deadlines and the ledger. `harmed` has the processes that were killed or
    /// stopped. `waiting` is the end of the scene if jobs that had not begun by then count as overdue, not as lost.
    pub fn of(
        jobs: &BTreeMap<String, SystemTime>,
        ledger: &[Entry],
        harmed: &BTreeSet<u32>,
        waiting: Option<SystemTime>,
    ) -> Self {
        let mut account = Self { given: jobs.len(), ..Self::default() };
        for (job, due) in jobs {
            let entries: Vec<_> = ledger.iter().filter(|entry| entry.job == *job).collect();
            let began = entries.iter().find(|entry| entry.event == Event::Began).map(|first| first.at);
            let overdue = began.is_none() && waiting.is_some();
            account.overdue += usize::from(overdue);
            account.lost += usize::from(!overdue && entries.iter().all(|entry| entry.event != Event::Done));
            account.early += usize::from(began.is_some_and(|began| began < *due));
            if let Some(until) = began.or(waiting) {
                account.late_us.push(micros(until.duration_since(*due).unwrap_or_default()));
            }
            let (doubled, unexplained) = repeats(&entries, harmed);
            account.doubled += doubled;
            account.unexplained += unexplained;
        }
        account.late_us.sort_unstable();
        account
    }

    /// Adds the counts of another account.
    pub fn add(&mut self, other: &Self) {
        self.given += other.given;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.unexplained += other.unexplained;
        self.early += other.early;
        self.overdue += other.overdue;
        self.late_us.extend(&other.late_us);
        self.late_us.sort_unstable();
    }

    /// Returns the lateness within which this share of the jobs began: 0.99 is the 99th percentile.
    pub fn late(&self, share: f64) -> Duration {
        let rank = (share * self.late_us.len() as f64).ceil() as usize;
        Duration::from_micros(self.late_us.get(rank.saturating_sub(1)).copied().unwrap_or_default())
    }

    /// Returns the lateness of the latest job.
    pub fn latest(&self) -> Duration {
        self.late(1.0)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Counts the runs of a job after the first that did not fail, and how many of these are unexplained.
fn repeats(entries: &[&Entry], harmed: &BTreeSet<u32>) -> (usize, usize) {
    // A process has at most one run of a job at a time, so its next line about the job is the end of that run.
    let mut runs: Vec<&Entry> = Vec::new();
    for entry in entries {
        match entry.event {
            Event::Began => runs.push(entry),
            Event::Failed => {
                if let Some(failed) = runs.iter().rposition(|run| run.pid == entry.pid) {
                    runs.remove(failed);
                }
            }
            Event::Done => {}
        }
    }
    let doubled = runs.len().saturating_sub(1);
    let by_harmed = runs.iter().filter(|run| harmed.contains(&run.pid)).count();
    let same_id = runs.windows(2).all(|two| two[0].id == two[1].id);
    (doubled, if same_id { doubled.saturating_sub(by_harmed) } else { doubled })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn at(ms: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(ms)
    }

    fn account(ledger: &[Entry], harmed: &[u32], waiting: Option<SystemTime>) -> Account {
        let jobs = BTreeMap::from([("a".to_owned(), at(100))]);
        Account::of(&jobs, ledger, &harmed.iter().copied().collect(), waiting)
    }

    /// Each line is `ms pid event` of job `a`. A fourth word is the ID, otherwise the ID is the name of the job.
    fn judged(lines: &[&str], harmed: &[u32]) -> Account {
        let ledger: Vec<_> = lines.iter().map(|line| entry(line)).collect();
        account(&ledger, harmed, None)
    }

    fn entry(line: &str) -> Entry {
        let words: Vec<_> = line.split(' ').collect();
        let event = match words[2] {
            "began" => Event::Began,
            "done" => Event::Done,
            _ => Event::Failed,
        };
        let (ms, pid) = (words[0].parse().expect("ms"), words[1].parse().expect("a pid"));
        let id = words.get(3).unwrap_or(&"a").to_string();
        Entry { at: at(ms), pid, event, job: "a".to_owned(), id }
    }

    fn counts(account: &Account) -> [usize; 4] {
        [account.lost, account.doubled, account.unexplained, account.early]
    }

    #[test]
    fn lost_repeated_unexplained_and_early_jobs_are_counted() {
        let rows: [(&[&str], &[u32], [usize; 4]); 9] = [
            (&["101 1 began", "102 1 done"], &[], [0, 0, 0, 0]),
            (&[], &[], [1, 0, 0, 0]),
            (&["101 1 began"], &[1], [1, 0, 0, 0]),
            (&["99 1 began", "102 1 done"], &[], [0, 0, 0, 1]),
            (&["101 1 began", "102 1 failed", "103 1 began", "104 1 done"], &[], [0, 0, 0, 0]),
            (&["101 1 began", "101 2 began", "102 1 done", "102 2 done"], &[], [0, 1, 1, 0]),
            (&["101 1 began", "201 2 began", "202 2 done"], &[1], [0, 1, 0, 0]),
            (&["101 1 began x", "201 2 began y", "202 2 done y"], &[1], [0, 1, 1, 0]),
            (
                &["101 1 began", "102 1 failed", "103 1 began", "201 2 began", "202 2 done"],
                &[1],
                [0, 1, 0, 0],
            ),
        ];
        for (lines, harmed, expected) in rows {
            assert_eq!(counts(&judged(lines, harmed)), expected, "{lines:?}, harmed: {harmed:?}");
        }
    }

    #[test]
    fn a_waiting_job_is_overdue_by_at_least_the_time_until_the_end() {
        let waits = account(&[], &[], Some(at(700)));
        assert_eq!((waits.overdue, waits.lost, waits.latest()), (1, 0, Duration::from_millis(600)));
        let began = account(&[entry("101 1 began")], &[], Some(at(700)));
        assert_eq!((began.overdue, began.lost, began.latest()), (0, 1, Duration::from_millis(1)));
        let lost = account(&[], &[], None);
        assert_eq!((lost.overdue, lost.lost, lost.latest()), (0, 1, Duration::ZERO));
    }

    #[test]
    fn lateness_is_that_of_the_first_run_and_accounts_can_be_added() {
        let mut account = judged(&["101 1 began", "102 1 failed", "900 1 began", "901 1 done"], &[]);
        assert_eq!(account.latest(), Duration::from_millis(1));
        account.add(&judged(&["400 1 began", "401 1 done"], &[]));
        assert_eq!((account.given, account.late(0.5)), (2, Duration::from_millis(1)));
        assert_eq!(account.latest(), Duration::from_millis(300));
        assert_eq!(Account::default().latest(), Duration::ZERO);
    }
}
