//! Signed notices by HTTP, and the merchant that receives them.
//!
//! A notice is signed as in Standard Webhooks 1.0: an HMAC-SHA256 of ID, time and body. The ID is the same each time that a
//! notice is sent. The receiver books each ID once.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Router, routing::post};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::stage::World;

/// A request whose time differs more from the clock is refused, because it may be a replay of a recorded request.
const TOLERANCE_SECONDS: u64 = 300;

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

    /// Returns the ID of a notice if it was signed with this secret, at most 300 s before or after `now` (Unix time in
    /// seconds).
    pub fn verify<'a>(&self, headers: &'a HeaderMap, body: &[u8], now: u64) -> Option<&'a str> {
        let header = |name| headers.get(name)?.to_str().ok();
        let (id, timestamp) = (header("webhook-id")?, header("webhook-timestamp")?.parse().ok()?);
        // While a secret is being replaced, a request has a signature of the old and of the new secret.
        let mut signatures =
            header("webhook-signature")?.split(' ').filter_map(|part| part.strip_prefix("v1,"));
        let fits = |signature: &str| {
            let code = BASE64_STANDARD.decode(signature).ok()?;
            self.code(id, timestamp, body).ok()?.verify_slice(&code).ok() // compares in constant time
        };
        let signed = signatures.any(|signature| fits(signature).is_some());
        (signed && now.abs_diff(timestamp) <= TOLERANCE_SECONDS).then_some(id)
    }

    fn code(&self, id: &str, timestamp: u64, body: &[u8]) -> anyhow::Result<Hmac<Sha256>> {
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

/// A merchant that receives notices on a local port.
#[derive(Clone, Debug)]
pub struct Merchant {
    address: SocketAddr,
    secret: Secret,
    world: World,
    booked: Arc<Mutex<BTreeSet<String>>>,
}

impl Merchant {
    /// Starts a merchant. `world` records each notice that it receives.
    ///
    /// # Errors
    /// If no local port is free.
    pub async fn open(secret: Secret, world: World) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let merchant = Self { address: listener.local_addr()?, secret, world, booked: Arc::default() };
        let app = Router::new().route("/paid", post(receive)).with_state(merchant.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(merchant)
    }

    /// Returns a notice that this order was paid.
    pub fn notice(&self, order: &str) -> Notice {
        Notice { url: format!("http://{}/paid", self.address), order: order.to_owned(), cents: 1999 }
    }

    /// Returns the number of payments that were booked.
    pub fn booked(&self) -> usize {
        self.booked.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

async fn receive(State(merchant): State<Merchant>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let Some(id) = merchant.secret.verify(&headers, &body, now) else { return StatusCode::UNAUTHORIZED };
    let Ok(notice) = serde_json::from_slice::<Notice>(&body) else { return StatusCode::BAD_REQUEST };
    if merchant.world.act(&notice.order, id).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    // A set holds each ID once, so a repeated notice is booked once.
    merchant.booked.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
    StatusCode::OK
}
