//! Where the programs that are asked over HTTP listen, and to whom.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use keylapse_web::{Access, Certificate, Server};
use tracing::{error, info};

use crate::exit::Failed;

/// Who may ask over HTTP.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "HTTP")]
pub(crate) struct Listen {
    /// A name by which this server may be called beside localhost, with its port or for all. May be given more than once.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// A file with a token of at least 32 bytes: those who show it may do everything, and nobody comes in without one. Or a
    /// file with a line for each who comes in: NAME, `act` or `look`, TOKEN and, if not all, the TOPICs. Without it
    /// KEYLAPSE_TOKEN in the environment is the token, if there is one.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Another such file, for those who may look and no more. Without it, KEYLAPSE_READ_TOKEN.
    #[arg(long, value_name = "FILE")]
    read_token_file: Option<PathBuf>,
    /// A file with the certificate to show, to serve HTTPS.
    #[arg(long, value_name = "FILE", requires = "listen_key")]
    listen_cert: Option<PathBuf>,
    /// The file with its key.
    #[arg(long, value_name = "FILE", requires = "listen_cert")]
    listen_key: Option<PathBuf>,
    /// Browsers reach this over HTTPS by a proxy: their cookies are sent over nothing else, and the last address of
    /// X-Forwarded-For is where they come from.
    #[arg(long)]
    behind_tls: bool,
}

/// The tokens by which others come in, and the certificate that they are shown.
#[derive(Clone)]
pub(crate) struct Entrance {
    pub(crate) access: Access,
    certificate: Option<Certificate>,
}

impl Listen {
    /// Reads who may come in, and the certificate.
    pub(crate) fn read(&self) -> Result<Entrance, Failed> {
        let mut access =
            Access::to_hosts(&self.host).map_err(|error| Failed::Usage(format!("--host: {error}")))?;
        if let Some((of, said)) = token(self.token_file.as_deref(), "KEYLAPSE_TOKEN")? {
            access = access.tokens(&said).map_err(|error| Failed::Usage(format!("{of}: {error}")))?;
        }
        if let Some((of, said)) = token(self.read_token_file.as_deref(), "KEYLAPSE_READ_TOKEN")? {
            access = access.read_tokens(&said).map_err(|error| Failed::Usage(format!("{of}: {error}")))?;
        }
        let certificate = match (&self.listen_cert, &self.listen_key) {
            (Some(certificate), Some(key)) => Some(Certificate::read(certificate, key).map_err(usage)?),
            _ => None,
        };
        let access = access.over_tls(self.behind_tls || certificate.is_some()).behind_proxy(self.behind_tls);
        Ok(Entrance { access, certificate })
    }

    /// Reads them again, and lets those in who may come in now.
    pub(crate) fn follow(&self, entrance: &Entrance) {
        match self.read().and_then(|other| entrance.take(&other)) {
            Ok(()) => info!("tokens and certificate were read again, and hold from now on"),
            Err(error) => {
                error!(%error, "tokens and certificate were read again, and are refused: all goes on as before");
            }
        }
    }
}

impl Entrance {
    /// Takes the address.
    pub(crate) async fn bind(&self, address: SocketAddr) -> Result<Server, Failed> {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        let server = Server::bind(address, &self.access, self.certificate.clone()).await.map_err(usage)?;
        info!("listening at {scheme}://{}/", server.address()?);
        Ok(server)
    }

    fn take(&self, other: &Self) -> Result<(), Failed> {
        self.access.take_tokens_of(&other.access).map_err(usage)?;
        if let (Some(certificate), Some(other)) = (&self.certificate, &other.certificate) {
            certificate.take(other);
        }
        Ok(())
    }
}

/// From the file, or else the environment; and which it is of. It is in no option: those are seen by everybody who may list
/// the processes.
fn token(file: Option<&Path>, variable: &str) -> Result<Option<(String, String)>, Failed> {
    match (file, std::env::var(variable)) {
        (Some(file), _) => {
            let said = keylapse_relay::read_secret_file(file).map_err(Failed::Usage)?;
            Ok(Some((file.display().to_string(), said)))
        }
        (None, Ok(said)) if !said.is_empty() => Ok(Some((variable.to_owned(), said))),
        (None, _) => Ok(None),
    }
}

fn usage(error: impl std::fmt::Display) -> Failed {
    Failed::Usage(error.to_string())
}
