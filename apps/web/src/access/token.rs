//! Access tokens.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::access::AccessError;

/// Minimum bytes of a token: a shorter one can be guessed.
const LEAST: usize = 32;
/// Maximum bytes of a token, so that it fits in a header.
const MAX_TOKEN_BYTES: usize = 1024;

/// A token of 32 to 1,024 bytes. `Debug` does not show it.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

impl Token {
    /// Makes a token of a text, without the white space around it.
    ///
    /// # Errors
    /// If it has fewer than 32 or more than 1,024 bytes, or characters other than visible ASCII.
    pub fn new(text: impl AsRef<str>) -> Result<Self, AccessError> {
        let bytes = text.as_ref().trim().as_bytes();
        let advice = "use 32 to 1,024 ASCII characters, such as `openssl rand -hex 32` prints";
        if !(LEAST..=MAX_TOKEN_BYTES).contains(&bytes.len()) {
            return Err(AccessError(format!("the token has {} bytes: {advice}", bytes.len())));
        }
        if !bytes.iter().all(u8::is_ascii_graphic) {
            return Err(AccessError(format!("the token has spaces or characters beyond ASCII: {advice}")));
        }
        Ok(Self(bytes.into()))
    }

    /// Compares in constant time.
    pub(super) fn is(&self, said: &[u8]) -> bool {
        self.0.ct_eq(said).into()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_enough_bytes_and_is_not_shown() {
        let token = Token::new("0123456789abcdef0123456789abcdef\n").unwrap();
        assert!(token.is(b"0123456789abcdef0123456789abcdef"));
        for wrong in [&b""[..], b"0123456789abcdef0123456789abcdee", b"0123456789abcdef0123456789abcdef0"] {
            assert!(!token.is(wrong));
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
        for bad in ["", "short", &"a".repeat(1025), "0123456789abcdef 0123456789abcdef", &"é".repeat(20)] {
            let error = Token::new(bad).unwrap_err().to_string();
            assert!(error.contains("openssl rand"), "{error}");
        }
    }
}
