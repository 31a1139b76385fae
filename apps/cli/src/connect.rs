//! Creates the client from the options of the command line.

use keylapse::{Client, Servers, Tls};
use keylapse_console::Console;

use crate::args::Connect;
use crate::exit::CliError;

impl Connect {
    /// Connects to the servers, and returns their console.
    pub(crate) async fn console(&self) -> Result<Console, CliError> {
        Ok(Console::connect(self.client()?).await?)
    }

    pub(crate) fn client(&self) -> Result<Client, CliError> {
        self.check_files()?;
        let mut servers = Servers::at(&self.url);
        if let Some(user) = &self.user {
            servers = servers.user(user);
        }
        if let Some(file) = &self.password_file {
            servers = servers.password_file(file);
        }
        if let Some(user) = &self.sentinel_user {
            servers = servers.sentinel_user(user);
        }
        if let Some(file) = &self.sentinel_password_file {
            servers = servers.sentinel_password_file(file);
        }
        if let Some(tls) = self.tls() {
            servers = servers.tls(tls);
        }
        let client = Client::try_from(servers)?.namespace(&self.namespace)?;
        Ok(client.answer_within(self.timeout)?.retry_for(self.timeout))
    }

    /// Refuses a file that does not exist. Otherwise each connection would fail, as if the server had refused it.
    fn check_files(&self) -> Result<(), CliError> {
        let Self { password_file, sentinel_password_file, tls_ca, tls_cert, tls_key, .. } = self;
        let files = [password_file, sentinel_password_file, tls_ca, tls_cert, tls_key];
        files.into_iter().flatten().try_for_each(|file| match std::fs::metadata(file) {
            Ok(_) => Ok(()),
            Err(error) => Err(CliError::Usage(format!("{}: {error}", file.display()))),
        })
    }

    /// Returns the TLS settings, if an option sets any.
    fn tls(&self) -> Option<Tls> {
        let Self { tls_ca, tls_cert, tls_key, tls_name, .. } = self;
        if tls_ca.is_none() && tls_cert.is_none() && tls_name.is_none() {
            return None;
        }
        let mut tls = Tls::new();
        if let Some(file) = tls_ca {
            tls = tls.ca_file(file);
        }
        if let (Some(certificate), Some(key)) = (tls_cert, tls_key) {
            tls = tls.client_certificate(certificate, key);
        }
        if let Some(name) = tls_name {
            tls = tls.server_name(name);
        }
        Some(tls)
    }
}
