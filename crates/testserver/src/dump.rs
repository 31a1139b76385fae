//! The encoding of values for DUMP and RESTORE.
//!
//! It uses the plainest encodings of RDB files, which a real server can read. A real server mostly dumps packed encodings,
//! which this one cannot read.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::value::{HashFields, List, Members, StoredValue, Stream, Zset};

const VERSION: u16 = 10;
const TEXT: u8 = 0;
const LIST: u8 = 1;
const SET: u8 = 2;
const HASH: u8 = 4;
const ZSET: u8 = 5;
/// An encoding of this server alone.
const STREAM: u8 = 240;
/// The number of bytes of version and checksum.
const FOOTER: usize = 10;

pub(crate) fn write(value: &StoredValue) -> Bytes {
    let mut out = BytesMut::new();
    match value {
        StoredValue::Text(text) => {
            out.put_u8(TEXT);
            put(&mut out, text);
        }
        StoredValue::List(List(items)) => {
            head(&mut out, LIST, items.len());
            items.iter().for_each(|item| put(&mut out, item));
        }
        StoredValue::Set(members) => {
            head(&mut out, SET, members.len());
            members.iter().for_each(|member| put(&mut out, member));
        }
        StoredValue::Hash(fields) => {
            head(&mut out, HASH, fields.len());
            fields
                .iter()
                .for_each(|(field, value)| [field, value].iter().for_each(|item| put(&mut out, item)));
        }
        StoredValue::Zset(zset) => {
            head(&mut out, ZSET, zset.len());
            for (member, score) in zset.iter() {
                put(&mut out, member);
                out.put_f64_le(score);
            }
        }
        StoredValue::Stream(stream) => {
            head(&mut out, STREAM, stream.len());
            for (ms, number) in stream.ids() {
                out.put_u64(ms);
                out.put_u64(number);
            }
        }
    }
    out.put_u16_le(VERSION);
    let sum = checksum(&out);
    out.put_u64_le(sum);
    out.freeze()
}

fn head(out: &mut BytesMut, kind: u8, count: usize) {
    out.put_u8(kind);
    length(out, count);
}

fn put(out: &mut BytesMut, bytes: &[u8]) {
    length(out, bytes.len());
    out.put_slice(bytes);
}

/// Writes a length, whose first two bits encode the number of its bytes.
fn length(out: &mut BytesMut, length: usize) {
    match length {
        0..64 => out.put_u8(length as u8),
        64..16384 => out.put_u16(0x4000 | length as u16),
        _ => {
            out.put_u8(0x80);
            out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        }
    }
}

/// Returns whether version and checksum are valid.
pub(crate) fn is_whole(dump: &[u8]) -> bool {
    let Some(at) = dump.len().checked_sub(FOOTER) else { return false };
    let mut footer = &dump[at..];
    footer.get_u16_le() <= VERSION && footer.get_u64_le() == checksum(&dump[..at + 2])
}

/// Decodes a value. Returns `None` if it is invalid, or packed.
pub(crate) fn read(dump: &[u8]) -> Option<StoredValue> {
    let mut body = dump.get(..dump.len().checked_sub(FOOTER)?)?;
    let kind = byte(&mut body)?;
    if kind == TEXT {
        return Some(StoredValue::Text(take(&mut body)?));
    }
    let count = read_length(&mut body)?;
    let value = match kind {
        LIST => StoredValue::List(List((0..count).map(|_| take(&mut body)).collect::<Option<_>>()?)),
        SET => read_set(&mut body, count)?,
        HASH => read_hash(&mut body, count)?,
        ZSET => read_zset(&mut body, count)?,
        STREAM => read_stream(&mut body, count)?,
        _ => return None,
    };
    (!value.is_empty()).then_some(value)
}

fn read_set(body: &mut &[u8], count: usize) -> Option<StoredValue> {
    let mut members = Members::default();
    for _ in 0..count {
        members.add(&take(body)?);
    }
    Some(StoredValue::Set(members))
}

fn read_hash(body: &mut &[u8], count: usize) -> Option<StoredValue> {
    let mut fields = HashFields::default();
    for _ in 0..count {
        fields.set(&take(body)?, take(body)?);
    }
    Some(StoredValue::Hash(fields))
}

fn read_zset(body: &mut &[u8], count: usize) -> Option<StoredValue> {
    let mut zset = Zset::default();
    for _ in 0..count {
        let member = take(body)?;
        let score = body.try_get_f64_le().ok().filter(|score| !score.is_nan())?;
        zset.set(&member, score);
    }
    Some(StoredValue::Zset(zset))
}

fn read_stream(body: &mut &[u8], count: usize) -> Option<StoredValue> {
    let mut stream = Stream::default();
    for _ in 0..count {
        stream.add((body.try_get_u64().ok()?, body.try_get_u64().ok()?));
    }
    Some(StoredValue::Stream(stream))
}

fn byte(body: &mut &[u8]) -> Option<u8> {
    body.try_get_u8().ok()
}

fn read_length(body: &mut &[u8]) -> Option<usize> {
    let first = byte(body)?;
    match first >> 6 {
        0 => Some(usize::from(first)),
        1 => Some(usize::from(first & 0x3f) << 8 | usize::from(byte(body)?)),
        2 if first == 0x80 => usize::try_from(body.try_get_u32().ok()?).ok(),
        _ => None,
    }
}

fn take(body: &mut &[u8]) -> Option<Bytes> {
    let length = read_length(body)?;
    let bytes = body.get(..length)?;
    *body = &body[length..];
    Some(Bytes::copy_from_slice(bytes))
}

/// Returns the reflected CRC-64 by Jones, as in RDB files.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| {
            if sum & 1 == 1 { (sum >> 1) ^ 0x95AC_9329_AC4B_C9B5 } else { sum >> 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_checksum_is_the_servers() {
        assert_eq!(checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn values_come_back() {
        let mut zset = Zset::default();
        let mut fields = HashFields::default();
        for n in 0..300 {
            zset.set(&Bytes::from(n.to_string()), f64::from(n) / 3.0);
            fields.set(&Bytes::from(n.to_string()), vec![7; n as usize].into());
        }
        for value in
            [StoredValue::Zset(zset), StoredValue::Hash(fields), StoredValue::Text(vec![0; 20_000].into())]
        {
            let dump = write(&value);
            assert!(is_whole(&dump));
            assert_eq!(read(&dump).map(|value| write(&value)), Some(dump));
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes: Vec<u8>) {
            is_whole(&bytes);
            read(&bytes);
        }
    }
}
