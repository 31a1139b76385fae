//! Ids in the order in which they are asked for, so that failures read well.

use keylapse::timers::ArmingId;
use keylapse_connection::id::{CancelId, ReplayId, SlotId, Token};

/// Counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids(u64);

impl Ids {
    fn next(&mut self, kind: u8) -> [u8; 8] {
        self.0 += 1;
        let mut id = self.0.to_be_bytes();
        id[0] = kind;
        id
    }

    pub(crate) fn arming(&mut self) -> ArmingId {
        ArmingId::from_bytes(&self.next(b'A')).expect("it has 8 bytes")
    }

    pub(crate) fn token(&mut self) -> Token {
        Token::from_bytes(&self.next(b'T')).expect("it has 8 bytes")
    }

    pub(crate) fn cancel(&mut self) -> CancelId {
        CancelId::from_bytes(&self.next(b'C')).expect("it has 8 bytes")
    }

    pub(crate) fn replay(&mut self) -> ReplayId {
        ReplayId::from_bytes(&self.next(b'R')).expect("it has 8 bytes")
    }

    /// A listener has one for good.
    pub(crate) fn slot(number: u64) -> SlotId {
        SlotId::from_bytes(&number.to_be_bytes()).expect("it has 8 bytes")
    }
}
