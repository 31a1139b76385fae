//! What somebody has agreed to, done; and in words what became of it.

use keylapse::console::{Entry, KnownTopic, text};
use keylapse::{Replayed, Rescheduled, Result};

use super::desk::Desk;
use super::model::{Act, Deed};
use crate::commands::outcome;
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
        let (was_done, of, says) = match &act.deed {
            Deed::RunNow(key) => of_key(key, moved(topic.run_now(key).await?)),
            Deed::Cancel(key) => of_key(key, outcome::cancelled(topic.cancel(key).await?)),
            Deed::Replay(letter) => of_key(&letter.key, replay(&topic, entry).await?),
            Deed::Drop(letter) => of_key(&letter.key, drop_letter(&topic, entry).await?),
            Deed::Pause(reason) => {
                topic.pause(reason).await?;
                (true, act.topic.clone(), outcome::PAUSED)
            }
            Deed::Resume => {
                topic.resume().await?;
                (true, act.topic.clone(), outcome::RESUMED)
            }
        };
        Ok(Done { was_done, says: format!("{of}: {says}") })
    }
}

async fn replay(topic: &KnownTopic, letter: Option<Entry>) -> Result<(bool, &'static str)> {
    let Some(letter) = letter else { return Ok(GONE) };
    Ok(match topic.replay(&letter, false).await? {
        Replayed::Replayed => (true, "replayed: its attempts start over"),
        Replayed::Exists => (false, "left alone: the key has a timer"),
        Replayed::Unreadable => (false, "left alone: its record cannot be read"),
        _ => GONE,
    })
}

async fn drop_letter(topic: &KnownTopic, letter: Option<Entry>) -> Result<(bool, &'static str)> {
    let Some(letter) = letter else { return Ok(GONE) };
    Ok(if topic.drop_letter(&letter).await? { (true, "dropped") } else { GONE })
}

/// Somebody else was quicker.
const GONE: (bool, &str) = (false, "the letter is gone: replayed, dropped or trimmed meanwhile");

fn of_key(key: &[u8], (was_done, says): (bool, &'static str)) -> (bool, String, &'static str) {
    (was_done, short(&text::escape(key), 60), says)
}

fn moved(moved: Rescheduled) -> (bool, &'static str) {
    outcome::moved(moved).map_or_else(|says| (false, says), |_| (true, "due now"))
}
