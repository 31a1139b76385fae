//! The bytes of records, states and dead letters. docs/internals/wire.md is the contract.
//!
//! Scripts write these bytes, and the library reads them. Imports and tests write them, too.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::DeadReason;
use crate::id::{ArmingId, Token};
use crate::trace::Traceparent;

/// The version byte of records, states and dead letters.
pub(super) const VERSION: u8 = 1;
/// The length of a record's head: version, arming ID, deadline.
pub const RECORD_HEAD: usize = 17;
/// Added to the version of a record that has a trace context before its payload. timers.lua has the sum, 129.
const TRACED: u8 = 128;
/// The length of a state's head: version, claimed, token, attempt, lost leases, snoozes, deadline.
const STATE_HEAD: usize = 25;
/// The length of a dead letter's head: version, reason, time of death, length of the state.
pub(super) const DEAD_LETTER_HEAD: usize = 14;

/// The data of an arming. It is written once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The ID of the arming.
    pub arming: ArmingId,
    /// The first deadline, in ms since 1970.
    pub deadline: u64,
    /// The payload that the handler receives.
    pub payload: Bytes,
}

/// The error of bytes that are cut short, or that this version of keylapse did not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// Returns the bytes after the version. Fails if the version is unknown, or if there are fewer than `head` bytes.
fn without_version(mut bytes: Bytes, head: usize) -> Result<Bytes, Unreadable> {
    if bytes.len() < head || bytes.get_u8() != VERSION {
        return Err(Unreadable);
    }
    Ok(bytes)
}

/// Reads the eight bytes of an ID, and advances.
fn read_id(bytes: &mut Bytes) -> [u8; 8] {
    bytes.get_u64().to_be_bytes()
}

impl Record {
    /// Returns the bytes before the deadline, which callers of arm.lua send.
    pub(crate) fn head(arming: ArmingId) -> [u8; 9] {
        let mut head = [VERSION; 9];
        head[1..].copy_from_slice(arming.as_bytes());
        head
    }

    /// Returns these bytes for a record that has a trace context before its payload.
    pub(crate) fn traced_head(arming: ArmingId) -> [u8; 9] {
        let mut head = Self::head(arming);
        head[0] += TRACED;
        head
    }

    /// Decodes a record without copying its payload.
    pub fn decode(bytes: Bytes) -> Result<Self, Unreadable> {
        let traced = Self::traceparent(&bytes).is_some();
        let mut rest = match traced {
            true => bytes.slice(1..),
            false => without_version(bytes, RECORD_HEAD)?,
        };
        let (arming, deadline) = (ArmingId(read_id(&mut rest)), rest.get_u64());
        if traced {
            rest.advance(Traceparent::LENGTH);
        }
        Ok(Self { arming, deadline, payload: rest })
    }

    /// Returns the trace context of the producer, if the record has one.
    pub fn traceparent(bytes: &[u8]) -> Option<Traceparent> {
        let traced = bytes.first() == Some(&(VERSION + TRACED));
        let trace = bytes.get(RECORD_HEAD..RECORD_HEAD + Traceparent::LENGTH).filter(|_| traced)?;
        trace.try_into().ok().map(Traceparent)
    }

    /// Decodes a queued record: of a plain arming, of an arming that the running attempt made, or of the latest of several
    /// expiry cycles.
    pub fn decode_kept(bytes: Bytes) -> Result<Self, Unreadable> {
        match bytes.first() {
            Some(&OWN) => Self::decode(bytes.slice(1..)),
            Some(&CYCLES) if bytes.len() >= CYCLES_HEAD => Self::decode(bytes.slice(CYCLES_HEAD..)),
            _ => Self::decode(bytes),
        }
    }

    /// Encodes the record.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(RECORD_HEAD + self.payload.len());
        out.put_slice(&Self::head(self.arming));
        out.put_u64(self.deadline);
        out.put_slice(&self.payload);
        out.freeze()
    }
}

/// The first byte of queued expiry cycles of an attached key. Their number and the record of the latest follow.
pub(super) const CYCLES: u8 = b'L';
/// The first byte of a queued arming that the running attempt made for its own key. The record follows.
pub(super) const OWN: u8 = b'O';
/// The length of the first byte and the number of cycles.
const CYCLES_HEAD: usize = 5;

/// The state of a timer, which claims, failures and moves change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// True if a claim holds the timer. It stays set when the lease runs out.
    pub claimed: bool,
    /// The token of the present claim, or of the last one if its lease was lost; else zeros.
    pub token: Token,
    /// The running or next attempt, from 1.
    pub attempt: u32,
    /// The number of leases lost since a live holder last settled.
    pub lost: u8,
    /// The number of snoozes since the arming.
    pub snoozes: u16,
    /// The present deadline, in ms; 0: that of the record.
    pub deadline: u64,
    /// The failed attempts, as [`History`](crate::History) encodes them.
    pub history: Bytes,
}

impl State {
    /// Creates the state of a first attempt that `token` holds.
    pub fn first(token: Token) -> Self {
        Self { claimed: true, token, ..Self::waiting(1) }
    }

    /// Creates a state that no claim holds.
    pub fn waiting(attempt: u32) -> Self {
        Self { attempt, ..Self::default() }
    }

    /// Returns the present deadline, in ms.
    pub fn deadline_after(&self, record: &Record) -> u64 {
        if self.deadline > 0 { self.deadline } else { record.deadline }
    }

    /// Decodes a state without copying its history.
    pub fn decode(bytes: Bytes) -> Result<Self, Unreadable> {
        let mut rest = without_version(bytes, STATE_HEAD)?;
        Ok(Self {
            claimed: rest.get_u8() == 1,
            token: Token(read_id(&mut rest)),
            attempt: rest.get_u32(),
            lost: rest.get_u8(),
            snoozes: rest.get_u16(),
            deadline: rest.get_u64(),
            history: rest,
        })
    }

    /// Encodes the state.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(STATE_HEAD + self.history.len());
        out.put_u8(VERSION);
        out.put_u8(self.claimed.into());
        out.put_slice(self.token.as_bytes());
        out.put_u32(self.attempt);
        out.put_u8(self.lost);
        out.put_u16(self.snoozes);
        out.put_u64(self.deadline);
        out.put_slice(&self.history);
        out.freeze()
    }
}

/// A dead letter as Redis holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDeadLetter {
    /// Why the timer became a dead letter.
    pub reason: DeadReason,
    /// When it became one, in ms since 1970.
    pub died: u64,
    /// The bytes of the last state, even if they are broken.
    pub state: Bytes,
    /// The bytes of the record, even if they are broken.
    pub record: Bytes,
}

impl StoredDeadLetter {
    /// Creates a dead letter from bytes that cannot be decoded as one.
    pub fn unreadable(bytes: Bytes) -> Self {
        Self { reason: DeadReason::Unreadable, died: 0, state: Bytes::new(), record: bytes }
    }

    /// Decodes a dead letter without copying.
    pub fn decode(bytes: Bytes) -> Result<Self, Unreadable> {
        let mut rest = without_version(bytes, DEAD_LETTER_HEAD)?;
        let (reason, died) = (DeadReason::from_code(rest.get_u8()), rest.get_u64());
        let length = rest.get_u32() as usize;
        if length > rest.len() {
            return Err(Unreadable);
        }
        Ok(Self { reason, died, state: rest.split_to(length), record: rest })
    }

    /// Encodes the dead letter.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(DEAD_LETTER_HEAD + self.state.len() + self.record.len());
        out.put_u8(VERSION);
        out.put_u8(self.reason.code());
        out.put_u64(self.died);
        out.put_u32(u32::try_from(self.state.len()).unwrap_or(u32::MAX));
        out.put_slice(&self.state);
        out.put_slice(&self.record);
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::History;
    use proptest::prelude::*;

    fn any_bytes() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(any::<u8>(), 0..64).prop_map(Bytes::from)
    }

    proptest! {
        #[test]
        fn records_read_back(arming: [u8; 8], deadline: u64, payload in any_bytes()) {
            let record = Record { arming: ArmingId(arming), deadline, payload };
            prop_assert_eq!(Record::decode(record.encode()), Ok(record));
        }

        #[test]
        fn states_read_back(
            claimed: bool, token: [u8; 8], attempt: u32, lost: u8, snoozes: u16, deadline: u64,
            history in any_bytes(),
        ) {
            let state = State { claimed, token: Token(token), attempt, lost, snoozes, deadline, history };
            prop_assert_eq!(State::decode(state.encode()), Ok(state));
        }

        #[test]
        fn letters_read_back(reason: u8, died: u64, state in any_bytes(), record in any_bytes()) {
            let letter = StoredDeadLetter { reason: DeadReason::from_code(reason), died, state, record };
            prop_assert_eq!(StoredDeadLetter::decode(letter.encode()), Ok(letter));
        }

        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in any_bytes()) {
            let _ = Record::decode(bytes.clone());
            let _ = State::decode(bytes.clone());
            let _ = StoredDeadLetter::decode(bytes.clone());
            let _ = History::decode(&bytes);
        }
    }

    #[test]
    fn a_record_may_say_where_a_trace_stands_before_its_payload() {
        let record = Record { arming: ArmingId([7; 8]), deadline: 258, payload: Bytes::from_static(b"p") };
        let trace = Traceparent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        let head = Record::traced_head(record.arming);
        let bytes = Bytes::from([&head, &258_u64.to_be_bytes()[..], &trace.0, b"p"].concat());
        assert_eq!(
            (Record::decode(bytes.clone()), Record::traceparent(&bytes)),
            (Ok(record.clone()), Some(trace))
        );
        assert_eq!(Record::traceparent(&record.encode()), None);
        let cut = bytes.slice(..RECORD_HEAD + Traceparent::LENGTH - 1);
        assert_eq!((Record::decode(cut.clone()), Record::traceparent(&cut)), (Err(Unreadable), None));
    }

    #[test]
    fn newer_and_broken_bytes_are_refused() {
        let newer = [&[VERSION + 1][..], &[0; RECORD_HEAD]].concat();
        for bad in [&newer[..], b"\x02", b"\x01short", b""] {
            assert_eq!(Record::decode(Bytes::copy_from_slice(bad)), Err(Unreadable), "{bad:?}");
        }
        let cut = Bytes::from_static(b"\x01u\0\0\0\0\0\0\0\0\0\0\0\x09abc");
        assert_eq!(StoredDeadLetter::decode(cut), Err(Unreadable));
    }

    #[test]
    fn the_bytes_are_those_of_the_contract() {
        let record = Record { arming: ArmingId([7; 8]), deadline: 258, payload: Bytes::from_static(b"p") };
        assert_eq!(record.encode(), b"\x01\x07\x07\x07\x07\x07\x07\x07\x07\0\0\0\0\0\0\x01\x02p".as_slice());
        let held = State { attempt: 3, lost: 4, snoozes: 5, deadline: 6, ..State::first(Token([9; 8])) };
        let bytes = b"\x01\x01\x09\x09\x09\x09\x09\x09\x09\x09\0\0\0\x03\x04\0\x05\0\0\0\0\0\0\0\x06";
        assert_eq!(held.encode(), bytes.as_slice());
        assert_eq!((bytes.len(), record.encode().len()), (STATE_HEAD, RECORD_HEAD + 1));
        let letter = StoredDeadLetter {
            reason: DeadReason::Permanent,
            died: 2,
            state: "s".into(),
            record: "r".into(),
        };
        assert_eq!(letter.encode(), b"\x01p\0\0\0\0\0\0\0\x02\0\0\0\x01sr".as_slice());
    }

    #[test]
    fn heads_alone_are_whole_and_a_byte_less_is_not() {
        let record = Record { arming: ArmingId([7; 8]), deadline: 258, payload: Bytes::new() }.encode();
        assert!(Record::decode(record.clone()).is_ok());
        assert_eq!(Record::decode(record.slice(..RECORD_HEAD - 1)), Err(Unreadable));
        let state = State::waiting(1).encode();
        assert!(State::decode(state.clone()).is_ok());
        assert_eq!(State::decode(state.slice(..STATE_HEAD - 1)), Err(Unreadable));
        let letter = StoredDeadLetter::unreadable(Bytes::new()).encode();
        assert!(StoredDeadLetter::decode(letter.clone()).is_ok());
        assert_eq!(StoredDeadLetter::decode(letter.slice(..DEAD_LETTER_HEAD - 1)), Err(Unreadable));
    }

    #[test]
    fn the_present_deadline_is_the_states_if_it_has_one() {
        let record = Record { arming: ArmingId([7; 8]), deadline: 100, payload: Bytes::new() };
        for (deadline, present) in [(0, 100), (1, 1), (99, 99), (200, 200)] {
            let state = State { deadline, ..State::waiting(1) };
            assert_eq!(state.deadline_after(&record), present);
        }
    }
}
