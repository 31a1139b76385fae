//! A merchant that receives signed notices.

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
use hmac::Mac;

use super::webhook::{Notice, Secret};
use crate::stage::World;

/// A request whose time differs more from the clock is refused, because it may be a replay of a recorded request.
const TOLERANCE_SECONDS: u64 = 300;

impl Secret {
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
