//! TLS sessions over streams, and advice for their errors.

use std::io;
use std::path::Path;
use std::sync::Arc;

use redis::RedisError;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::address::Endpoint;
use crate::classify::io_error;
use crate::error::{Error, ErrorKind, Result};
use crate::escape::{escape_line, text_of};
use crate::login::read_file;
use crate::stream::{NO_TLS_AT_PORT, Stream};
use crate::tls::{ClientFiles, Tls};

/// The settings of a session, with the contents of the files.
pub(crate) struct TlsContext {
    config: Arc<ClientConfig>,
    tls: Tls,
}

impl TlsContext {
    /// Reads the files of `tls`.
    pub(crate) fn new(tls: &Tls) -> Result<Self> {
        Ok(Self { config: Arc::new(config(tls)?), tls: tls.clone() })
    }

    /// Starts a session over a stream.
    pub(crate) async fn begin(
        &self,
        stream: Box<dyn Stream>,
        endpoint: &Endpoint,
    ) -> Result<Box<dyn Stream>> {
        let name = self.name(endpoint)?;
        match TlsConnector::from(self.config.clone()).connect(name, stream).await {
            Ok(session) => Ok(Box::new(session)),
            Err(error) => Err(self.failure().during_handshake(&error)),
        }
    }

    /// Returns an error with advice, if TLS caused this error after the handshake.
    pub(crate) fn explain(&self, error: &RedisError) -> Option<Error> {
        self.failure().afterwards(io_error(error)?)
    }

    fn failure(&self) -> TlsErrorAdvice {
        TlsErrorAdvice { has_ca_file: self.tls.ca_file.is_some(), has_certificate: self.tls.client.is_some() }
    }

    fn name(&self, endpoint: &Endpoint) -> Result<ServerName<'static>> {
        let host = match (&self.tls.server_name, endpoint) {
            (Some(name), _) => name,
            (None, Endpoint::Tcp { host, .. }) => host,
            (None, Endpoint::Unix(_)) => "",
        };
        name_of(host)
    }
}

fn name_of(host: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).map_err(|_| {
        Error::new(
            ErrorKind::Invalid,
            "the host cannot be a name in a certificate: set Tls::server_name to a name of the certificate",
        )
    })
}

impl Tls {
    /// Checks the server name. The files are checked when a connection reads them.
    ///
    /// # Errors
    /// The server name is neither a DNS name nor an address.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.server_name {
            Some(name) if name_of(name).is_err() => {
                Err(Error::invalid("Tls::server_name is neither a DNS name nor an address"))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the settings of one session. It uses its own crypto provider, and neither reads nor changes the default provider
/// of the process.
fn config(tls: &Tls) -> Result<ClientConfig> {
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
            error => format!("the client certificate in {certificate} or its key in {key} cannot be used: {error}"),
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
    // Platforms often have certificates that are too old to be parsed, so unusable ones are ignored.
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable > 0 {
        return Ok(roots);
    }
    let errors: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
    Err(refused(format!(
        "no CA certificate was found, neither in SSL_CERT_FILE and SSL_CERT_DIR nor in the folders of this platform ({}): \
         install the platform's CA certificates, set SSL_CERT_FILE, or use Tls::ca_file",
        escape_line(&errors.join("; "), 300)
    )))
}

fn certificates(path: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(path, what)?;
    let all: Vec<_> = CertificateDer::pem_slice_iter(&bytes).collect::<Result<_, _>>().map_err(|error| {
        refused(format!("the {what} {} is malformed: {}", shown(path), escape_line(&error.to_string(), 200)))
    })?;
    if all.is_empty() {
        return Err(refused(format!("the {what} {} holds no certificate in PEM", shown(path))));
    }
    Ok(all)
}

/// Reads a private key. The error leaves out the parser's error, which may quote a part of the key.
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
    escape_line(&path.to_string_lossy(), 255)
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Tls, message)
}

/// Converts errors of TLS into messages. The advice depends on these settings.
#[derive(Clone, Copy)]
struct TlsErrorAdvice {
    has_ca_file: bool,
    has_certificate: bool,
}

impl TlsErrorAdvice {
    /// Converts an error of the handshake.
    fn during_handshake(self, error: &io::Error) -> Error {
        if let Some(error) = of_tls(error) {
            return self.because_of(error);
        }
        let text = escape_line(&text_of(error), 200);
        let message = format!(
            "the server closed the connection in the TLS handshake ({text}): is this its TLS port, and has it reached its \
             maxclients?"
        );
        Error::new(ErrorKind::Unreachable, message)
    }

    /// Converts an error between the handshake and the first answer. Returns `None` if TLS is unlikely to be the cause.
    fn afterwards(self, error: &io::Error) -> Option<Error> {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        if let Some(error) = of_tls(error) {
            return Some(self.because_of(error));
        }
        // The server's alert may be lost if the connection closes first.
        let cut = matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof);
        (cut && !self.has_certificate).then(|| {
            Error::new(
                ErrorKind::Unreachable,
                "the server closed the connection right after the TLS handshake: does it require a client certificate \
                 (Tls::client_certificate), or has it reached its maxclients?",
            )
        })
    }

    fn because_of(self, error: &rustls::Error) -> Error {
        Error::new(
            ErrorKind::Tls,
            match error {
                rustls::Error::InvalidCertificate(problem) => self.certificate(problem),
                rustls::Error::AlertReceived(alert) => self.alert(*alert),
                rustls::Error::InvalidMessage(_) => {
                    format!("{NO_TLS_AT_PORT}: use the server's TLS port (`tls-port`)")
                }
                error => format!("TLS failed: {}", escape_line(&error.to_string(), 200)),
            },
        )
    }

    /// Returns the message for a server certificate that is not accepted.
    fn certificate(self, problem: &CertificateError) -> String {
        use CertificateError as C;
        match problem {
            C::Expired => expired(""),
            C::ExpiredContext { time, not_after } => {
                expired(&format!(" {} ago", span(time.as_secs().saturating_sub(not_after.as_secs()))))
            }
            C::NotValidYet | C::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet: is this machine's clock right?".to_owned()
            }
            C::UnknownIssuer | C::BadSignature => format!(
                "the server's certificate is signed by no CA that is trusted here: {} the certificate of its CA",
                match self.has_ca_file {
                    true => "the file of Tls::ca_file must contain",
                    false => "set Tls::ca_file, or SSL_CERT_FILE in the environment, to a file with",
                }
            ),
            C::NotValidForNameContext { expected, presented } => wrong_name(expected, presented),
            C::NotValidForName => {
                "the server's certificate has another name: set Tls::server_name".to_owned()
            }
            C::Revoked => "the server's certificate was revoked: give the server a new one".to_owned(),
            other => {
                format!("the server's certificate is not accepted: {}", escape_line(&other.to_string(), 200))
            }
        }
    }

    /// Returns the message for an alert of the server.
    fn alert(self, alert: AlertDescription) -> String {
        use AlertDescription as A;
        match alert {
            A::CertificateRequired | A::HandshakeFailure | A::NoCertificate | A::BadCertificate
                if !self.has_certificate =>
            {
                "the server asks for a client certificate, and none is set: set Tls::client_certificate, or \
                 tls-auth-clients no on the server"
                    .to_owned()
            }
            A::UnknownCA | A::DecryptError if self.has_certificate => {
                "the server does not know the CA of our client certificate: its tls-ca-cert-file must contain it".to_owned()
            }
            A::CertificateExpired => {
                "the server reports that our client certificate has expired: renew it; the next connection reads the \
                 files again"
                    .to_owned()
            }
            A::ProtocolVersion => {
                "the server speaks neither TLS 1.2 nor 1.3: change its tls-protocols".to_owned()
            }
            other => format!("the server ended TLS with an alert: {other:?}"),
        }
    }
}

fn expired(since: &str) -> String {
    format!("the server's certificate has expired{since}: renew it there, or correct this machine's clock")
}

/// Formats seconds for people.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn wrong_name(expected: &ServerName<'_>, presented: &[String]) -> String {
    let shown = escape_line(&expected.to_str(), 255);
    let presented = escape_line(&presented.join(", "), 300);
    let advice = match presented.is_empty() {
        true => "it has no name; it needs a subjectAltName",
        false => "connect to one of these names, or set Tls::server_name to one",
    };
    // The program may not have chosen the address: nodes and sentinels announce addresses.
    let announced = match expected {
        ServerName::IpAddress(_) => {
            "; if nodes or sentinels announce the address, have them announce names: nodes with cluster-announce-hostname \
             and cluster-preferred-endpoint-type hostname, sentinels with sentinel announce-hostnames yes"
        }
        _ => "",
    };
    format!("the server's certificate is not that of {shown}, but of [{presented}]: {advice}{announced}")
}

/// Returns the TLS error in an error of a stream.
fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
