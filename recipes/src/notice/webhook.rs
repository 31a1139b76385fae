//! Signed notices by HTTP.
//!
//! A notice is signed as in Standard Webhooks 1.0: an HMAC-SHA256 of ID, time and body. The ID is the same each time that a
//! notice is sent. The receiver books each ID once.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// The notice that an order has been paid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// URL of the merchant.
    pub url: String,
    /// The merchant's order number.
    pub order: String,
    /// Amount that was paid, in cents.
    pub cents: u64,
}

/// The secret that sender and merchant share.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Reads a key in Base64, with or without the prefix `whsec_`.
    ///
    /// # Errors
    /// If the key is not valid Base64.
    pub fn new(text: &str) -> anyhow::Result<Self> {
        let text = text.strip_prefix("whsec_").unwrap_or(text);
        Ok(Self(BASE64_STANDARD.decode(text)?.into()))
    }

    /// Returns the value of the header `webhook-signature`.
    ///
    /// # Errors
    /// If HMAC refuses the key. It accepts keys of any length.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> anyhow::Result<String> {
        let code = self.code(id, timestamp, body)?.finalize().into_bytes();
        Ok(format!("v1,{}", BASE64_STANDARD.encode(code)))
    }

    /// Returns the HMAC of ID, time and body.
    pub(super) fn code(&self, id: &str, timestamp: u64, body: &[u8]) -> anyhow::Result<Hmac<Sha256>> {
        let mut code = Hmac::<Sha256>::new_from_slice(&self.0)?;
        code.update(format!("{id}.{timestamp}.").as_bytes());
        code.update(body);
        Ok(code)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Sends signed notices.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The client that sends the requests.
    pub http: reqwest::Client,
    /// The secret that signs them.
    pub secret: Secret,
}

impl Sender {
    /// Creates a sender for merchants with this secret.
    ///
    /// # Errors
    /// If the HTTP client cannot be created.
    pub fn new(secret: Secret) -> anyhow::Result<Self> {
        // The merchants run on this machine, so a proxy of the environment must not be used.
        Ok(Self { http: reqwest::Client::builder().no_proxy().build()?, secret })
    }
}
