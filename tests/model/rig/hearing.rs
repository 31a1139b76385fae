//! What a listener hears of a partition.

use bytes::Bytes;
use keylapse::Token;
use keylapse::internals::{Gap, Held, Event};
use tokio::sync::mpsc;

use super::Rig;

pub(crate) struct EventLoop {
    events: mpsc::Receiver<Event>,
    marks: u64,
}

impl EventLoop {
    /// Opens the stream and waits until it flows.
    pub(crate) async fn open(rig: &Rig) -> Self {
        let mut events = rig.store.events(std::slice::from_ref(&rig.at));
        loop {
            match events.recv().await {
                Some(Event::Anchored) => return Self { events, marks: 0 },
                Some(_) => {}
                None => panic!("the stream of events has ended"),
            }
        }
    }

    /// The wake-ups and fences of all calls so far.
    pub(crate) async fn so_far(&mut self, rig: &Rig) -> Vec<Event> {
        let mut heard = Vec::new();
        if rig.is_memory() {
            while let Ok(event) = self.events.try_recv() {
                heard.push(event);
            }
        } else {
            self.until_mark(rig, &mut heard).await;
        }
        heard.retain(|event| matches!(event, Event::Wake { .. } | Event::Fence { .. }));
        heard
    }

    /// A mark that is published now is heard after all that was published before.
    async fn until_mark(&mut self, rig: &Rig, heard: &mut Vec<Event>) {
        self.marks += 1;
        let number = self.marks.to_be_bytes();
        rig.publish(&[&b"f"[..], &number, b"mark"].concat()).await;
        let token = Token::from_bytes(&number).expect("it has 8 bytes");
        let mark = Event::Fence { partition: 0, held: Held { key: Bytes::from_static(b"mark"), token } };
        loop {
            match self.events.recv().await {
                Some(event) if event == mark => return,
                Some(Event::Gap(gap)) if gap != Gap::Silent => panic!("events were lost: {gap:?}"),
                Some(event) => heard.push(event),
                None => panic!("the stream of events has ended"),
            }
        }
    }
}
