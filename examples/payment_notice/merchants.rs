//! The merchants: an endpoint on loopback that treats notices in five ways.
//!
//! Each notice is a line of JSON on a connection of its own, and its answer is another line. HTTP would need more crates
//! than the rest of this program.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

/// A notice of a successful payment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Notice {
    pub(crate) merchant: SocketAddr,
    pub(crate) trade: u64,
    pub(crate) cents: u64,
}

/// A notice as it is sent to a merchant.
#[derive(Serialize, Deserialize)]
struct Request {
    idempotency_key: String,
    notice: Notice,
}

/// A merchant's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Success,
    BadGateway,
    Gone,
}

/// How a merchant treats a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merchant {
    /// Accepts it immediately.
    Prompt,
    /// Books it, and answers with one to three errors before a success.
    Flaky,
    /// Books it, and sends the first answer after the timeout.
    Late,
    /// Books it, and never answers.
    Silent,
    /// Answers that it has closed permanently.
    Closed,
}

impl Merchant {
    pub(crate) const ALL: [Self; 5] = [Self::Prompt, Self::Flaky, Self::Late, Self::Silent, Self::Closed];

    /// Returns the merchant of a trade.
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

/// All merchants, at one address on loopback.
#[derive(Clone)]
pub(crate) struct Merchants {
    address: SocketAddr,
    books: Arc<Mutex<Books>>,
}

/// The notices that merchants have received.
#[derive(Default)]
struct Books {
    tries: HashMap<u64, u64>,
    /// The idempotency keys of the notices that they have booked.
    booked: HashSet<String>,
}

impl Merchants {
    /// Listens on a free port.
    pub(crate) async fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let merchants = Self { address: listener.local_addr()?, books: Arc::default() };
        let books = merchants.books.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // An error means that the sender has closed the connection, which a timeout does.
                tokio::spawn(receive(stream, books.clone()));
            }
        });
        Ok(merchants)
    }

    pub(crate) fn notice(&self, trade: u64) -> Notice {
        Notice { merchant: self.address, trade, cents: 100 + trade * 37 % 9900 }
    }

    /// Returns the idempotency keys of the booked notices. Repetitions of a notice have one key.
    pub(crate) fn booked(&self) -> HashSet<String> {
        lock(&self.books).booked.clone()
    }
}

/// Sends a notice to its merchant, and returns the answer.
pub(crate) async fn send(notice: &Notice, idempotency_key: String) -> io::Result<Answer> {
    let mut stream = BufStream::new(TcpStream::connect(notice.merchant).await?);
    write(&mut stream, &Request { idempotency_key, notice: notice.clone() }).await?;
    read(&mut stream).await
}

async fn receive(stream: TcpStream, books: Arc<Mutex<Books>>) -> io::Result<()> {
    let mut stream = BufStream::new(stream);
    let request: Request = read(&mut stream).await?;
    let answer = answer(&request, &books).await;
    write(&mut stream, &answer).await
}

async fn answer(request: &Request, books: &Mutex<Books>) -> Answer {
    let merchant = Merchant::of(request.notice.trade);
    let tries = lock(books).note(merchant, request);
    match merchant {
        // The merchant has booked it, but its gateway fails.
        Merchant::Flaky if tries <= 1 + request.notice.cents % 3 => return Answer::BadGateway,
        Merchant::Late if tries == 1 => tokio::time::sleep(2 * crate::TIMEOUT).await,
        // Longer than the demo runs.
        Merchant::Silent => tokio::time::sleep(Duration::from_secs(3600)).await,
        Merchant::Closed => return Answer::Gone,
        Merchant::Prompt | Merchant::Flaky | Merchant::Late => {}
    }
    Answer::Success
}

async fn write(stream: &mut BufStream<TcpStream>, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await
}

async fn read<T: for<'de> Deserialize<'de>>(stream: &mut BufStream<TcpStream>) -> io::Result<T> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(serde_json::from_str(&line)?)
}

impl Books {
    /// Books a notice if its key is new, whatever the answer will be. Returns the number of requests for this trade,
    /// including this one.
    fn note(&mut self, merchant: Merchant, request: &Request) -> u64 {
        if merchant != Merchant::Closed {
            self.booked.insert(request.idempotency_key.clone());
        }
        let tries = self.tries.entry(request.notice.trade).or_default();
        *tries += 1;
        *tries
    }
}

fn lock(books: &Mutex<Books>) -> std::sync::MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}
