//! Those who listen for hints.

use tokio::sync::mpsc;

use super::turn::Signal;
use crate::store::keys::Partition;
use crate::store::{Gap, Hint};

/// Hints that may wait for a listener, as on a subscription.
const QUEUE: usize = 8192;

#[derive(Debug, Default)]
pub(super) struct Ears(Vec<Ear>);

#[derive(Debug)]
struct Ear {
    partitions: Vec<Partition>,
    queue: mpsc::Sender<Hint>,
}

impl Ears {
    /// One more listener. There is nothing to connect: hints flow at once.
    pub(super) fn open(&mut self, partitions: &[Partition]) -> mpsc::Receiver<Hint> {
        let (queue, heard) = mpsc::channel(QUEUE);
        let ear = Ear { partitions: partitions.to_vec(), queue };
        ear.tell(Hint::Anchored);
        self.0.push(ear);
        heard
    }

    /// Tells what a call had to say to the listeners of its partition.
    pub(super) fn tell(&mut self, at: &Partition, signals: Vec<Signal>) {
        for signal in signals {
            self.tell_each(|ear| {
                let partition = ear.partitions.iter().position(|listened| listened == at)?;
                Some(match &signal {
                    Signal::Wake(at) => Hint::Wake { partition, at: *at },
                    Signal::Fence(held) => Hint::Fence { partition, held: held.clone() },
                })
            });
        }
    }

    /// Tells everybody, whatever they listen to, as expired keys are.
    pub(super) fn tell_all(&mut self, hint: &Hint) {
        self.tell_each(|_| Some(hint.clone()));
    }

    fn tell_each(&mut self, hint: impl Fn(&Ear) -> Option<Hint>) {
        self.0.retain(|ear| !ear.queue.is_closed());
        for ear in &self.0 {
            if let Some(hint) = hint(ear) {
                ear.tell(hint);
            }
        }
    }
}

impl Ear {
    /// The last free place says that there was no other: what is dropped is
    /// then known even if nothing is ever said again.
    fn tell(&self, hint: Hint) {
        let last_place = self.queue.capacity() == 1;
        let hint = if last_place { Hint::Gap(Gap::Overflow) } else { hint };
        // Refused when it is full, and the gap told, or when nobody is there.
        let _ = self.queue.try_send(hint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(index: u32) -> Partition {
        Partition::new("keylapse", "a", index, 3)
    }

    #[test]
    fn each_hears_of_its_own_partitions_by_their_places() {
        let mut ears = Ears::default();
        let mut heard = ears.open(&[partition(2), partition(1)]);
        ears.tell(&partition(0), vec![Signal::Wake(5)]);
        ears.tell(&partition(1), vec![Signal::Wake(6)]);
        assert_eq!(heard.try_recv(), Ok(Hint::Anchored));
        assert_eq!(heard.try_recv(), Ok(Hint::Wake { partition: 1, at: 6 }));
        assert!(heard.try_recv().is_err());
    }

    #[test]
    fn a_full_queue_ends_with_a_gap_and_goes_on_when_it_is_read() {
        let mut ears = Ears::default();
        let mut heard = ears.open(&[partition(0)]);
        for at in 0..QUEUE as u64 + 5 {
            ears.tell(&partition(0), vec![Signal::Wake(at)]);
        }
        let all: Vec<Hint> = std::iter::from_fn(|| heard.try_recv().ok()).collect();
        assert_eq!(all.len(), QUEUE);
        assert_eq!(all.last(), Some(&Hint::Gap(Gap::Overflow)));
        ears.tell(&partition(0), vec![Signal::Wake(7)]);
        assert_eq!(heard.try_recv(), Ok(Hint::Wake { partition: 0, at: 7 }));
    }

    #[test]
    fn whoever_has_gone_is_forgotten() {
        let mut ears = Ears::default();
        drop(ears.open(&[partition(0)]));
        ears.tell_all(&Hint::Anchored);
        assert!(ears.0.is_empty());
    }
}
