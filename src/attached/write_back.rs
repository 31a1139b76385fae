//! Writing a key back for its retry, and finding out at the retry whether it is still ours.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value as Json;

use crate::attached::policy::WriteBack;
use crate::error::Result;
use crate::wire::attached::{Capture, ForeignKeys, Life};

/// How long a key may outlive its deadline: while clients are paused, it does.
const OUTLIVES: Duration = Duration::from_secs(1);
/// In its deadline's own millisecond a key is still there.
const SOON: Duration = Duration::from_millis(2);

const STRING: u8 = 2;
const DUMP: u8 = 3;

/// The value to be written back for an attempt, with the byte that says what it is; none if there is none.
pub(crate) fn bumped(payload: &Bytes, how: &WriteBack, attempt: u32) -> Option<Bytes> {
    let copy = payload.slice(payload.len().min(1)..);
    match *copy.first()? {
        DUMP => Some(copy),
        STRING => {
            Some(how.field.as_ref().and_then(|field| counted(&copy[1..], field, attempt)).unwrap_or(copy))
        }
        _ => None,
    }
}

/// The JSON object with this field set to the number of the attempt; none if it is no object.
fn counted(value: &[u8], field: &str, attempt: u32) -> Option<Bytes> {
    let Json::Object(mut object) = serde_json::from_slice(value).ok()? else { return None };
    object.insert(field.to_owned(), attempt.into());
    let mut out = BytesMut::new();
    out.put_u8(STRING);
    out.put_slice(&serde_json::to_vec(&object).ok()?);
    Some(out.freeze())
}

/// Whose a key is at the time of its retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Nobody's: it has expired, or was never written back.
    Gone,
    /// Its writer's.
    Theirs,
}

/// DueChecks at a key that was written back until `deadline`.
pub(crate) async fn presence(foreign: &Arc<dyn ForeignKeys>, key: &Bytes, deadline: u64) -> Result<Presence> {
    let patience = tokio::time::Instant::now() + OUTLIVES;
    loop {
        let (_, found) = foreign.read(std::slice::from_ref(key), Capture::default()).await?;
        match found.first().map(|found| found.life) {
            None | Some(Life::Gone) => return Ok(Presence::Gone),
            Some(Life::Until(until)) if until == deadline && tokio::time::Instant::now() < patience => {
                tokio::time::sleep(SOON).await;
            }
            Some(Life::Until(until)) if until == deadline => return Ok(Presence::Gone),
            Some(_) => return Ok(Presence::Theirs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(payload: &'static [u8], field: Option<&str>) -> Option<Bytes> {
        let how = WriteBack { field: field.map(str::to_owned) };
        bumped(&Bytes::from_static(payload), &how, 3)
    }

    #[test]
    fn the_attempt_is_counted_in_the_field_of_a_json_object_alone() {
        let json = |payload, field| written(payload, field).map(|copy| copy.to_vec());
        assert_eq!(json(b"\x00\x02{\"a\":1}", None).unwrap(), b"\x02{\"a\":1}");
        assert_eq!(json(b"\x00\x02{\"a\":1,\"z\":0}", Some("a")).unwrap(), b"\x02{\"a\":3,\"z\":0}");
        for other in [&b"\x00\x02[1]"[..], b"\x00\x02plain", b"\x00\x02"] {
            assert_eq!(json(other, Some("a")).unwrap(), other[1..], "{}", other.escape_ascii());
        }
    }

    #[test]
    fn without_a_copy_nothing_is_written() {
        for none in [&b"\x00\x00"[..], b"\x00\x0199", b"\x00", b""] {
            assert_eq!(written(none, None), None);
        }
        assert_eq!(written(b"\x00\x03dump", Some("a")).unwrap(), &b"\x03dump"[..]);
    }
}
