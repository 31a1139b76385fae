//! Lines of somebody's stream, none of which is kept beyond a bound.

use std::io::{self, BufRead, Read};

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, without its end.
    Whole,
    /// One that is too long, and was passed over.
    TooLong,
    /// There are no more.
    End,
}

/// Reads the next line into the place of the last one.
pub(super) fn next(input: &mut impl BufRead, line: &mut Vec<u8>, longest: usize) -> io::Result<Line> {
    line.clear();
    // One more for its end.
    let read = input.by_ref().take(longest as u64 + 1).read_until(b'\n', line)?;
    if read == 0 {
        return Ok(Line::End);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read > longest {
        *line = Vec::new();
        input.skip_until(b'\n')?;
        return Ok(Line::TooLong);
    }
    Ok(Line::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<Result<String, Line>> {
        let (mut input, mut line, mut found) =
            (io::BufReader::with_capacity(3, text), Vec::new(), Vec::new());
        loop {
            match next(&mut input, &mut line, 5).unwrap() {
                Line::Whole => found.push(Ok(String::from_utf8(line.clone()).unwrap())),
                Line::TooLong => found.push(Err(Line::TooLong)),
                Line::End => return found,
            }
        }
    }

    #[test]
    fn lines_are_read_up_to_the_bound_and_longer_ones_passed_over() {
        let long = || Err(Line::TooLong);
        let line = |text: &str| Ok(text.to_owned());
        assert_eq!(all(b""), []);
        assert_eq!(all(b"\na\n\n"), [line(""), line("a"), line("")]);
        assert_eq!(all(b"12345\n123456\n12"), [line("12345"), long(), line("12")]);
        assert_eq!(all(b"12345"), [line("12345")]);
        assert_eq!(all(b"123456"), [long()]);
        assert_eq!(all(b"1234567890123\n1"), [long(), line("1")]);
    }

    #[test]
    fn what_has_no_end_takes_no_memory() {
        let mut input = io::BufReader::new(io::repeat(b'x').take(1 << 28));
        let mut line = Vec::new();
        assert_eq!(next(&mut input, &mut line, 1000).unwrap(), Line::TooLong);
        assert_eq!((line.capacity(), next(&mut input, &mut line, 1000).unwrap()), (0, Line::End));
    }
}
