//! What somebody has agreed to, done; and in words what became of it.

use keylapse::Result;
use keylapse_console::{Became, Entry, KnownTopic, text};

use super::desk::Desk;
use super::model::{Act, Deed};
use crate::output::short;

/// What became of a deed: whether it was done, and what to say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) was_done: bool,
    pub(super) says: String,
}

impl Desk {
    pub(super) async fn act(&self, act: &Act) -> Result<Done> {
        // Before anything is waited for: another screen may show other letters then.
        let entry = match &act.deed {
            Deed::Replay(letter) | Deed::Drop(letter) => self.letter(&act.topic, letter),
            _ => None,
        };
        let topic = self.console.topic(&act.topic).await?;
        let (of, became) = match &act.deed {
            Deed::RunNow(key) => (shown(key), Became::of_run_now(topic.run_now(key).await?)),
            Deed::Cancel(key) => (shown(key), Became::of_cancel(topic.cancel(key).await?)),
            Deed::Replay(letter) => (shown(&letter.key), replay(&topic, entry).await?),
            Deed::Drop(letter) => (shown(&letter.key), drop_letter(&topic, entry).await?),
            Deed::Pause(reason) => {
                topic.pause(reason).await?;
                (act.topic.clone(), Became::PAUSED)
            }
            Deed::Resume => {
                topic.resume().await?;
                (act.topic.clone(), Became::RESUMED)
            }
        };
        Ok(Done { was_done: became.was_done, says: format!("{of}: {}", became.says) })
    }
}

async fn replay(topic: &KnownTopic, letter: Option<Entry>) -> Result<Became> {
    let Some(letter) = letter else { return Ok(Became::GONE) };
    topic.replay(&letter, false).await.map(Became::of_replay)
}

async fn drop_letter(topic: &KnownTopic, letter: Option<Entry>) -> Result<Became> {
    let Some(letter) = letter else { return Ok(Became::GONE) };
    topic.drop_letter(&letter).await.map(Became::of_drop)
}

fn shown(key: &[u8]) -> String {
    short(&text::escape(key), 60)
}
