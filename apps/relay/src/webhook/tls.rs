//! The certificate authorities that calls trust: those of the system, or those of a file.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Returns a TLS configuration that trusts these authorities. It uses `ring`, as the library does, so that the program has
/// one provider of cryptography.
pub(crate) fn trusting(file: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            let read = |error| format!("{}: {error}", file.display());
            for certificate in CertificateDer::pem_file_iter(file).map_err(read)? {
                let certificate = certificate.map_err(read)?;
                roots.add(certificate).map_err(|error| format!("{}: {error}", file.display()))?;
            }
            if roots.is_empty() {
                return Err(format!("{} has no certificate", file.display()));
            }
        }
        None => {
            // System certificates that cannot be read are left out: the others may be enough.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
