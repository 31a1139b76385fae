//! Connections for what a test itself has to say to a server.

use std::{env, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisResult,
    aio::MultiplexedConnection, io::tcp::TcpSettings,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::reach::TRUSTED;

/// The default of `redis` is half a second, which a busy machine, `WAIT` or `DEBUG SLEEP` exceeds.
const RESPONSE: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(10);

/// Connects with time limits so generous that only a server that is really stuck meets them. Of a cluster it is the
/// first node in the URL.
pub async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let url = if rest == url || scheme == "unix" { url.to_owned() } else { format!("redis://{rest}") };
    // Without TCP_NODELAY a small request can wait 40 ms for the acknowledgement of the one before.
    let info = url.into_connection_info()?.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let limits = AsyncConnectionConfig::new()
        .set_response_timeout(Some(RESPONSE))
        .set_connection_timeout(Some(CONNECT));
    if !scheme.starts_with("rediss") {
        return Client::open(info)?.get_multiplexed_async_connection_with_config(&limits).await;
    }
    let session = begin_tls(&info).await?;
    let (connection, driver) =
        MultiplexedConnection::new_with_config(info.redis_settings(), session, limits).await?;
    tokio::spawn(driver);
    Ok(connection)
}

/// By `rustls`: for `redis` to do it, it would have to be built with it for everybody.
async fn begin_tls(info: &ConnectionInfo) -> RedisResult<TlsStream<TcpStream>> {
    let address = info.addr().to_string();
    let stream = TcpStream::connect(&address).await?;
    stream.set_nodelay(true)?;
    let host = address.rsplit_once(':').map_or(&*address, |(host, _)| host).to_owned();
    let name = ServerName::try_from(host).expect("tests connect to names or addresses");
    Ok(TlsConnector::from(trusting()).connect(name, stream).await?)
}

/// What programs trust that are told so by the environment.
fn trusting() -> Arc<ClientConfig> {
    let path = env::var_os(TRUSTED).unwrap_or_else(|| panic!("{TRUSTED} has to name the file of the CA"));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(path).expect("a certificate in PEM")).expect("that of a CA");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has them");
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}
