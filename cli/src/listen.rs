//! Where the programs that are asked over HTTP listen, and to whom.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use keylapse_web::{Access, Certificate, Server, Token};
use tracing::info;

use crate::exit::Failed;

/// Who may ask over HTTP.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "HTTP")]
pub(crate) struct Listen {
    /// A name by which this server may be called beside localhost, with its port or for all. May be given more than once.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// A file with a token of at least 32 bytes: whoever shows it may do everything, and nobody comes in without one.
    /// Without it KEYLAPSE_TOKEN in the environment is the token, if there is one.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A file with another: whoever shows that may look. Without it, KEYLAPSE_READ_TOKEN.
    #[arg(long, value_name = "FILE")]
    read_token_file: Option<PathBuf>,
    /// A file with the certificate to show, to serve HTTPS.
    #[arg(long, value_name = "FILE", requires = "listen_key")]
    listen_cert: Option<PathBuf>,
    /// The file with its key.
    #[arg(long, value_name = "FILE", requires = "listen_cert")]
    listen_key: Option<PathBuf>,
    /// Browsers reach this over HTTPS by a proxy: their cookies are sent over nothing else.
    #[arg(long)]
    behind_tls: bool,
}

impl Listen {
    /// Who may come in.
    pub(crate) fn access(&self) -> Result<Access, Failed> {
        let mut access =
            Access::to_hosts(&self.host).map_err(|error| Failed::Usage(format!("--host: {error}")))?;
        if let Some(token) = token(self.token_file.as_deref(), "KEYLAPSE_TOKEN")? {
            access = access.token(token);
        }
        if let Some(token) = token(self.read_token_file.as_deref(), "KEYLAPSE_READ_TOKEN")? {
            access = access.read_token(token);
        }
        Ok(access.over_tls(self.behind_tls || self.listen_cert.is_some()))
    }

    /// Takes the address.
    pub(crate) async fn bind(&self, address: SocketAddr, access: &Access) -> Result<Server, Failed> {
        let certificate = match (&self.listen_cert, &self.listen_key) {
            (Some(certificate), Some(key)) => Some(Certificate::read(certificate, key).map_err(usage)?),
            _ => None,
        };
        let scheme = if certificate.is_some() { "https" } else { "http" };
        let server = Server::bind(address, access, certificate).await.map_err(usage)?;
        info!("listening at {scheme}://{}/", server.address()?);
        Ok(server)
    }
}

/// From the file, or else the environment. It is in no option: those are seen by everybody who may list the processes.
fn token(file: Option<&Path>, variable: &str) -> Result<Option<Token>, Failed> {
    let (of, said) = match (file, std::env::var(variable)) {
        (Some(file), _) => {
            (file.display().to_string(), keylapse_relay::read_secret_file(file).map_err(Failed::Usage)?)
        }
        (None, Ok(said)) if !said.is_empty() => (variable.to_owned(), said),
        (None, _) => return Ok(None),
    };
    Token::new(said).map(Some).map_err(|error| Failed::Usage(format!("{of}: {error}")))
}

fn usage(error: impl std::fmt::Display) -> Failed {
    Failed::Usage(error.to_string())
}
