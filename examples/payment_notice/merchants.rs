//! The merchants: a real HTTP endpoint, and five ways to treat a notice.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Json, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

/// What a merchant is told: a payment has gone through.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Notice {
    pub(crate) url: String,
    pub(crate) trade: u64,
    pub(crate) cents: u64,
}

/// How a merchant treats a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merchant {
    /// Takes it at once.
    Prompt,
    /// Books it, and fails one to three times before it says so.
    Flaky,
    /// Books it, and answers the first time too late to be waited for.
    Late,
    /// Books it, and never answers.
    Silent,
    /// Says that it has closed for good.
    Closed,
}

impl Merchant {
    pub(crate) const ALL: [Self; 5] = [Self::Prompt, Self::Flaky, Self::Late, Self::Silent, Self::Closed];

    /// Who gets the notice of this trade.
    pub(crate) fn of(trade: u64) -> Self {
        match trade % 20 {
            0 => Self::Silent,
            1 => Self::Closed,
            2..=6 => Self::Flaky,
            7..=9 => Self::Late,
            _ => Self::Prompt,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Flaky => "flaky",
            Self::Late => "late",
            Self::Silent => "silent",
            Self::Closed => "closed",
        }
    }
}

impl FromStr for Merchant {
    type Err = StatusCode;

    fn from_str(name: &str) -> Result<Self, StatusCode> {
        Self::ALL.into_iter().find(|merchant| merchant.name() == name).ok_or(StatusCode::NOT_FOUND)
    }
}

/// All merchants, at one address on loopback.
#[derive(Clone)]
pub(crate) struct Merchants {
    address: SocketAddr,
    books: Arc<Mutex<Books>>,
}

/// What they have received.
#[derive(Default)]
struct Books {
    tries: HashMap<u64, u64>,
    /// The idempotency keys of what they have booked.
    booked: HashSet<String>,
}

impl Merchants {
    /// Opens for business, on a free port.
    pub(crate) async fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let merchants = Self { address: listener.local_addr()?, books: Arc::default() };
        let app = Router::new().route("/{merchant}", post(receive)).with_state(merchants.books.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(merchants)
    }

    pub(crate) fn notice(&self, trade: u64) -> Notice {
        let url = format!("http://{}/{}", self.address, Merchant::of(trade).name());
        Notice { url, trade, cents: 100 + trade * 37 % 9900 }
    }

    /// The idempotency keys of what was booked: each once, however often it came.
    pub(crate) fn booked(&self) -> HashSet<String> {
        lock(&self.books).booked.clone()
    }
}

async fn receive(
    State(books): State<Arc<Mutex<Books>>>,
    Path(merchant): Path<String>,
    headers: HeaderMap,
    Json(notice): Json<Notice>,
) -> Result<&'static str, StatusCode> {
    let merchant: Merchant = merchant.parse()?;
    let key = headers.get("idempotency-key").ok_or(StatusCode::BAD_REQUEST)?;
    let tries = lock(&books).note(merchant, &notice, &String::from_utf8_lossy(key.as_bytes()));
    match merchant {
        // It was booked, but the gateway in front is broken.
        Merchant::Flaky if tries <= 1 + notice.cents % 3 => return Err(StatusCode::BAD_GATEWAY),
        Merchant::Late if tries == 1 => tokio::time::sleep(2 * crate::TIMEOUT).await,
        // Longer than anybody asks.
        Merchant::Silent => tokio::time::sleep(Duration::from_secs(3600)).await,
        Merchant::Closed => return Err(StatusCode::GONE),
        Merchant::Prompt | Merchant::Flaky | Merchant::Late => {}
    }
    Ok("success")
}

impl Books {
    /// Books a notice whose key is new, whatever will be answered. How often this trade was told of, this
    /// time included.
    fn note(&mut self, merchant: Merchant, notice: &Notice, key: &str) -> u64 {
        if merchant != Merchant::Closed {
            self.booked.insert(key.to_owned());
        }
        let tries = self.tries.entry(notice.trade).or_default();
        *tries += 1;
        *tries
    }
}

fn lock(books: &Mutex<Books>) -> std::sync::MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}
