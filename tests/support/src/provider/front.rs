//! A proxy that imitates a service.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
};

use super::{Provider, Shape, Verdict, guard::Texts};
use crate::{
    Server,
    proxy::{Frame, Listener},
};

/// A command that does not exist. The proxy sends it in place of a refused request, and replaces the server's error by that
/// of the service, so that replies keep their order.
const MARK: &str = "keylapse-refused";
const READ_SIZE: usize = 64 * 1024;

/// A proxy to which clients of a service connect. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Front {
    address: SocketAddr,
    task: JoinHandle<()>,
}

#[derive(Clone, Debug)]
struct Service {
    provider: &'static Provider,
    upstream: SocketAddr,
    texts: Arc<Texts>,
}

impl Front {
    pub(crate) async fn before(server: &Server, provider: &'static Provider) -> Self {
        let upstream = server.door();
        let listener = match provider.shape {
            // A node announces its own port, and the host to which the client has connected.
            Shape::Cluster => Listener::beside(upstream.port()).await,
            Shape::One | Shape::Shards => Listener::on_any_port().await,
        };
        let service = Service { provider, upstream, texts: Arc::default() };
        let address = listener.address();
        let task = tokio::spawn(async move {
            loop {
                let (client, service) = (listener.accept().await, service.clone());
                tokio::spawn(async move {
                    if let Err(error) = serve(client, &service).await
                        && error.kind() == io::ErrorKind::InvalidData
                    {
                        eprintln!("the imitated service closes a connection: {error}");
                    }
                });
            }
        });
        Self { address, task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The errors for the refused requests, in the order of the requests.
type Refused = Mutex<VecDeque<String>>;

async fn serve(client: TcpStream, service: &Service) -> io::Result<()> {
    let server = TcpStream::connect(service.upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let refused = Refused::default();
    // The direction that ends first ends the connection.
    tokio::select! {
        ended = requests(from_client, to_server, service, &refused) => ended,
        ended = replies(from_server, to_client, &refused) => ended,
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    service: &Service,
    refused: &Refused,
) -> io::Result<()> {
    let mut buffer = BytesMut::with_capacity(READ_SIZE);
    while from.read_buf(&mut buffer).await? > 0 {
        let mut whole = BytesMut::new();
        while let Some(frame) = Frame::take(&mut buffer).map_err(invalid)? {
            let words = frame.words().ok_or_else(|| invalid("the frame is not a request"))?;
            match service.provider.judge(&words, &service.texts) {
                Verdict::Passes => whole.extend_from_slice(frame.raw()),
                Verdict::Instead(words) => whole.extend_from_slice(&request(&words)),
                Verdict::Refused(text) => {
                    refused.lock().unwrap_or_else(PoisonError::into_inner).push_back(text);
                    whole.extend_from_slice(&request(&[Bytes::from_static(MARK.as_bytes())]));
                }
                Verdict::Closes => return Ok(()),
            }
        }
        to.write_all(&whole).await?;
        buffer.reserve(READ_SIZE);
    }
    Ok(())
}

async fn replies(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, refused: &Refused) -> io::Result<()> {
    let mark = format!("-ERR unknown command '{MARK}'");
    let mut buffer = BytesMut::with_capacity(READ_SIZE);
    while from.read_buf(&mut buffer).await? > 0 {
        let mut whole = BytesMut::new();
        while let Some(frame) = Frame::take(&mut buffer).map_err(invalid)? {
            if frame.raw().starts_with(mark.as_bytes()) {
                let text = refused.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                whole.extend_from_slice(format!("-{}\r\n", text.unwrap_or_default()).as_bytes());
            } else {
                whole.extend_from_slice(frame.raw());
            }
        }
        to.write_all(&whole).await?;
        buffer.reserve(READ_SIZE);
    }
    Ok(())
}

fn request(words: &[Bytes]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
    request
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
