//! The verdict on one side of a scene: what became of each job.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::ledger::{Entry, Event};

/// What became of the jobs of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// How many there were.
    pub given: usize,
    /// Those that never ended well.
    pub lost: usize,
    /// Runs beyond the first that had not failed before: somebody got two mails, or might have.
    pub doubled: usize,
    /// Of those, the ones that no killed or stopped process explains, or that came under another id.
    pub unexplained: usize,
    /// Jobs whose first run began before they were due.
    pub early: usize,
    /// Jobs that had not begun when the scene was over and were not lost: they still waited.
    #[serde(default)]
    pub overdue: usize,
    /// How long after its time each job's first run began, in microseconds, the shortest first. For what is
    /// overdue, how long it had waited when the scene was over.
    pub late_us: Vec<u64>,
}

impl Account {
    /// Judges the jobs, which are due at these times, by a ledger. `harmed` are the processes that
    /// were killed or stopped. `waiting` is when the scene was over, if what had not begun then still waited.
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

    /// Both together.
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

    /// So much of the jobs that began, began within this time after they were due.
    pub fn late(&self, share: f64) -> Duration {
        let rank = (share * self.late_us.len() as f64).ceil() as usize;
        Duration::from_micros(self.late_us.get(rank.saturating_sub(1)).copied().unwrap_or_default())
    }

    /// The latest of them.
    pub fn latest(&self) -> Duration {
        self.late(1.0)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// How many runs of a job repeat one that had not failed, and how many of those nothing explains.
fn repeats(entries: &[&Entry], harmed: &BTreeSet<u32>) -> (usize, usize) {
    // A process runs a job once at a time: its next line about the job is the end of that run.
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

    /// Lines as `ms pid event`, all of job `a`; the id is the job unless a fourth word names it.
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
    fn each_way_in_which_a_job_can_go_is_told_from_the_others() {
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
    fn what_still_waits_is_overdue_by_at_least_the_time_until_then() {
        let waits = account(&[], &[], Some(at(700)));
        assert_eq!((waits.overdue, waits.lost, waits.latest()), (1, 0, Duration::from_millis(600)));
        let began = account(&[entry("101 1 began")], &[], Some(at(700)));
        assert_eq!((began.overdue, began.lost, began.latest()), (0, 1, Duration::from_millis(1)));
        let lost = account(&[], &[], None);
        assert_eq!((lost.overdue, lost.lost, lost.latest()), (0, 1, Duration::ZERO));
    }

    #[test]
    fn lateness_is_of_the_first_run_and_adds_up() {
        let mut account = judged(&["101 1 began", "102 1 failed", "900 1 began", "901 1 done"], &[]);
        assert_eq!(account.latest(), Duration::from_millis(1));
        account.add(&judged(&["400 1 began", "401 1 done"], &[]));
        assert_eq!((account.given, account.late(0.5)), (2, Duration::from_millis(1)));
        assert_eq!(account.latest(), Duration::from_millis(300));
        assert_eq!(Account::default().latest(), Duration::ZERO);
    }
}
