//! The client that the command line describes.

use keylapse::{Client, Servers, Tls};
use keylapse_console::Console;

use crate::args::Connect;
use crate::exit::Failed;

impl Connect {
    /// A console of these servers, which have been reached.
    pub(crate) async fn console(&self) -> Result<Console, Failed> {
        Ok(Console::connect(self.client()?).await?)
    }

    pub(crate) fn client(&self) -> Result<Client, Failed> {
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
        Ok(client.answer_within(self.timeout)?.patience(self.timeout))
    }

    /// Refuses a file that is not there: else it is missed at each connection, and looks like a refusal of the server.
    fn check_files(&self) -> Result<(), Failed> {
        let Self { password_file, sentinel_password_file, tls_ca, tls_cert, tls_key, .. } = self;
        let files = [password_file, sentinel_password_file, tls_ca, tls_cert, tls_key];
        files.into_iter().flatten().try_for_each(|file| match std::fs::metadata(file) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failed::Usage(format!("{}: {error}", file.display()))),
        })
    }

    /// What was said of TLS, if anything was.
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
