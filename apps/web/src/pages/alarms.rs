//! Alarms grouped by kind, each with a link.

use keylapse_console::format::short;
use keylapse_console::{Alarm, AlarmKind};

use super::frame::Frame;

/// Maximum alarms of one kind that are named.
const NAMED: usize = 8;

pub(super) struct AlarmGroup {
    pub(super) kind: AlarmKind,
    pub(super) word: String,
    pub(super) named: Vec<AlarmLink>,
    pub(super) more: usize,
}

/// An alarm with its link.
pub(super) struct AlarmLink {
    pub(super) link: String,
    pub(super) of: String,
    pub(super) says: String,
}

/// Groups alarms, in the order of their kinds.
pub(super) fn groups(alarms: &[Alarm], frame: &Frame) -> Vec<AlarmGroup> {
    let group = |kind| {
        let all: Vec<_> = alarms.iter().filter(|alarm| alarm.kind == kind).collect();
        let named = all.iter().take(NAMED).map(|alarm| named(alarm, frame)).collect();
        let more = all.len().saturating_sub(NAMED);
        (!all.is_empty()).then(|| AlarmGroup { kind, word: kind.as_str().replace('-', " "), named, more })
    };
    AlarmKind::ALL.into_iter().filter_map(group).collect()
}

fn named(alarm: &Alarm, frame: &Frame) -> AlarmLink {
    let says = short(&alarm.message, 600);
    let link = match (&alarm.topic, alarm.kind) {
        (None, _) => frame.path("/listeners"),
        (Some(topic), AlarmKind::HeldBack) => frame.destinations(topic),
        (Some(topic), _) => frame.topic(topic),
    };
    AlarmLink { link, of: alarm.subject(), says }
}
