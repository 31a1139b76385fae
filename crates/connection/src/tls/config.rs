//! Certificates and keys from files, as `rustls` wants them.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::{Error, ErrorKind, Result};
use crate::escape::plain;
use crate::read_file::read_file;
use crate::tls::Tls;
use crate::tls::settings::ClientFiles;

/// The settings of one session. The provider is ours alone: what other parts of the program have installed for the
/// process neither matters nor is changed.
pub(super) fn config(tls: &Tls) -> Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Internal, format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots(tls.ca_file.as_deref())?);
    let Some(ClientFiles { certificate, key }) = &tls.client else { return Ok(config.with_no_client_auth()) };
    let chain = certificates(certificate, "client certificate")?;
    config.with_client_auth_cert(chain, private_key(key)?).map_err(|error| {
        let (key, certificate) = (shown(key), shown(certificate));
        refused(match error {
            rustls::Error::InconsistentKeys(_) => format!(
                "the private key in {key} is not that of the first certificate in {certificate}: they have to be \
                 replaced together"
            ),
            error => format!("the client certificate in {certificate} or its key in {key} is of no use: {error}"),
        })
    })
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca_file else { return platform_roots(roots) };
    for certificate in certificates(path, "CA file")? {
        roots.add(certificate).map_err(|error| {
            refused(format!("the CA file {} has a malformed certificate: {error}", shown(path)))
        })?;
    }
    Ok(roots)
}

fn platform_roots(mut roots: RootCertStore) -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    // Of a platform's certificates some are always too old to be read.
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable > 0 {
        return Ok(roots);
    }
    let errors: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
    Err(refused(format!(
        "no certificate of a CA was found, neither by SSL_CERT_FILE and SSL_CERT_DIR nor where this platform keeps \
         them ({}): install its CA certificates, set SSL_CERT_FILE, or give Tls::ca_file",
        plain(&errors.join("; "), 300)
    )))
}

fn certificates(path: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(path, what)?;
    let all: Vec<_> = CertificateDer::pem_slice_iter(&bytes).collect::<Result<_, _>>().map_err(|error| {
        refused(format!("the {what} {} is malformed: {}", shown(path), plain(&error.to_string(), 200)))
    })?;
    if all.is_empty() {
        return Err(refused(format!("the {what} {} holds no certificate in PEM", shown(path))));
    }
    Ok(all)
}

/// The parser's own error is left out: it quotes what it cannot read, and that may be of the key.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(&read(path, "private key")?).map_err(|_| {
        refused(format!(
            "the private key {} is malformed: a key in PEM is expected (PKCS#8, PKCS#1 or SEC1) that is not encrypted",
            shown(path)
        ))
    })
}

fn read(path: &Path, what: &str) -> Result<Vec<u8>> {
    read_file(path).map_err(|error| refused(format!("the {what} {} cannot be read: {error}", shown(path))))
}

fn shown(path: &Path) -> String {
    plain(&path.to_string_lossy(), 255)
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Tls, message)
}
