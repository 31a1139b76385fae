//! What both ends of a notice by HTTP need, and the merchant's end. A notice is signed as Standard Webhooks 1.0 has it: HMAC-SHA256 of id, time and
//! body. The id is the same each time that a notice is sent, so whoever gets it books it once.

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

/// A request that was signed longer ago, or will be, is refused: somebody might have kept it.
const TOLERANCE_SECONDS: u64 = 300;

/// What a merchant is told: an order has been paid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Where the merchant listens.
    pub url: String,
    /// The merchant's number of the order.
    pub order: String,
    /// What was paid.
    pub cents: u64,
}

/// What both ends know, and nobody else.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Reads `whsec_` and the key in base 64.
    ///
    /// # Errors
    /// When it is something else.
    pub fn new(text: &str) -> anyhow::Result<Self> {
        let text = text.strip_prefix("whsec_").unwrap_or(text);
        Ok(Self(BASE64_STANDARD.decode(text)?.into()))
    }

    /// The value of the header `webhook-signature`.
    ///
    /// # Errors
    /// Never: a key of any length will do.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> anyhow::Result<String> {
        let code = self.code(id, timestamp, body)?.finalize().into_bytes();
        Ok(format!("v1,{}", BASE64_STANDARD.encode(code)))
    }

    /// The id of a notice, if it was signed with this secret, not long ago.
    pub fn verify<'a>(&self, headers: &'a HeaderMap, body: &[u8], now: u64) -> Option<&'a str> {
        let header = |name| headers.get(name)?.to_str().ok();
        let (id, timestamp) = (header("webhook-id")?, header("webhook-timestamp")?.parse().ok()?);
        // While a secret is replaced by another, there is a signature by each.
        let mut signatures =
            header("webhook-signature")?.split(' ').filter_map(|one| one.strip_prefix("v1,"));
        let fits = |signature: &str| {
            let code = BASE64_STANDARD.decode(signature).ok()?;
            self.code(id, timestamp, body).ok()?.verify_slice(&code).ok() // in constant time
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

/// What a sender needs.
#[derive(Clone, Debug)]
pub struct Sender {
    /// For the requests.
    pub http: reqwest::Client,
    /// For the signatures.
    pub secret: Secret,
}

impl Sender {
    /// Sends to merchants who have this secret.
    ///
    /// # Errors
    /// When there can be no HTTP client.
    pub fn new(secret: Secret) -> anyhow::Result<Self> {
        // The merchants of this story are on this machine, whatever proxy the environment names.
        Ok(Self { http: reqwest::Client::builder().no_proxy().build()?, secret })
    }
}

/// A merchant, which listens at an address of its own on this machine.
#[derive(Clone, Debug)]
pub struct Merchant {
    address: SocketAddr,
    secret: Secret,
    world: World,
    booked: Arc<Mutex<BTreeSet<String>>>,
}

impl Merchant {
    /// Opens for business. `world` sees each notice that comes.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn open(secret: Secret, world: World) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let merchant = Self { address: listener.local_addr()?, secret, world, booked: Arc::default() };
        let app = Router::new().route("/paid", post(receive)).with_state(merchant.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(merchant)
    }

    /// That this order was paid.
    pub fn notice(&self, order: &str) -> Notice {
        Notice { url: format!("http://{}/paid", self.address), order: order.to_owned(), cents: 1999 }
    }

    /// How many payments are in the books.
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
    // A set: an id that is in the books already is booked once all the same.
    merchant.booked.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
    StatusCode::OK
}
