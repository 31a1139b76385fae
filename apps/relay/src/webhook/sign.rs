//! The signature of Standard Webhooks 1.0: HMAC-SHA256 of ID, time and body.

use standardwebhooks::Webhook;

use crate::secret::Secret;

/// Returns a signature for each secret, with a space between. While a secret is replaced, receivers may have either.
pub(crate) fn signatures(secrets: &[Secret], id: &str, at: i64, body: &[u8]) -> String {
    let sign = |secret: &Secret| {
        let webhook = Webhook::from_bytes(secret.key().to_vec()).expect("a key may be any bytes");
        webhook.sign(id, at, body).expect("JSON is UTF-8")
    };
    secrets.iter().map(sign).collect::<Vec<_>>().join(" ")
}

/// Returns a hash of a text that may be secret, for comparison with another.
pub(crate) fn fingerprint(text: &str) -> String {
    let webhook =
        Webhook::from_bytes(b"keylapse compares files by this".to_vec()).expect("a key may be any bytes");
    webhook.sign("fingerprint", 0, text.as_bytes()).expect("a string is UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first test vector of the standard's libraries.
    #[test]
    fn it_is_that_of_the_standards_vector() {
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed =
            signatures(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    /// The example of the specification's libraries.
    #[test]
    fn it_is_that_of_the_standard() {
        let secret = Secret::parse("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap();
        let body = br#"{"email":"test@example.com","username":"test_user"}"#;
        let signed = signatures(&[secret], "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1_649_367_553, body);
        assert_eq!(signed, "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");
    }
}
