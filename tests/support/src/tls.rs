//! TLS connections of tests to servers, and to proxies, which terminate TLS.

use std::{env, io, path::Path, sync::Arc};

use redis::{ConnectionInfo, RedisResult};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

use crate::{proxy::Session, reach::TRUSTED};

/// Connects with `rustls` directly, because a TLS feature of `redis` would apply to all packages of the workspace.
pub(crate) async fn connect(info: &ConnectionInfo) -> RedisResult<TlsStream<TcpStream>> {
    let address = info.addr().to_string();
    let stream = TcpStream::connect(&address).await?;
    stream.set_nodelay(true)?;
    let host = address.rsplit_once(':').map_or(&*address, |(host, _)| host).to_owned();
    let name = ServerName::try_from(host).expect("tests connect to names or addresses");
    Ok(TlsConnector::from(trusting()).connect(name, stream).await?)
}

/// Returns a configuration that trusts the CA of the environment, as programs do.
fn trusting() -> Arc<ClientConfig> {
    let path = env::var_os(TRUSTED).unwrap_or_else(|| panic!("{TRUSTED} must name the file of the CA"));
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(path).expect("the file of the CA must be in PEM");
    roots.add(certificate).expect("the certificate must be that of a CA");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has them");
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

/// Accepts TLS connections at a proxy.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor(Arc<ServerConfig>);

impl Acceptor {
    /// Uses the certificate of the servers.
    pub(crate) fn of(folder: &Path) -> Self {
        let certificate = CertificateDer::from_pem_file(folder.join("server.pem"));
        let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).expect("a key in PEM");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.expect("a certificate in PEM")], key);
        Self(Arc::new(config.expect("a certificate and its key")))
    }

    pub(crate) async fn accept<'a>(&self, client: &'a mut TcpStream) -> io::Result<Box<dyn Session + 'a>> {
        Ok(Box::new(TlsAcceptor::from(Arc::clone(&self.0)).accept(client).await?))
    }
}
