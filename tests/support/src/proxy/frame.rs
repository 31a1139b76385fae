//! Finds the ends of RESP frames, in RESP2 and RESP3.

use std::fmt;

use bytes::{Bytes, BytesMut};

/// Larger than any value of a server. A greater length is malformed.
const MAX_LENGTH: u64 = 1 << 32;

/// The bytes of one complete request, reply or push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame(Bytes);

impl Frame {
    /// Removes the first frame from `buffer`. Returns `None` if the frame is not yet complete.
    pub(crate) fn take(buffer: &mut BytesMut) -> Result<Option<Self>, Malformed> {
        let end = end_of_first(buffer)?;
        Ok(end.map(|end| Self(buffer.split_to(end).freeze())))
    }

    pub(crate) fn raw(&self) -> &Bytes {
        &self.0
    }

    /// Returns whether the frame is a push (RESP3), which answers no request.
    pub(super) fn is_push(&self) -> bool {
        self.tag() == b'>'
    }

    pub(super) fn is_error(&self) -> bool {
        matches!(self.tag(), b'-' | b'!')
    }

    /// Returns the words of a request, or `None` if the frame is not an array of bulk strings.
    pub(crate) fn words(&self) -> Option<Vec<Bytes>> {
        let (count, mut at) = self.number(0)?;
        (self.tag() == b'*').then_some(())?;
        let mut words = Vec::new();
        for _ in 0..count {
            let word = self.bulk_string(at)?;
            at = word.1 + 2;
            words.push(self.0.slice(word.0..word.1));
        }
        Some(words)
    }

    /// Returns the first element of an array or push, if it is a bulk string. It is the kind of a message.
    pub(super) fn first_word(&self) -> Option<&[u8]> {
        let (count, at) = self.number(0)?;
        (matches!(self.tag(), b'*' | b'>') && count > 0).then_some(())?;
        let (start, end) = self.bulk_string(at)?;
        Some(&self.0[start..end])
    }

    fn tag(&self) -> u8 {
        self.0[0]
    }

    /// Returns the number in the line at `at`, and the start of the next line.
    fn number(&self, at: usize) -> Option<(usize, usize)> {
        let (line, next) = line(&self.0, at)?;
        Some((length(line).ok()??, next))
    }

    fn bulk_string(&self, at: usize) -> Option<(usize, usize)> {
        (self.0.get(at) == Some(&b'$')).then_some(())?;
        let (length, start) = self.number(at)?;
        Some((start, start + length))
    }
}

/// An error for bytes that are not RESP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(String);

impl Malformed {
    pub(super) fn new(line: &[u8]) -> Self {
        Self(line[..line.len().min(40)].escape_ascii().to_string())
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not RESP", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Returns the end of the first frame, or `None` if it is not complete. Nesting needs no stack: an aggregate adds the number
/// of its elements to the number of elements that are left.
fn end_of_first(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut at = 0;
    let mut left: usize = 1;
    while left > 0 {
        let Some((line, next)) = line(bytes, at) else { return Ok(None) };
        at = next;
        left -= 1;
        match line.first() {
            Some(b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(') => {}
            Some(b'$' | b'!' | b'=') => at += length(line)?.map_or(0, |length| length + 2),
            Some(b'*' | b'~' | b'>') => left += length(line)?.unwrap_or(0),
            Some(b'%') => left += 2 * length(line)?.unwrap_or(0),
            // The attributes, and the value that they describe.
            Some(b'|') => left += 2 * length(line)?.unwrap_or(0) + 1,
            _ => return Err(Malformed::new(line)),
        }
    }
    Ok((at <= bytes.len()).then_some(at))
}

/// Returns the line at `at` without its line break, and the start of the next line.
fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(at..)?;
    let length = rest.windows(2).position(|two| two == b"\r\n")?;
    Some((&rest[..length], at + length + 2))
}

/// Returns the number after a tag, or `None` for the null of RESP2, which has length -1.
fn length(line: &[u8]) -> Result<Option<usize>, Malformed> {
    let digits = line.get(1..).and_then(|digits| std::str::from_utf8(digits).ok());
    match digits {
        Some("-1") => Ok(None),
        Some(digits) => match digits.parse::<u64>() {
            Ok(number) if number <= MAX_LENGTH => Ok(usize::try_from(number).ok()),
            _ => Err(Malformed::new(line)),
        },
        None => Err(Malformed::new(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: [&[u8]; 18] = [
        b"+OK\r\n",
        b"-ERR no such thing\r\n",
        b":-42\r\n",
        b"$0\r\n\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"$8\r\na\r\nb\r\n\r\n\r\n",
        b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n",
        b"*3\r\n*2\r\n:1\r\n$1\r\na\r\n*0\r\n$-1\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"(123456789012345678901234567890\r\n",
        b"!10\r\nERR a\r\nb c\r\n",
        b"%2\r\n+a\r\n=5\r\ntxt:b\r\n$1\r\nc\r\n~2\r\n:1\r\n:2\r\n",
        b"|1\r\n+ttl\r\n:3600\r\n*1\r\n+value\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
    ];

    fn whole(bytes: &[u8]) -> Frame {
        let mut buffer = BytesMut::from(bytes);
        let frame = Frame::take(&mut buffer).expect("well-formed").expect("complete");
        assert!(buffer.is_empty(), "{buffer:?} was left over");
        frame
    }

    #[test]
    fn every_kind_of_frame_is_taken_whole() {
        for bytes in FRAMES {
            assert_eq!(whole(bytes).raw(), bytes);
        }
    }

    #[test]
    fn frames_are_the_same_wherever_the_stream_is_split() {
        let stream = FRAMES.concat();
        for split in 0..=stream.len() {
            let mut buffer = BytesMut::new();
            let mut taken = Vec::new();
            for part in [&stream[..split], &stream[split..]] {
                buffer.extend_from_slice(part);
                while let Some(frame) = Frame::take(&mut buffer).expect("well-formed") {
                    taken.push(frame);
                }
            }
            let taken: Vec<&[u8]> = taken.iter().map(|frame| frame.raw().as_ref()).collect();
            assert_eq!(taken, FRAMES, "split at byte {split}");
        }
    }

    #[test]
    fn no_prefix_of_a_frame_is_a_frame() {
        for bytes in FRAMES {
            for end in 0..bytes.len() {
                let mut prefix = BytesMut::from(&bytes[..end]);
                assert_eq!(
                    Frame::take(&mut prefix),
                    Ok(None),
                    "{:?}",
                    bytes[..end].escape_ascii().to_string()
                );
            }
        }
    }

    #[test]
    fn garbage_is_refused() {
        for bytes in [
            "PING\r\n",
            "\r\n",
            "$x\r\n",
            "$-2\r\n",
            "*\r\n",
            "$99999999999\r\n",
            "*18446744073709551616\r\n",
        ] {
            let mut buffer = BytesMut::from(bytes);
            assert!(Frame::take(&mut buffer).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_request_is_read_as_words() {
        let words = whole(b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$2\r\n\r\n\r\n").words().expect("a request");
        assert_eq!(words, ["SET", "", "\r\n"]);
        assert_eq!(whole(b"*1\r\n:1\r\n").words(), None);
        assert_eq!(whole(b"$4\r\nPING\r\n").words(), None);
    }

    #[test]
    fn replies_pushes_and_errors_are_told_apart() {
        let push = whole(b">2\r\n$9\r\nsubscribe\r\n:1\r\n");
        assert!(push.is_push() && !push.is_error());
        assert_eq!(push.first_word(), Some(b"subscribe".as_slice()));
        assert!(whole(b"-ERR\r\n").is_error() && whole(b"!3\r\nERR\r\n").is_error());
        assert_eq!(whole(b"*0\r\n").first_word(), None);
        assert_eq!(whole(b":1\r\n").first_word(), None);
    }
}
