//! The shop that receives webhooks: it checks signatures, records deliveries by ID, and fails as each order asks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use standardwebhooks::Webhook;

use crate::Result;

/// The deliveries of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Booked {
    /// The webhook IDs of the calls.
    pub(crate) ids: BTreeSet<String>,
    pub(crate) calls: u64,
    /// The number of calls that were answered with 200.
    pub(crate) taken: u64,
}

#[derive(Debug, Default)]
struct Books {
    by_key: BTreeMap<String, Booked>,
    forged: u64,
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    shop: Shared,
}

type Shared = Arc<Shop>;

struct Shop {
    signed: Webhook,
    books: Mutex<Books>,
    is_repaired: AtomicBool,
}

impl Receiver {
    pub(crate) async fn start(secret: &str) -> Result<Self> {
        let shop = Arc::new(Shop {
            signed: Webhook::new(secret)?,
            books: Mutex::default(),
            is_repaired: AtomicBool::new(false),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let routes = Router::new().route("/{what}", post(take)).with_state(shop.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { address, shop })
    }

    /// Returns the deliveries of each key.
    pub(crate) fn booked(&self) -> BTreeMap<String, Booked> {
        self.shop.books().by_key.clone()
    }

    /// Lets the shop accept the orders that it has always refused.
    pub(crate) fn repair(&self) {
        self.shop.is_repaired.store(true, Ordering::Relaxed);
    }

    /// Returns the number of calls with an invalid signature.
    pub(crate) fn forged(&self) -> u64 {
        self.shop.books().forged
    }
}

impl Shop {
    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn take(
    State(shop): State<Shared>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, [(&'static str, &'static str); 1]) {
    if shop.signed.verify(&body, &headers).is_err() {
        shop.books().forged += 1;
        return later(StatusCode::UNAUTHORIZED);
    }
    let delivery: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let key = delivery["data"]["key"].as_str().unwrap_or_default().to_owned();
    let mut books = shop.books();
    let booked = books.by_key.entry(key).or_default();
    booked.calls += 1;
    booked.ids.extend(headers.get("webhook-id").and_then(|id| Some(id.to_str().ok()?.to_owned())));
    let is_repaired = shop.is_repaired.load(Ordering::Relaxed);
    let status = answer(delivery["data"]["value"]["trouble"].as_str(), booked.calls, is_repaired);
    booked.taken += u64::from(status.is_success());
    later(status)
}

/// Adds a `Retry-After` of one second. `keylapse run` reads it from errors, and ignores it after a success.
fn later(status: StatusCode) -> (StatusCode, [(&'static str, &'static str); 1]) {
    (status, [("retry-after", "1")])
}

/// Returns the status that the order's `trouble` asks for.
fn answer(trouble: Option<&str>, calls: u64, is_repaired: bool) -> StatusCode {
    match trouble {
        Some("once") if calls == 1 => StatusCode::INTERNAL_SERVER_ERROR,
        // The order becomes a dead letter, because all its attempts fail until the repair.
        Some("always") if !is_repaired => StatusCode::BAD_GATEWAY,
        // `keylapse run` snoozes after a 429, which uses up no attempt.
        Some("busy") if calls == 1 => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::OK,
    }
}
