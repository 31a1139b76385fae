//! TCP connections, and how they are kept: the same for plain ones, which `redis` opens, and for those below TLS.

use std::io;
use std::time::Duration;

use futures::future::select_ok;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};

/// After this long without an acknowledgement the kernel gives a connection up.
const DEAD_AFTER: Duration = Duration::from_secs(10);

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
