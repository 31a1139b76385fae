//! What a client speaks with the proxy, which has to understand it: TLS ends here.

use std::{io, path::Path, sync::Arc};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

/// Bytes each way.
pub(super) trait Session: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Session for T {}

/// With the certificate that servers present.
pub(super) fn config(folder: &Path) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(folder.join("server.pem")).expect("a certificate in PEM");
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).expect("a key in PEM");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(vec![certificate], key));
    Arc::new(config.expect("a certificate and its key"))
}

pub(super) async fn begin<'a>(
    tls: Option<&Arc<ServerConfig>>,
    client: &'a mut TcpStream,
) -> io::Result<Box<dyn Session + 'a>> {
    let Some(config) = tls else { return Ok(Box::new(client)) };
    Ok(Box::new(TlsAcceptor::from(Arc::clone(config)).accept(client).await?))
}
