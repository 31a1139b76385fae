//! What a listener hears of a partition.

use bytes::Bytes;
use keylapse::Token;
use keylapse::store::{Gap, Held, Hint};
use tokio::sync::mpsc;

use super::Rig;

pub(crate) struct Hearing {
    hints: mpsc::Receiver<Hint>,
    marks: u64,
}

impl Hearing {
    /// Opens the stream and waits until it flows.
    pub(crate) async fn open(rig: &Rig) -> Self {
        let mut hints = rig.store.hints(std::slice::from_ref(&rig.at));
        loop {
            match hints.recv().await {
                Some(Hint::Anchored) => return Self { hints, marks: 0 },
                Some(_) => {}
                None => panic!("the stream of hints has ended"),
            }
        }
    }

    /// The wake-ups and fences of all calls so far.
    pub(crate) async fn so_far(&mut self, rig: &Rig) -> Vec<Hint> {
        let mut heard = Vec::new();
        if rig.is_memory() {
            while let Ok(hint) = self.hints.try_recv() {
                heard.push(hint);
            }
        } else {
            self.until_mark(rig, &mut heard).await;
        }
        heard.retain(|hint| matches!(hint, Hint::Wake { .. } | Hint::Fence { .. }));
        heard
    }

    /// A mark that is published now is heard after all that was published before.
    async fn until_mark(&mut self, rig: &Rig, heard: &mut Vec<Hint>) {
        self.marks += 1;
        let number = self.marks.to_be_bytes();
        rig.publish(&[&b"f"[..], &number, b"mark"].concat()).await;
        let token = Token::from_bytes(&number).expect("it has 8 bytes");
        let mark = Hint::Fence { partition: 0, held: Held { key: Bytes::from_static(b"mark"), token } };
        loop {
            match self.hints.recv().await {
                Some(hint) if hint == mark => return,
                Some(Hint::Gap(gap)) if gap != Gap::Silent => panic!("hints were lost: {gap:?}"),
                Some(hint) => heard.push(hint),
                None => panic!("the stream of hints has ended"),
            }
        }
    }
}
