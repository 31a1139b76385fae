//! TCP connections: how they are kept, the same for plain ones, which `redis` opens, and for those below TLS; and who
//! answers at a port where none could be made, so that an error can say what to set.

use std::future::pending;
use std::io;
use std::time::Duration;

use futures::future::select_ok;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};

use crate::address::Endpoint;

/// After this long without an acknowledgement the kernel gives a connection up.
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// How an error begins where TLS was tried at a plain port.
pub const NO_TLS: &str = "no TLS is spoken at this port";
/// How an error begins where plain Redis was tried at a port of TLS.
pub const TLS: &str = "TLS is spoken at this port";

/// How long an answer may take.
const WITHIN: Duration = Duration::from_millis(400);
/// After this long without an answer to TLS somebody who speaks none is suspected. With the answer it is less than anybody waits
/// for a connection: a second, for a sentinel.
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
const SUSPECT_AFTER: Duration = Duration::from_millis(300);

/// The shortest greeting of TLS 1.2. It need not lead to a session: an alert is an answer, too.
#[rustfmt::skip]
const HELLO: [u8; 56] = [
    0x16, 3, 1, 0, 51, // a record of the handshake
    1, 0, 0, 47, 3, 3, // a client's hello
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0,                                     // no session to resume
    0, 8, 0xc0, 0x2f, 0xc0, 0x2b, 0xc0, 0x30, 0xc0, 0x2c, // cipher suites
    1, 0, // no compression
];

/// `redis` 1.x leaves all of these off.
pub(super) fn settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(DEAD_AFTER).with_interval(Duration::from_secs(3));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(DEAD_AFTER);
    settings
}

/// Connects to the first of a host's addresses that answers.
pub(super) async fn open(host: &str, port: u16) -> io::Result<TcpStream> {
    let connecting: Vec<_> =
        lookup_host((host, port)).await?.map(|address| Box::pin(TcpStream::connect(address))).collect();
    if connecting.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host's name has no address"));
    }
    let (stream, _) = select_ok(connecting).await?;
    let (socket, settings) = (SockRef::from(&stream), settings());
    socket.set_tcp_nodelay(settings.nodelay())?;
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(stream)
}

/// Returns whether TLS is spoken there. Nothing is told but what any stranger would say.
pub(super) async fn speaks_tls(endpoint: &Endpoint) -> bool {
    matches!(first_bytes(endpoint, &HELLO).await, Some([0x15 | 0x16, 3]))
}

/// Comes when Redis' protocol turns out to be spoken there, without TLS; else never. For whoever waits for TLS.
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
pub(super) async fn turns_out_plain(endpoint: &Endpoint) {
    tokio::time::sleep(SUSPECT_AFTER).await;
    if !matches!(first_bytes(endpoint, b"PING\r\n").await, Some([b'+' | b'-', _])) {
        pending::<()>().await;
    }
}

async fn first_bytes(endpoint: &Endpoint, greeting: &[u8]) -> Option<[u8; 2]> {
    let Endpoint::Tcp { host, port } = endpoint else { return None };
    let asked = async {
        let mut stream = open(host, *port).await?;
        stream.write_all(greeting).await?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer).await.map(|_| answer)
    };
    tokio::time::timeout(WITHIN, asked).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_below_tls_is_kept_as_a_plain_one_is() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = open("localhost", server.local_addr().unwrap().port()).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), DEAD_AFTER);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(3));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(DEAD_AFTER));
    }
}
