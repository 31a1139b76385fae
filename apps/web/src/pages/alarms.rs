//! Alarms by their kinds: each with a word, a colour, and where it leads to.

use keylapse_console::words::short;
use keylapse_console::{Alarm, AlarmKind};

use super::frame::Frame;

/// Alarms of one kind that are named.
const NAMED: usize = 8;

/// The alarms of one kind.
pub(super) struct Group {
    pub(super) kind: AlarmKind,
    pub(super) word: String,
    pub(super) named: Vec<Named>,
    pub(super) more: usize,
}

/// An alarm: what is in its link, and what stands behind that.
pub(super) struct Named {
    pub(super) link: String,
    pub(super) of: String,
    pub(super) says: String,
}

/// All of them, in the order of their kinds.
pub(super) fn groups(alarms: &[Alarm], frame: &Frame) -> Vec<Group> {
    let group = |kind| {
        let all: Vec<_> = alarms.iter().filter(|alarm| alarm.kind == kind).collect();
        let named = all.iter().take(NAMED).map(|alarm| named(alarm, frame)).collect();
        let more = all.len().saturating_sub(NAMED);
        (!all.is_empty()).then(|| Group { kind, word: kind.as_str().replace('-', " "), named, more })
    };
    AlarmKind::ALL.into_iter().filter_map(group).collect()
}

fn named(alarm: &Alarm, frame: &Frame) -> Named {
    let says = short(&alarm.says, 600);
    let link = match (&alarm.topic, alarm.kind) {
        (None, _) => frame.path("/listeners"),
        (Some(topic), AlarmKind::HeldBack) => frame.hosts(topic),
        (Some(topic), _) => frame.topic(topic),
    };
    Named { link, of: alarm.subject(), says }
}
