//! W3C trace contexts: the `traceparent` of a producer.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use tracing::Span;

/// Version, trace ID, span ID and flags: the digits of a `traceparent`, two in each byte.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Traceparent(pub [u8; Self::LENGTH]);

impl Traceparent {
    /// The length of a trace context, in bytes.
    pub const LENGTH: usize = 26;
    /// The offsets of the parts.
    const PARTS: [usize; 4] = [0, 1, 17, 25];

    /// Parses `00-<32 digits>-<16 digits>-<2 digits>`. Returns `None` for any other text, and if an ID is zero.
    pub fn parse(text: &str) -> Option<Self> {
        let dashes = [2, 35, 52];
        let fits = text.len() == 55 && dashes.iter().all(|at| text.as_bytes()[*at] == b'-');
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
        if !fits || digits.len() != 2 * Self::LENGTH {
            return None;
        }
        let mut bytes = [0; Self::LENGTH];
        for (byte, two) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = digit(two[0])? << 4 | digit(two[1])?;
        }
        let empty = |part: &[u8]| part.iter().all(|byte| *byte == 0);
        (bytes[0] == 0 && !empty(&bytes[1..17]) && !empty(&bytes[17..25])).then_some(Self(bytes))
    }
}

/// Returns the value of a hexadecimal digit. W3C allows lower case only.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if at > 0 && Self::PARTS.contains(&at) {
                f.write_char('-')?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The program's function that returns the `traceparent` of the current span.
#[derive(Clone)]
pub struct Inject(pub Arc<dyn Fn() -> Option<String> + Send + Sync>);

impl Inject {
    /// Returns the current trace context, or `None` without a trace.
    pub fn ask(&self) -> Option<Traceparent> {
        (self.0)().as_deref().and_then(Traceparent::parse)
    }
}

impl fmt::Debug for Inject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inject")
    }
}

/// The program's function that makes a span continue a trace.
#[derive(Clone)]
pub struct Extract(pub Arc<Continue>);

type Continue = dyn Fn(&Span, &str) + Send + Sync;

impl fmt::Debug for Extract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Extract")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_reads_back_and_nothing_else_is_one() {
        let read = Traceparent::parse(GOOD).unwrap();
        assert_eq!((read.to_string(), format!("{read:?}")), (GOOD.to_owned(), GOOD.to_owned()));
        for bad in [
            String::new(),
            GOOD.to_uppercase(),
            GOOD.replacen("00-", "ff-", 1),
            GOOD.replacen("00-", "01-", 1),
            GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            GOOD.replace("01", "0g"),
            GOOD.replace("-01", "--1"),
            format!("{GOOD}-"),
            GOOD[..54].to_owned(),
            "ä".repeat(30),
        ] {
            assert_eq!(Traceparent::parse(&bad), None, "{bad}");
        }
    }
}
