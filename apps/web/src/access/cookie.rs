//! The session cookie that a browser keeps instead of a token: the session's ID, its end, and a signature.
//!
//! The token is the key of the signature. A new token therefore ends all sessions, and programs with one token share them.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::access::{Role, TokenGrant};

/// Life of a session: a work shift. After it the token is needed again.
pub(crate) const LIFE: Duration = Duration::from_secs(12 * 3600);

/// A session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cookie {
    pub(super) until_s: u64,
    pub(super) id: [u8; 16],
}

impl Cookie {
    /// Makes a session with a random ID. Returns `None` if the system has no random numbers.
    pub(super) fn new(until_s: u64) -> Option<Self> {
        let mut id = [0; 16];
        SystemRandom::new().fill(&mut id).ok()?;
        Some(Self { until_s, id })
    }

    pub(super) fn sign(self, pass: &TokenGrant) -> String {
        let proof = hmac::sign(&key(pass), self.said(pass).as_bytes());
        format!("{}.{}.{}", self.until_s, URL_SAFE_NO_PAD.encode(self.id), URL_SAFE_NO_PAD.encode(proof))
    }

    /// Reads a cookie. Returns `None` if it has expired, or was not signed with this token.
    pub(super) fn read(text: &str, pass: &TokenGrant, now_s: u64) -> Option<Self> {
        let (until, rest) = text.split_once('.')?;
        let (id, proof) = rest.split_once('.')?;
        let cookie =
            Self { until_s: until.parse().ok()?, id: URL_SAFE_NO_PAD.decode(id).ok()?.try_into().ok()? };
        let proof = URL_SAFE_NO_PAD.decode(proof).ok()?;
        // The signature is over the only valid text of the cookie, and is verified before its end is trusted.
        hmac::verify(&key(pass), cookie.said(pass).as_bytes(), &proof).ok()?;
        (now_s < cookie.until_s).then_some(cookie)
    }

    /// Returns the text to sign. Its first word separates it from all other texts that a token may sign.
    fn said(self, TokenGrant { name, role, .. }: &TokenGrant) -> String {
        let role = match role {
            Role::Read => "read",
            Role::Act => "act",
        };
        let id = URL_SAFE_NO_PAD.encode(self.id);
        format!("keylapse-cookie.{name}.{role}.{}.{id}", self.until_s)
    }
}

/// Returns the cookie's name, which has the port: a browser sends the cookies of a host to all its ports.
pub(crate) fn name(host: &str) -> String {
    match host.rsplit_once(':') {
        Some((_, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("keylapse-{port}")
        }
        _ => "keylapse".to_owned(),
    }
}

fn key(pass: &TokenGrant) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, pass.token.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Token;

    #[test]
    fn a_cookie_holds_for_its_pass_and_time() {
        let pass = |name, token, role| TokenGrant::new(name, Token::new(token).unwrap(), role);
        let shop = pass("shop", "0123456789abcdef0123456789abcdef", Role::Act);
        let cookie = Cookie::new(1000).unwrap();
        let text = cookie.sign(&shop);
        assert_eq!(Cookie::read(&text, &shop, 999), Some(cookie));
        assert_eq!(Cookie::read(&text, &shop, 1000), None);
        for other in [
            pass("shop", "0123456789abcdef0123456789abcdef", Role::Read),
            pass("shops", "0123456789abcdef0123456789abcdef", Role::Act),
            pass("shop", "0123456789abcdef0123456789abcdeX", Role::Act),
        ] {
            assert_eq!(Cookie::read(&text, &other, 999), None, "{other:?}");
        }
        let another = Cookie::new(1000).unwrap().sign(&shop);
        let (id, proof) = (another.split('.').nth(1).unwrap(), text.split('.').nth(2).unwrap());
        let mixed = format!("1000.{id}.{proof}");
        for forged in [
            "",
            ".",
            "1000",
            "1000.",
            "x.y",
            "..",
            "99999999999999999999.AAAA.AAAA",
            &mixed,
            &text.replace("1000", "9000"),
        ] {
            assert_eq!(Cookie::read(forged, &shop, 0), None, "{forged}");
        }
        assert!(!text.contains("0123456789abcdef"));
    }

    #[test]
    fn each_port_has_a_cookie_of_its_own() {
        for (host, is) in [
            ("localhost", "keylapse"),
            ("localhost:7117", "keylapse-7117"),
            ("[::1]:80", "keylapse-80"),
            ("[::1]", "keylapse"),
            ("", "keylapse"),
        ] {
            assert_eq!(name(host), is, "{host}");
        }
    }
}
