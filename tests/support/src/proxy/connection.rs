//! A connection through the proxy: a pump in each direction, and their shared dialogue.

use std::{
    io,
    net::SocketAddr,
    sync::{Mutex, PoisonError, atomic::Ordering},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::TcpStream,
    sync::{mpsc, watch},
};

use super::{
    counters::Counters,
    delivery::{self, Parcel},
    dialogue::Dialogue,
    faults::{Cut, Denial, Fault, Faults, Then, Weather},
    frame::{Frame, Malformed},
};
use crate::tls;

const READ_SIZE: usize = 64 * 1024;
/// The proxy sends PING in place of a denied command, and replaces its reply by the error, so that replies keep their order.
const PLACEHOLDER: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// A stream of bytes to and from a client.
pub(crate) trait Session: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Session for T {}

/// The state that all connections of a proxy share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The address of the server, for plain TCP.
    pub(super) upstream: SocketAddr,
    /// Is set if clients connect over TLS.
    pub(super) tls: Option<tls::Acceptor>,
    pub(super) faults: Faults,
    pub(super) counters: Counters,
}

/// Serves one client until either side closes, a fault ends it, or all connections are cut.
pub(super) async fn serve(mut client: TcpStream, shared: &Shared, mut cut: watch::Receiver<Cut>) {
    // If the server is not reachable, the proxy closes the client's connection immediately.
    let Ok(server) = TcpStream::connect(shared.upstream).await else { return };
    let finished = tokio::select! {
        finished = relay(&mut client, server, shared) => finished,
        _ = cut.changed() => match *cut.borrow() {
            Cut::Close => Ok(()),
            Cut::Reset => Err(io::ErrorKind::ConnectionReset.into()),
        },
    };
    // Tests cause lost connections on purpose, so these are not reported. Bytes that are not RESP are a bug.
    match finished.map_err(|error| (error.kind(), error)) {
        Err((io::ErrorKind::InvalidData, error)) => eprintln!("the proxy closes a connection: {error}"),
        // With a linger time of zero, closing the socket resets the connection.
        Err((io::ErrorKind::ConnectionReset, _)) => drop(client.set_zero_linger()),
        _ => {}
    }
}

async fn relay(client: &mut TcpStream, mut server: TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let client: Box<dyn Session> = match &shared.tls {
        None => Box::new(client),
        Some(tls) => tls.accept(client).await?,
    };
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = server.split();
    let dialogue = Mutex::default();
    let hushed = shared.faults.hushed.load(Ordering::Relaxed);
    let pumps = Pumps { shared, dialogue: &dialogue, hushed };
    let Faults { requests, replies, .. } = &shared.faults;

    // The direction that ends first ends the connection.
    tokio::select! {
        ended = pump(|parcels| pumps.requests(from_client, parcels), to_server, requests) => ended,
        ended = pump(|parcels| pumps.replies(from_server, parcels), to_client, replies) => ended,
    }
}

/// Runs one direction: `read` queues parcels, and the delivery writes them, possibly with a delay.
async fn pump<R>(
    read: impl FnOnce(mpsc::Sender<Parcel>) -> R,
    to: impl AsyncWrite + Unpin,
    weather: &watch::Sender<Weather>,
) -> io::Result<()>
where
    R: Future<Output = io::Result<()>>,
{
    let (parcels, queue) = delivery::queue();
    tokio::try_join!(read(parcels), delivery::run(queue, to, weather.subscribe()))?;
    Ok(())
}

#[derive(Clone, Copy)]
struct Pumps<'a> {
    shared: &'a Shared,
    dialogue: &'a Mutex<Dialogue>,
    hushed: bool,
}

impl Pumps<'_> {
    async fn requests(self, mut from: impl AsyncRead + Unpin, to: mpsc::Sender<Parcel>) -> io::Result<()> {
        let mut buffer = BytesMut::new();
        while read(&mut from, &mut buffer).await? {
            self.shared.counters.batch();
            let mut whole = BytesMut::new();
            while let Some(frame) = Frame::take(&mut buffer).map_err(unreadable)? {
                match self.note_request(&frame)? {
                    Some(Fault::Denied(Denial::Close)) => return Ok(()),
                    Some(Fault::Denied(Denial::Error(_))) => whole.extend_from_slice(PLACEHOLDER),
                    Some(Fault::Lost(_)) | None => whole.extend_from_slice(frame.raw()),
                }
            }
            send(&to, whole).await?;
        }
        Ok(())
    }

    fn note_request(self, frame: &Frame) -> io::Result<Option<Fault>> {
        let words = frame.words().ok_or_else(|| unreadable(Malformed::new(frame.raw())))?;
        self.shared.counters.request(&words);
        let fault = self.shared.faults.judge(&words);
        // The placeholder has one reply, even if the denied command would have several.
        let asked = if matches!(fault, Some(Fault::Denied(_))) { &words[..0] } else { &words[..] };
        self.with_dialogue(|dialogue| dialogue.sent(asked, fault));
        Ok(fault)
    }

    async fn replies(self, mut from: impl AsyncRead + Unpin, to: mpsc::Sender<Parcel>) -> io::Result<()> {
        let (mut buffer, mut carried) = (BytesMut::new(), 0);
        while read(&mut from, &mut buffer).await? {
            let mut whole = BytesMut::new();
            while let Some(frame) = Frame::take(&mut buffer).map_err(unreadable)? {
                match self.with_dialogue(|dialogue| dialogue.received(&frame)) {
                    Some(Fault::Lost(then)) => {
                        // The replies before the lost one still arrive.
                        whole.extend_from_slice(torn(&frame, then));
                        send(&to, whole).await?;
                        return self.lose(then).await;
                    }
                    Some(Fault::Denied(Denial::Error(text))) => {
                        whole.extend_from_slice(format!("-{text}\r\n").as_bytes());
                        continue;
                    }
                    Some(Fault::Denied(Denial::Close)) | None => {}
                }
                if !(self.hushed && is_message(&frame)) {
                    whole.extend_from_slice(frame.raw());
                }
            }
            let left = self.shared.faults.torn_after.load(Ordering::Relaxed).saturating_sub(carried);
            carried += whole.len();
            if whole.len() > left {
                whole.truncate(left);
                send(&to, whole).await?;
                return self.lose(Then::Close).await;
            }
            send(&to, whole).await?;
        }
        Ok(())
    }

    /// Ends the connection after a lost reply: the server has executed the request, and the client receives no reply.
    async fn lose(self, then: Then) -> io::Result<()> {
        self.shared.faults.lost.send_modify(|lost| *lost += 1);
        match then {
            Then::Close | Then::Tear(_) => Ok(()),
            Then::Reset => Err(io::ErrorKind::ConnectionReset.into()),
            Then::Stall | Then::Halt(_) => std::future::pending().await,
        }
    }

    fn with_dialogue<T>(self, act: impl FnOnce(&mut Dialogue) -> T) -> T {
        act(&mut self.dialogue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns whether a frame is a published message in RESP3.
fn is_message(frame: &Frame) -> bool {
    let kinds = ["message", "pmessage", "smessage"].map(|kind| format!("\r\n{kind}\r\n"));
    let raw = frame.raw();
    let head = &raw[..raw.len().min(24)];
    raw.starts_with(b">")
        && kinds.iter().any(|kind| head.windows(kind.len()).any(|part| part == kind.as_bytes()))
}

/// Returns the part of a lost reply that still arrives.
fn torn(frame: &Frame, then: Then) -> &[u8] {
    match then {
        Then::Tear(after) | Then::Halt(after) => &frame.raw()[..after.min(frame.raw().len() - 1)],
        Then::Close | Then::Stall | Then::Reset => &[],
    }
}

/// Reads all bytes that have arrived. Returns false at the end of the stream. A small buffer would split one write into many
/// reads, and the count of batches would be wrong.
async fn read(from: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<bool> {
    buffer.reserve(READ_SIZE);
    Ok(from.read_buf(buffer).await? > 0)
}

async fn send(to: &mpsc::Sender<Parcel>, bytes: BytesMut) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let bytes: Bytes = bytes.freeze();
    to.send(Parcel::now(bytes)).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
}

fn unreadable(malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}
