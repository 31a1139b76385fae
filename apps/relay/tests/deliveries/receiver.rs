//! A receiver of webhooks that behaves as badly as it is told to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// What it does with a call.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// Answers with this status and these headers.
    Answer(u16, Vec<(&'static str, String)>),
    /// Answers so much later with this status.
    Late(Duration, u16),
    /// Never answers.
    Hang,
    /// Begins an answer so, and then sends a byte now and then, for ever.
    Drip(&'static str),
    /// Answers 200, and a body of so many bytes.
    Body(usize),
    /// Answers 200, and headers of so many bytes.
    Head(usize),
    /// Hangs up without an answer.
    Close,
}

impl Then {
    pub(crate) fn status(status: u16) -> Self {
        Self::Answer(status, Vec::new())
    }
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) at: Instant,
    /// Which call of its connection it is, from 1.
    pub(crate) of_line: usize,
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Heard {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn id(&self) -> &str {
        self.header("webhook-id")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// What a receiver does with the n-th call, from 1.
type Choice = Box<dyn Fn(usize, &Heard) -> Then + Send + Sync>;

pub(crate) struct Receiver {
    address: SocketAddr,
    desk: Arc<Desk>,
    _accepting: JoinSet<()>,
}

/// What all connections share.
struct Desk {
    choose: Choice,
    heard: watch::Sender<Vec<Heard>>,
    /// Bytes of long answers that somebody has taken.
    sent: AtomicUsize,
    /// Answers that somebody did not take to their end.
    cut: AtomicUsize,
    /// Calls at the same time: now, and at most.
    open: AtomicUsize,
    most: AtomicUsize,
}

impl Receiver {
    pub(crate) async fn start(choose: impl Fn(usize, &Heard) -> Then + Send + Sync + 'static) -> Self {
        Self::with(None, choose).await
    }

    /// Over TLS.
    pub(crate) async fn secured(
        tls: TlsAcceptor,
        choose: impl Fn(usize, &Heard) -> Then + Send + Sync + 'static,
    ) -> Self {
        Self::with(Some(tls), choose).await
    }

    async fn with(
        tls: Option<TlsAcceptor>,
        choose: impl Fn(usize, &Heard) -> Then + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has one");
        let (sent, cut, open, most) = Default::default();
        let desk = Desk { choose: Box::new(choose), heard: watch::Sender::default(), sent, cut, open, most };
        let desk = Arc::new(desk);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, tls, Arc::clone(&desk)));
        Self { address, desk, _accepting: accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// All calls, once there are so many.
    pub(crate) async fn calls(&self, count: usize) -> Vec<Heard> {
        let mut heard = self.desk.heard.subscribe();
        let enough = heard.wait_for(|all| all.len() >= count);
        let patience = Duration::from_secs(30);
        let all = tokio::time::timeout(patience, enough).await;
        let Ok(all) = all else { panic!("{} calls of {count} within {patience:?}", self.count()) };
        all.expect("it runs").clone()
    }

    /// Returns the calls that were received so far.
    pub(crate) fn received(&self) -> Vec<Heard> {
        self.desk.heard.borrow().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.received().len()
    }

    pub(crate) fn sent(&self) -> usize {
        self.desk.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn cut(&self) -> usize {
        self.desk.cut.load(Ordering::Relaxed)
    }

    /// How many calls there were at the same time, of those that are answered [late](Then::Late) or never.
    pub(crate) fn most_at_once(&self) -> usize {
        self.desk.most.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, desk: Arc<Desk>) {
    let mut calls = JoinSet::new();
    while let Ok((line, _)) = listener.accept().await {
        let (tls, desk) = (tls.clone(), Arc::clone(&desk));
        calls.spawn(async move {
            match tls {
                None => desk.serve(line).await,
                // Whoever does not trust it hangs up.
                Some(tls) => {
                    if let Ok(line) = tls.accept(line).await {
                        desk.serve(line).await;
                    }
                }
            }
        });
    }
}

impl Desk {
    async fn serve(&self, mut line: impl AsyncRead + AsyncWrite + Unpin) {
        let mut of_line = 0;
        while let Some(call) = read(&mut line).await {
            of_line += 1;
            let call = Heard { of_line, ..call };
            let mut number = 0;
            let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(open, Ordering::Relaxed);
            self.heard.send_modify(|all| {
                all.push(call.clone());
                number = all.len();
            });
            if !self.answer(&mut line, (self.choose)(number, &call)).await {
                return;
            }
        }
    }

    /// Whether the connection goes on.
    async fn answer(&self, line: &mut (impl AsyncWrite + Unpin), then: Then) -> bool {
        match then {
            Then::Late(time, status) => {
                tokio::time::sleep(time).await;
                // Before the answer, which the caller may follow up at once.
                self.open.fetch_sub(1, Ordering::Relaxed);
                let text = format!("HTTP/1.1 {status} So\r\ncontent-length: 0\r\n\r\n");
                line.write_all(text.as_bytes()).await.is_ok()
            }
            Then::Answer(status, headers) => {
                let headers: String =
                    headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let text = format!("HTTP/1.1 {status} So\r\n{headers}content-length: 0\r\n\r\n");
                line.write_all(text.as_bytes()).await.is_ok()
            }
            Then::Body(bytes) => {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
                self.at_length(line, &head, bytes).await
            }
            Then::Head(bytes) => self.at_length(line, "HTTP/1.1 200 OK\r\nx: ", bytes).await,
            Then::Drip(head) => {
                let mut goes_on = line.write_all(head.as_bytes()).await.is_ok();
                while goes_on {
                    // A byte at this pace: the trickle is what is played.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    goes_on = line.write_all(b"x").await.is_ok();
                }
                false
            }
            Then::Hang => std::future::pending().await,
            Then::Close => false,
        }
    }

    async fn at_length(&self, line: &mut (impl AsyncWrite + Unpin), head: &str, bytes: usize) -> bool {
        let mut is_there = line.write_all(head.as_bytes()).await.is_ok();
        let (some, mut left) = ([b'x'; 64 << 10], bytes);
        while left > 0 && is_there {
            let next = left.min(some.len());
            is_there = line.write_all(&some[..next]).await.is_ok();
            left -= next;
            self.sent.fetch_add(next, Ordering::Relaxed);
        }
        self.cut.fetch_add(usize::from(!is_there), Ordering::Relaxed);
        is_there
    }
}

/// A request with its body; none once the other side has hung up.
async fn read(line: &mut (impl AsyncRead + Unpin)) -> Option<Heard> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        more(line, &mut bytes).await?;
    };
    let text = String::from_utf8(bytes[..head].to_vec()).ok()?;
    let mut lines = text.lines().map(str::to_owned);
    let first = lines.next()?;
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned())))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = bytes.split_off(head + 4);
    while body.len() < length {
        more(line, &mut body).await?;
    }
    Some(Heard { at: Instant::now(), of_line: 0, line: first, headers, body })
}

async fn more(line: &mut (impl AsyncRead + Unpin), into: &mut Vec<u8>) -> Option<()> {
    (line.read_buf(into).await.ok()? > 0).then_some(())
}
