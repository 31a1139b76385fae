//! The bytes of records, states and letters as imports and tests write them. Else the library only reads them: the
//! scripts write.

use bytes::{BufMut, Bytes, BytesMut};

use super::record::{LETTER_HEAD, Letter, RECORD_HEAD, Record, STATE_HEAD, State, VERSION};

impl Record {
    /// The record's bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(RECORD_HEAD + self.payload.len());
        out.put_slice(&Self::head(self.arming));
        out.put_u64(self.deadline);
        out.put_slice(&self.payload);
        out.freeze()
    }
}

impl State {
    /// The state's bytes.
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

impl Letter {
    /// The letter's bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(LETTER_HEAD + self.state.len() + self.record.len());
        out.put_u8(VERSION);
        out.put_u8(self.reason.code());
        out.put_u64(self.died);
        out.put_u32(u32::try_from(self.state.len()).unwrap_or(u32::MAX));
        out.put_slice(&self.state);
        out.put_slice(&self.record);
        out.freeze()
    }
}
