//! Why there is no session, and what to do about it.

use std::io;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError};

use crate::error::{Error, ErrorKind};
use crate::escape::{plain, text_of};
use crate::probe::NO_TLS;

/// What was tried, as far as advice depends on it.
#[derive(Clone, Copy)]
pub(super) struct Failure {
    pub(super) has_ca_file: bool,
    pub(super) has_certificate: bool,
}

impl Failure {
    /// The handshake failed.
    pub(super) fn during_handshake(self, error: &io::Error) -> Error {
        if let Some(error) = of_tls(error) {
            return self.because_of(error);
        }
        let said = plain(&text_of(error), 200);
        let message = format!(
            "the server hung up in the TLS handshake ({said}): is this its TLS port, and has it reached its maxclients?"
        );
        Error::new(ErrorKind::Unreachable, message)
    }

    /// The session stood, and broke before anything was answered.
    pub(super) fn afterwards(self, error: &io::Error) -> Option<Error> {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        if let Some(error) = of_tls(error) {
            return Some(self.because_of(error));
        }
        // Its alert may have been overtaken by the end of the connection.
        let cut = matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof);
        (cut && !self.has_certificate).then(|| {
            Error::new(
                ErrorKind::Unreachable,
                "the server hung up right after the TLS handshake: does it ask for a client certificate \
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
                    format!("{NO_TLS}: give the server's TLS port (`tls-port`)")
                }
                error => format!("TLS failed: {}", plain(&error.to_string(), 200)),
            },
        )
    }

    /// The server's certificate is not accepted.
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
                    true => "the file of Tls::ca_file has to hold",
                    false => "give Tls::ca_file, or SSL_CERT_FILE in the environment, a file with",
                }
            ),
            C::NotValidForNameContext { expected, presented } => wrong_name(expected, presented),
            C::NotValidForName => {
                "the server's certificate has another name: set Tls::server_name".to_owned()
            }
            C::Revoked => "the server's certificate was revoked: give the server a new one".to_owned(),
            other => format!("the server's certificate is not accepted: {}", plain(&other.to_string(), 200)),
        }
    }

    /// The server does not accept us.
    fn alert(self, alert: AlertDescription) -> String {
        use AlertDescription as A;
        match alert {
            A::CertificateRequired | A::HandshakeFailure | A::NoCertificate | A::BadCertificate
                if !self.has_certificate =>
            {
                "the server asks for a client certificate, and there is none: give Tls::client_certificate, or set \
                 tls-auth-clients no"
                    .to_owned()
            }
            A::UnknownCA | A::DecryptError if self.has_certificate => {
                "the server does not know the CA of our client certificate: its tls-ca-cert-file has to hold it".to_owned()
            }
            A::CertificateExpired => {
                "the server says that our client certificate has expired: renew it; the files are read again at the \
                 next connection"
                    .to_owned()
            }
            A::ProtocolVersion => {
                "the server speaks neither TLS 1.2 nor 1.3: see its tls-protocols".to_owned()
            }
            other => format!("the server ended TLS by an alert: {other:?}"),
        }
    }
}

fn expired(since: &str) -> String {
    format!("the server's certificate has expired{since}: renew it there, or set this machine's clock right")
}

/// Seconds, for people.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn wrong_name(expected: &ServerName<'_>, presented: &[String]) -> String {
    let shown = plain(&expected.to_str(), 255);
    let presented = plain(&presented.join(", "), 300);
    let advice = match presented.is_empty() {
        true => "it names nobody; it needs a subjectAltName",
        false => "connect to one of the names that it has, or set Tls::server_name to one",
    };
    // Who gives an address may not have chosen it.
    let announced = match expected {
        ServerName::IpAddress(_) => {
            "; if others have named the address, have them announce names: nodes by cluster-announce-hostname and \
             cluster-preferred-endpoint-type hostname, sentinels by sentinel announce-hostnames yes"
        }
        _ => "",
    };
    format!("the server's certificate is not that of {shown}, but of [{presented}]: {advice}{announced}")
}

/// The error of TLS in one of a stream.
fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
