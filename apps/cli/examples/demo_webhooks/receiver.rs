//! Who is called: a shop that checks signatures, books each delivery by its id, and breaks when it is told to.

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

/// What became of a key's deliveries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Booked {
    /// The ids that its calls had.
    pub(crate) ids: BTreeSet<String>,
    pub(crate) calls: u64,
    /// How many of them were answered with 200.
    pub(crate) taken: u64,
}

/// What the shop knows.
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
    is_mended: AtomicBool,
}

impl Receiver {
    pub(crate) async fn start(secret: &str) -> Result<Self> {
        let shop = Arc::new(Shop {
            signed: Webhook::new(secret)?,
            books: Mutex::default(),
            is_mended: AtomicBool::new(false),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let routes = Router::new().route("/{what}", post(take)).with_state(shop.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { address, shop })
    }

    /// What became of each key.
    pub(crate) fn booked(&self) -> BTreeMap<String, Booked> {
        self.shop.books().by_key.clone()
    }

    /// What it has always failed at works from now on.
    pub(crate) fn mend(&self) {
        self.shop.is_mended.store(true, Ordering::Relaxed);
    }

    /// Calls whose signatures were wrong.
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
    let told: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let key = told["data"]["key"].as_str().unwrap_or_default().to_owned();
    let mut books = shop.books();
    let booked = books.by_key.entry(key).or_default();
    booked.calls += 1;
    booked.ids.extend(headers.get("webhook-id").and_then(|id| Some(id.to_str().ok()?.to_owned())));
    let is_mended = shop.is_mended.load(Ordering::Relaxed);
    let status = answer(told["data"]["value"]["trouble"].as_str(), booked.calls, is_mended);
    booked.taken += u64::from(status.is_success());
    later(status)
}

/// A status that says when to come back, which only some heed.
fn later(status: StatusCode) -> (StatusCode, [(&'static str, &'static str); 1]) {
    (status, [("retry-after", "1")])
}

/// What the order says is answered: the demo decides when it writes the key.
fn answer(trouble: Option<&str>, calls: u64, is_mended: bool) -> StatusCode {
    match trouble {
        // Of the first call the answer is an error, ...
        Some("once") if calls == 1 => StatusCode::INTERNAL_SERVER_ERROR,
        // ... of all until somebody has looked, so that the order is a dead letter, ...
        Some("always") if !is_mended => StatusCode::BAD_GATEWAY,
        // ... or that it is to come back later.
        Some("busy") if calls == 1 => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::OK,
    }
}
