//! The lengths of encoded replies.

use std::ops::Range;

/// Returns the length of the first reply, and the ranges of the strings at its first level. Returns `None` if the reply
/// is not complete.
pub(crate) fn whole(bytes: &[u8]) -> Option<(usize, impl Iterator<Item = Range<usize>> + use<>)> {
    let mut words = Vec::new();
    let length = measure(bytes, 0, 1, &mut words)?;
    Some((length, words.into_iter()))
}

/// Returns the end of the reply at `start`, if the reply is complete.
fn measure(bytes: &[u8], start: usize, depth: usize, words: &mut Vec<Range<usize>>) -> Option<usize> {
    let line = bytes.get(start..)?.windows(2).position(|two| two == b"\r\n")?;
    let (body, end) = (start + line + 2, start + line);
    let number = || std::str::from_utf8(&bytes[start + 1..end]).ok()?.parse::<usize>().ok();
    let items = match bytes[start] {
        b'$' | b'=' | b'!' => {
            let Some(length) = number() else { return Some(body) }; // -1 is a null
            if depth == 2 {
                words.push(body..body + length);
            }
            return Some(body + length + 2).filter(|end| *end <= bytes.len());
        }
        b'*' | b'~' | b'>' => number().unwrap_or(0),
        b'%' => 2 * number()?,
        b'|' => 2 * number()? + 1, // attributes and the reply that they belong to
        _ => return Some(body),
    };
    (0..items).try_fold(body, |at, _| measure(bytes, at, depth + 1, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_whole_with_its_last_byte() {
        for (reply, words) in [
            (&b"+OK\r\n"[..], &[][..]),
            (b"$-1\r\n", &[]),
            (b"$4\r\na\r\nb\r\n", &[]),
            (b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$0\r\n\r\n", &["message", "a", ""]),
            (b"*3\r\n:1\r\n*1\r\n$2\r\nno\r\n$1\r\nb\r\n", &["b"]),
            (b"%1\r\n$1\r\na\r\n*-1\r\n", &["a"]),
            (b"|1\r\n+a\r\n:1\r\n$1\r\nb\r\n", &["b"]),
        ] {
            let found = |bytes: &[u8]| {
                let (length, words) = whole(bytes)?;
                let words: Vec<_> =
                    words.map(|word| String::from_utf8_lossy(&bytes[word]).into_owned()).collect();
                Some((length, words))
            };
            let all = Some((reply.len(), words.iter().map(|word| (*word).to_owned()).collect()));
            assert_eq!(found(&[reply, b"+next\r\n"].concat()), all);
            for length in 0..reply.len() {
                assert_eq!(found(&reply[..length]), None, "{length} bytes of {reply:?}");
            }
        }
    }
}
