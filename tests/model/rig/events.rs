//! What a listener hears of a partition.

use bytes::Bytes;
use keylapse::inside::receiving::event::{Event, Gap};
use keylapse::inside::receiving::events;
use keylapse_connection::id::Token;
use keylapse_wire::LeaseRef;
use tokio::sync::mpsc;

use super::Rig;

pub(crate) struct Events {
    events: mpsc::Receiver<Event>,
    marks: u64,
}

impl Events {
    /// Opens the stream and waits until it flows.
    pub(crate) async fn open(rig: &Rig) -> Self {
        let mut events = events(&rig.store, std::slice::from_ref(&rig.at));
        while events.recv().await.expect("the stream goes on") != Event::Anchored {}
        Self { events, marks: 0 }
    }

    /// The wake-ups and fences of all calls so far: a mark that is published now is heard after all that was
    /// published before.
    pub(crate) async fn so_far(&mut self, rig: &Rig) -> Vec<Event> {
        self.marks += 1;
        let number = self.marks.to_be_bytes();
        rig.publish(&[&b"f"[..], &number, b"mark"].concat()).await;
        let token = Token::from_bytes(&number).expect("it has 8 bytes");
        let mark = Event::Fence { partition: 0, held: LeaseRef { key: Bytes::from_static(b"mark"), token } };
        let mut heard = Vec::new();
        loop {
            match self.events.recv().await.expect("the stream goes on") {
                event if event == mark => return heard,
                Event::Gap(gap) if gap != Gap::Silent => panic!("events were lost: {gap:?}"),
                event @ (Event::Wake { .. } | Event::Unclaimed { .. } | Event::Fence { .. }) => {
                    heard.push(event);
                }
                _ => {}
            }
        }
    }
}
