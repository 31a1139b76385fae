//! Single fields of records and states, read by their place.
//!
//! As the scripts read them: bytes that are cut short still tell what they
//! can. Whole ones are read with [`Record`](crate::wire::record::Record) and
//! [`State`](crate::wire::record::State).

use bytes::Bytes;

use crate::id::{ArmingId, Token};
use crate::wire::QUARANTINE_AT;
use crate::wire::record::{RECORD_HEAD, STATE_HEAD, State};

pub(super) fn arming(record: &[u8]) -> Option<ArmingId> {
    record.get(1..9).and_then(ArmingId::from_bytes)
}

pub(super) fn first_deadline(record: &[u8]) -> Option<u64> {
    number(record, RECORD_HEAD - 8)
}

pub(super) fn is_claimed(state: &[u8]) -> bool {
    state.get(1) == Some(&1)
}

pub(super) fn is_held_by(state: &[u8], token: Token) -> bool {
    state.get(2..10) == Some(token.as_bytes())
}

pub(super) fn token(state: &[u8]) -> Option<Token> {
    state.get(2..10).and_then(Token::from_bytes)
}

pub(super) fn lost_leases(state: &[u8]) -> u8 {
    state.get(14).copied().unwrap_or(0)
}

/// Whether its lost leases say so, or are cut off.
pub(super) fn may_be_suspect(state: &[u8]) -> bool {
    state.len() < 15 || lost_leases(state) >= QUARANTINE_AT
}

pub(super) fn attempt(state: &[u8]) -> u32 {
    let digits = state.get(10..14).and_then(|digits| digits.try_into().ok());
    digits.map_or(1, u32::from_be_bytes)
}

/// The present deadline; none where it is that of the record.
pub(super) fn present_deadline(state: &[u8]) -> Option<u64> {
    number(state, 17).filter(|deadline| *deadline > 0)
}

/// A state that is not cut short, of whatever version: a token that fits
/// speaks for itself.
pub(super) fn state(state: &Bytes) -> Option<State> {
    let snoozes = state.get(15..17)?.try_into().ok()?;
    Some(State {
        claimed: is_claimed(state),
        token: token(state)?,
        attempt: attempt(state),
        lost: lost_leases(state),
        snoozes: u16::from_be_bytes(snoozes),
        deadline: number(state, 17)?,
        history: state.slice(STATE_HEAD..),
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let digits = bytes.get(at..at + 8)?;
    digits.try_into().ok().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::record::Record;

    #[test]
    fn fields_are_where_the_encoders_put_them() {
        let record = Record { arming: ArmingId([7; 8]), deadline: 8, payload: Bytes::new() }.encode();
        assert_eq!((arming(&record), first_deadline(&record)), (Some(ArmingId([7; 8])), Some(8)));

        let state = State { lost: 3, deadline: 9, ..State::first(Token([5; 8])) }.encode();
        assert!(is_claimed(&state) && is_held_by(&state, Token([5; 8])));
        assert_eq!((token(&state), lost_leases(&state)), (Some(Token([5; 8])), 3));
        assert_eq!(present_deadline(&state), Some(9));
        assert_eq!(present_deadline(&State::waiting(1).encode()), None);
    }

    #[test]
    fn a_state_reads_as_it_was_written() {
        let history = Bytes::from_static(b"[]");
        let whole = State { lost: 3, snoozes: 4, deadline: 9, history, ..State::first(Token([5; 8])) };
        assert_eq!(state(&whole.encode()), Some(whole.clone()));
        assert_eq!(state(&whole.encode().slice(..STATE_HEAD - 1)), None);
    }

    #[test]
    fn what_is_cut_short_has_no_such_field() {
        assert_eq!((arming(b"\x01short"), first_deadline(b"\x01short")), (None, None));
        assert_eq!((token(b""), lost_leases(b""), present_deadline(b"")), (None, 0, None));
    }
}
