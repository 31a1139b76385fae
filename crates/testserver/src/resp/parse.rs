//! The parser of commands.

use bytes::{Buf, Bytes, BytesMut};

/// The limits of Redis for the number of words of a command, and the size of a word.
const MAX_COMMAND_WORDS: i64 = 1024 * 1024;
const MAX_WORD_BYTES: i64 = 512 * 1024 * 1024;
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Bytes that are not a command. The connection ends after this error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid(pub(crate) &'static str);

/// Collects bytes until a command is complete.
#[derive(Debug, Default)]
pub(crate) struct RespParser {
    buffer: BytesMut,
    /// The number of words that are missing from the current command.
    missing: usize,
    words: Vec<Bytes>,
    /// The length of the current word.
    length: Option<usize>,
}

impl RespParser {
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Returns the next command, if it is complete. It has at least one word.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<Bytes>>, Invalid> {
        loop {
            if self.missing == 0 && !self.begin()? {
                return Ok(None);
            }
            while self.missing > 0 {
                let Some(word) = self.word()? else { return Ok(None) };
                self.words.push(word);
                self.missing -= 1;
            }
            if !self.words.is_empty() {
                return Ok(Some(std::mem::take(&mut self.words)));
            }
        }
    }

    /// Reads the first line of a command. Returns false if it is not complete yet.
    fn begin(&mut self) -> Result<bool, Invalid> {
        let Some(end) = self.line("Protocol error: too big inline request")? else { return Ok(false) };
        let line = trimmed(&self.buffer[..end]);
        if let Some(count) = line.strip_prefix(b"*") {
            let count = crate::number::integer(count).filter(|count| *count <= MAX_COMMAND_WORDS);
            let count = count.ok_or(Invalid("Protocol error: invalid multibulk length"))?;
            self.missing = usize::try_from(count).unwrap_or_default();
            self.words.reserve(self.missing.min(1024));
        } else {
            self.words = inline(line);
        }
        self.buffer.advance(end);
        Ok(true)
    }

    fn word(&mut self) -> Result<Option<Bytes>, Invalid> {
        let length = match self.length {
            Some(length) => length,
            None => {
                let Some(length) = self.word_length()? else { return Ok(None) };
                *self.length.insert(length)
            }
        };
        if self.buffer.len() < length + 2 {
            return Ok(None);
        }
        self.length = None;
        // A slice would keep the whole buffer in memory as long as the key exists.
        let word = Bytes::copy_from_slice(&self.buffer[..length]);
        self.buffer.advance(length + 2);
        Ok(Some(word))
    }

    fn word_length(&mut self) -> Result<Option<usize>, Invalid> {
        let Some(end) = self.line("Protocol error: too big bulk count string")? else { return Ok(None) };
        let digits = trimmed(&self.buffer[..end]).strip_prefix(b"$");
        let digits = digits.ok_or(Invalid("Protocol error: expected '$'"))?;
        let length = crate::number::integer(digits).filter(|length| (0..=MAX_WORD_BYTES).contains(length));
        let length = length.and_then(|length| usize::try_from(length).ok());
        self.buffer.advance(end);
        length.map(Some).ok_or(Invalid("Protocol error: invalid bulk length"))
    }

    /// Returns the end of the next line, if the line is complete.
    fn line(&self, too_long: &'static str) -> Result<Option<usize>, Invalid> {
        match self.buffer.iter().position(|byte| *byte == b'\n') {
            Some(end) => Ok(Some(end + 1)),
            None if self.buffer.len() > MAX_LINE_BYTES => Err(Invalid(too_long)),
            None => Ok(None),
        }
    }
}

/// Removes the line break.
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Splits an inline command, as typed in a terminal, at its spaces.
fn inline(line: &[u8]) -> Vec<Bytes> {
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.map(Bytes::copy_from_slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Everything that is parsed when the bytes come in these pieces.
    fn parsed<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<Bytes>>, Option<Invalid>) {
        let (mut parser, mut commands) = (RespParser::default(), Vec::new());
        for piece in pieces {
            parser.buffer().extend_from_slice(piece);
            loop {
                match parser.next() {
                    Ok(Some(command)) => commands.push(command),
                    Ok(None) => break,
                    Err(invalid) => return (commands, Some(invalid)),
                }
            }
        }
        (commands, None)
    }

    #[test]
    fn commands_come_in_both_forms() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$2\r\na\n\r\nPING  x\r\n\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\n";
        let (commands, invalid) = parsed([&bytes[..]].into_iter());
        assert_eq!(commands, [vec!["GET", "a\n"], vec!["PING", "x"], vec![""]]);
        assert_eq!(invalid, None);
    }

    #[test]
    fn what_is_no_command_ends_the_connection() {
        for bytes in ["*x\r\n", "*1\r\nGET\r\n", "*1\r\n$-1\r\n", "*9999999999\r\n", "*1\r\n$99999999999\r\n"]
        {
            assert!(parsed([bytes.as_bytes()].into_iter()).1.is_some(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_it_is_the_same_how_they_are_split(
            bytes in proptest::collection::vec(
                prop_oneof![
                    Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b'2'), Just(b'-'), any::<u8>()
                ],
                0..60,
            ),
        ) {
            let whole = parsed([&bytes[..]].into_iter());
            prop_assert_eq!(&parsed(bytes.chunks(1)), &whole);
            for at in 0..bytes.len() {
                prop_assert_eq!(&parsed([&bytes[..at], &bytes[at..]].into_iter()), &whole);
            }
        }

        #[test]
        fn what_a_client_sends_arrives(
            commands in proptest::collection::vec(proptest::collection::vec(any::<Vec<u8>>(), 0..4), 0..4),
        ) {
            let mut bytes = Vec::new();
            for command in commands.iter().filter(|command| !command.is_empty()) {
                bytes.extend(format!("*{}\r\n", command.len()).bytes());
                for word in command {
                    bytes.extend(format!("${}\r\n", word.len()).bytes());
                    bytes.extend_from_slice(word);
                    bytes.extend(b"\r\n");
                }
            }
            let expected: Vec<_> = commands.into_iter().filter(|command| !command.is_empty()).collect();
            let (got, invalid) = parsed(bytes.chunks(7));
            prop_assert_eq!(got, expected);
            prop_assert_eq!(invalid, None);
        }
    }
}
