//! Those who listen for events.

use tokio::sync::mpsc;

use crate::wire::memory::turn::Signal;
use crate::wire::names::Partition;
use crate::events::event::{Gap, Event};

/// Hints that may wait for a listener, as on a subscription.
const QUEUE: usize = 8192;

#[derive(Debug, Default)]
pub(super) struct EventStream(Vec<Decoder>);

#[derive(Debug)]
struct Decoder {
    partitions: Vec<Partition>,
    queue: mpsc::Sender<Event>,
}

impl EventStream {
    /// One more listener. There is nothing to connect: events flow at once.
    pub(super) fn open(&mut self, partitions: &[Partition]) -> mpsc::Receiver<Event> {
        let (queue, heard) = mpsc::channel(QUEUE);
        let decoder = Decoder { partitions: partitions.to_vec(), queue };
        decoder.tell(Event::Anchored);
        self.0.push(decoder);
        heard
    }

    /// Tells what a call had to say to the listeners of its partition.
    pub(super) fn tell(&mut self, at: &Partition, signals: Vec<Signal>) {
        for signal in signals {
            self.tell_each(|decoder| {
                let partition = decoder.partitions.iter().position(|listened| listened == at)?;
                Some(match &signal {
                    Signal::Wake(at) => Event::Wake { partition, at: *at },
                    Signal::Fence(held) => Event::Fence { partition, held: held.clone() },
                })
            });
        }
    }

    /// Tells everybody, whatever they listen to, as expired keys are.
    pub(super) fn tell_all(&mut self, event: &Event) {
        self.tell_each(|_| Some(event.clone()));
    }

    fn tell_each(&mut self, event: impl Fn(&Decoder) -> Option<Event>) {
        self.0.retain(|decoder| !decoder.queue.is_closed());
        for decoder in &self.0 {
            if let Some(event) = event(decoder) {
                decoder.tell(event);
            }
        }
    }
}

impl Decoder {
    /// The last free place says that there was no other: what is dropped is
    /// then known even if nothing is ever said again.
    fn tell(&self, event: Event) {
        let last_place = self.queue.capacity() == 1;
        let event = if last_place { Event::Gap(Gap::Overflow) } else { event };
        // Refused when it is full, and the gap told, or when nobody is there.
        let _ = self.queue.try_send(event);
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
        let mut stream = EventStream::default();
        let mut heard = stream.open(&[partition(2), partition(1)]);
        stream.tell(&partition(0), vec![Signal::Wake(5)]);
        stream.tell(&partition(1), vec![Signal::Wake(6)]);
        assert_eq!(heard.try_recv(), Ok(Event::Anchored));
        assert_eq!(heard.try_recv(), Ok(Event::Wake { partition: 1, at: 6 }));
        assert!(heard.try_recv().is_err());
    }

    #[test]
    fn a_full_queue_ends_with_a_gap_and_goes_on_when_it_is_read() {
        let mut stream = EventStream::default();
        let mut heard = stream.open(&[partition(0)]);
        for at in 0..QUEUE as u64 + 5 {
            stream.tell(&partition(0), vec![Signal::Wake(at)]);
        }
        let all: Vec<Event> = std::iter::from_fn(|| heard.try_recv().ok()).collect();
        assert_eq!(all.len(), QUEUE);
        assert_eq!(all.last(), Some(&Event::Gap(Gap::Overflow)));
        stream.tell(&partition(0), vec![Signal::Wake(7)]);
        assert_eq!(heard.try_recv(), Ok(Event::Wake { partition: 0, at: 7 }));
    }

    #[test]
    fn whoever_has_gone_is_forgotten() {
        let mut stream = EventStream::default();
        drop(stream.open(&[partition(0)]));
        stream.tell_all(&Event::Anchored);
        assert!(stream.0.is_empty());
    }
}
