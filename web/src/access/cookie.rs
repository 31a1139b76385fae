//! What a browser keeps in the place of a token: that somebody had shown it, until when that holds, and proof of it.
//!
//! The proof is made with the token, so a new token ends all visits, and nothing has to be remembered here.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use crate::access::{Role, Token};

pub(crate) const COOKIE: &str = "keylapse";
/// A shift; then the token has to be shown again.
pub(crate) const LIFE: Duration = Duration::from_secs(12 * 3600);

pub(super) fn sign(token: &Token, role: Role, until_s: u64) -> String {
    let proof = hmac::sign(&key(token), said(role, until_s).as_bytes());
    format!("{until_s}.{}", URL_SAFE_NO_PAD.encode(proof))
}

pub(super) fn is(cookie: &str, token: &Token, role: Role, now_s: u64) -> bool {
    let Some((until, proof)) = cookie.split_once('.') else { return false };
    let (Ok(until_s), Ok(proof)) = (until.parse(), URL_SAFE_NO_PAD.decode(proof)) else { return false };
    // Written in one way only, and proved before its time is believed.
    hmac::verify(&key(token), said(role, until_s).as_bytes(), &proof).is_ok() && now_s < until_s
}

fn key(token: &Token) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token.bytes())
}

/// What is proved. The first word keeps it apart from anything else that a token may ever prove.
fn said(role: Role, until_s: u64) -> String {
    let role = match role {
        Role::Read => "read",
        Role::Act => "act",
    };
    format!("keylapse-cookie.{role}.{until_s}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_holds_for_its_token_role_and_time() {
        let token = Token::new("0123456789abcdef0123456789abcdef").unwrap();
        let other = Token::new("0123456789abcdef0123456789abcdeX").unwrap();
        let cookie = sign(&token, Role::Act, 1000);
        assert!(is(&cookie, &token, Role::Act, 999));
        assert!(!is(&cookie, &token, Role::Act, 1000));
        assert!(!is(&cookie, &token, Role::Read, 999));
        assert!(!is(&cookie, &other, Role::Act, 999));
        assert!(!is(&cookie.replace("1000", "9000"), &token, Role::Act, 999));
        for forged in ["", ".", "1000", "1000.", "x.y", "99999999999999999999.AAAA"] {
            assert!(!is(forged, &token, Role::Act, 0), "{forged}");
        }
        assert!(!cookie.contains("0123456789abcdef"));
    }
}
