//! The HTTP options of `run` and `serve`: tokens, certificate and host names.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use keylapse_web::{Access, Certificate, WebServer};
use tracing::{error, info};

use crate::exit::CliError;

/// Access over HTTP.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "HTTP")]
pub(crate) struct Listen {
    /// Accept requests for this host name, in addition to localhost.
    ///
    /// The name can have a port; without one it is accepted with every port. The option can be given more than once.
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,
    /// Require a token of this file from each client.
    ///
    /// The file holds a token of at least 32 bytes, which allows everything. Or it has a line for each client: NAME, `act`
    /// or `read`, TOKEN and, unless the client may use all topics, the TOPICs. Without this option, KEYLAPSE_TOKEN in the
    /// environment is the token, if it is set.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Accept the tokens of this file for reading only.
    ///
    /// Without this option, KEYLAPSE_READ_TOKEN in the environment is such a token, if it is set.
    #[arg(long, value_name = "FILE")]
    read_token_file: Option<PathBuf>,
    /// Serve HTTPS with the certificate in this file.
    #[arg(long, value_name = "FILE", requires = "listen_key")]
    listen_cert: Option<PathBuf>,
    /// Read the private key of the certificate from this file.
    #[arg(long, value_name = "FILE", requires = "listen_cert")]
    listen_key: Option<PathBuf>,
    /// Trust a proxy that receives the requests over HTTPS.
    ///
    /// Browsers then send cookies only over HTTPS, and the last address of X-Forwarded-For is the address of the client.
    #[arg(long)]
    behind_tls_proxy: bool,
}

/// The tokens that clients need, and the certificate of the server.
#[derive(Clone)]
pub(crate) struct HttpSecurity {
    pub(crate) access: Access,
    certificate: Option<Certificate>,
}

impl Listen {
    /// Reads the tokens and the certificate.
    pub(crate) fn read(&self) -> Result<HttpSecurity, CliError> {
        let mut access = Access::to_hosts(&self.allowed_host)
            .map_err(|error| CliError::Usage(format!("--allowed-host: {error}")))?;
        if let Some((source, text)) = token(self.token_file.as_deref(), "KEYLAPSE_TOKEN")? {
            access = access.tokens(&text).map_err(|error| CliError::Usage(format!("{source}: {error}")))?;
        }
        if let Some((source, text)) = token(self.read_token_file.as_deref(), "KEYLAPSE_READ_TOKEN")? {
            access =
                access.read_tokens(&text).map_err(|error| CliError::Usage(format!("{source}: {error}")))?;
        }
        let certificate = match (&self.listen_cert, &self.listen_key) {
            (Some(certificate), Some(key)) => Some(Certificate::read(certificate, key).map_err(usage)?),
            _ => None,
        };
        let access = access
            .over_tls(self.behind_tls_proxy || certificate.is_some())
            .behind_proxy(self.behind_tls_proxy);
        Ok(HttpSecurity { access, certificate })
    }

    /// Reads tokens and certificate again. After an error, which is logged, the previous ones stay in effect.
    pub(crate) fn follow(&self, entrance: &HttpSecurity) {
        match self.read().and_then(|other| entrance.take(&other)) {
            Ok(()) => info!("tokens and certificate were reloaded"),
            Err(error) => {
                error!(%error, "tokens and certificate were not reloaded: the previous ones stay in effect");
            }
        }
    }
}

impl HttpSecurity {
    /// Listens at the address.
    pub(crate) async fn bind(&self, address: SocketAddr) -> Result<WebServer, CliError> {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        let server = WebServer::bind(address, &self.access, self.certificate.clone()).await.map_err(usage)?;
        info!("listening at {scheme}://{}/", server.address()?);
        Ok(server)
    }

    fn take(&self, other: &Self) -> Result<(), CliError> {
        self.access.replace_tokens(&other.access).map_err(usage)?;
        if let (Some(certificate), Some(other)) = (&self.certificate, &other.certificate) {
            certificate.take(other);
        }
        Ok(())
    }
}

/// Returns the source and the text of the tokens: the file, or else the environment. No option holds a token, as other users
/// can read the options of a process.
fn token(file: Option<&Path>, variable: &str) -> Result<Option<(String, String)>, CliError> {
    match (file, std::env::var(variable)) {
        (Some(file), _) => {
            let text = keylapse_relay::read_secret_file(file).map_err(CliError::Usage)?;
            Ok(Some((file.display().to_string(), text)))
        }
        (None, Ok(text)) if !text.is_empty() => Ok(Some((variable.to_owned(), text))),
        (None, _) => Ok(None),
    }
}

fn usage(error: impl std::fmt::Display) -> CliError {
    CliError::Usage(error.to_string())
}
