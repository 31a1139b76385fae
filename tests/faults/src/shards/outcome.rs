//! What is printed of a run with several servers.

use std::fmt;

use crate::verdict::{Report, Wrong};

/// The verdict of a run, and what happened in it.
#[derive(Debug)]
pub struct Outcome {
    /// Of timers, and of keys of other programs.
    pub managed: Report,
    /// Whether other programs wrote any.
    pub has_keys: bool,
    /// Servers, without sentinels.
    pub nodes: usize,
    /// Slots that have another owner.
    pub moved_slots: usize,
}

impl Outcome {
    /// Whether every promise was kept, and there was something to keep.
    pub fn is_valid(&self) -> bool {
        self.managed.is_valid() && self.managed.handled > 0 && (!self.has_keys || self.managed.fired > 0)
    }
}

/// One line.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { managed, nodes, moved_slots, .. } = self;
        let count = |wrong| managed.count(wrong);
        write!(f, "nodes={nodes} armed={} handled={} ", managed.armed, managed.handled)?;
        write!(f, "attached={} fired={} ", managed.attached, managed.fired)?;
        write!(f, "lost={} early={} ", count(Wrong::Lost), count(Wrong::Early))?;
        write!(f, "duplicates={} explained={} ", managed.duplicated, managed.explained)?;
        write!(f, "unexplained={} moved_slots={moved_slots} ", count(Wrong::Unexplained))?;
        write!(f, "{}", managed.shards)?;
        if managed.unknowable > 0 {
            write!(f, " unknowable={}", managed.unknowable)?;
        }
        match count(Wrong::Unexpected) {
            0 => {}
            unexpected => write!(f, " unexpected={unexpected}")?,
        }
        if managed.left > 0 { write!(f, " left={}", managed.left) } else { Ok(()) }
    }
}
