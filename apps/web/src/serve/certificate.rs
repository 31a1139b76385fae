//! The certificate of a TLS server.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::serve::ServeError;

/// A certificate with its key. Clones share it, so [`take`](Self::take) replaces it in all of them.
#[derive(Clone)]
pub struct Certificate(Arc<RwLock<Arc<ServerConfig>>>);

impl Certificate {
    /// Reads a certificate chain and its key from two PEM files.
    ///
    /// # Errors
    /// If a file cannot be read, or the key does not fit the certificate.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, ServeError> {
        let at = |path: &Path, why: String| ServeError::Certificate(format!("{}: {why}", path.display()));
        let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
        let chain: Vec<_> = chain.map_err(|error| at(certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(at(certificate, "the file has no certificate".to_owned()));
        }
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| at(key, error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.and_then(|config| config.with_no_client_auth().with_single_cert(chain, secret));
        let mut config = config.map_err(|error| at(certificate, error.to_string()))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(RwLock::new(Arc::new(config)))))
    }

    /// Replaces the certificate by another one, for connections from now on.
    pub fn take(&self, other: &Self) {
        let config = other.config();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificate(…)")
    }
}
