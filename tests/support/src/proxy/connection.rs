//! One connection through the proxy: a pump each way, and what they know of each other.

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

const READ: usize = 64 * 1024;
/// The server gets this for a command that is denied, so that the error comes after what was asked before.
const IN_ITS_PLACE: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// Bytes each way with a client.
pub(crate) trait Session: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Session for T {}

/// What all connections of a proxy share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Where plain TCP is spoken.
    pub(super) upstream: SocketAddr,
    /// Set where clients speak TLS.
    pub(super) tls: Option<tls::Acceptor>,
    pub(super) faults: Faults,
    pub(super) counters: Counters,
}

/// Serves one client until either side closes, a fault ends it, or all connections are cut.
pub(super) async fn serve(mut client: TcpStream, shared: &Shared, mut cut: watch::Receiver<Cut>) {
    // A server that is away is for the client a connection that closes at once.
    let Ok(server) = TcpStream::connect(shared.upstream).await else { return };
    let finished = tokio::select! {
        finished = relay(&mut client, server, shared) => finished,
        _ = cut.changed() => match *cut.borrow() {
            Cut::Close => Ok(()),
            Cut::Reset => Err(io::ErrorKind::ConnectionReset.into()),
        },
    };
    // Peers that vanish are what this proxy is for; bytes that it cannot follow are a bug somewhere.
    match finished.map_err(|error| (error.kind(), error)) {
        Err((io::ErrorKind::InvalidData, error)) => eprintln!("the proxy closes a connection: {error}"),
        // Without lingering, closing is resetting.
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

    // Whichever direction ends first ends the connection.
    tokio::select! {
        ended = pump(|parcels| pumps.requests(from_client, parcels), to_server, requests) => ended,
        ended = pump(|parcels| pumps.replies(from_server, parcels), to_client, replies) => ended,
    }
}

/// Runs one direction: `read` hands over what the delivery writes, perhaps later.
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
                    Some(Fault::Denied(Denial::Error(_))) => whole.extend_from_slice(IN_ITS_PLACE),
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
        // The answer to what is sent in its place is one reply, whatever was asked.
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
                        // Answers before this one do arrive.
                        whole.extend_from_slice(torn(&frame, then));
                        send(&to, whole).await?;
                        return self.lose(then).await;
                    }
                    Some(Fault::Denied(Denial::Error(said))) => {
                        whole.extend_from_slice(format!("-{said}\r\n").as_bytes());
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

    /// The server has executed the request, and the client will not hear of it.
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

/// Whether this is what somebody has published, in RESP3.
fn is_message(frame: &Frame) -> bool {
    let kinds = ["message", "pmessage", "smessage"].map(|kind| format!("\r\n{kind}\r\n"));
    let raw = frame.raw();
    let head = &raw[..raw.len().min(24)];
    raw.starts_with(b">")
        && kinds.iter().any(|kind| head.windows(kind.len()).any(|part| part == kind.as_bytes()))
}

/// How much of a lost reply still arrives.
fn torn(frame: &Frame, then: Then) -> &[u8] {
    match then {
        Then::Tear(after) | Then::Halt(after) => &frame.raw()[..after.min(frame.raw().len() - 1)],
        Then::Close | Then::Stall | Then::Reset => &[],
    }
}

/// Reads whatever has arrived; false at the end. A small buffer would cut what was written at once
/// into many reads, and the count of batches would mean nothing.
async fn read(from: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<bool> {
    buffer.reserve(READ);
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
