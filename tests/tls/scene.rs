//! A server that speaks TLS beside plain Redis, and asks for client certificates.

use std::path::{Path, PathBuf};

use keylapse::{Error, Schedule, Servers, Tls};
use keylapse_support::{
    APP_PASSWORD, APP_USER, Authority, Builder, Files, Reach, Server, skipped, skipped_on_a_cluster, write,
};
use tempfile::TempDir;

pub(super) struct Scene {
    pub(super) server: Server,
    pub(super) port: u16,
    pub(super) authority: Authority,
    /// The certificate that clients present.
    pub(super) client: Files,
    folder: TempDir,
}

impl Scene {
    /// None, and said, where the server was built without TLS.
    pub(super) async fn start() -> Option<Self> {
        Self::of(&Server::builder()).await
    }

    pub(super) async fn of(builder: &Builder) -> Option<Self> {
        if skipped_on_a_cluster("certificates are rotated and mistaken as they are on one server") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("the CA of this test");
        write(folder.path(), "ca.pem", &authority.pem);
        authority.issue(folder.path(), "server", &["localhost"]);
        let client = authority.issue(folder.path(), "client", &["client"]);
        // Of the lines in redis.conf this one differs.
        let builder = builder.clone().reach(Reach::over_tls(folder.path())).config("tls-auth-clients", "yes");
        match builder.try_start().await {
            Ok(server) => {
                let port = server.door().port();
                Some(Self { server, port, authority, client, folder })
            }
            Err(error) if error.to_string().contains("Failed finding TLS support") => {
                skipped("this server was built without TLS");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn ca_file(&self) -> PathBuf {
        self.folder().join("ca.pem")
    }

    /// Has the server present this certificate from now on.
    pub(super) async fn serve(&self, files: &Files) -> redis::RedisResult<()> {
        let settings = certificates(self.folder(), files);
        self.set(&settings.each_ref().map(|(name, path)| (*name, &**path))).await
    }

    pub(super) async fn set(&self, settings: &[(&str, &str)]) -> redis::RedisResult<()> {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg(settings);
        command.exec_async(&mut self.server.conn().await).await
    }

    /// The way in as it should be: by the name in the certificate, with the CA and a client certificate.
    pub(super) fn servers(&self) -> Servers {
        self.at("localhost").tls(self.tls())
    }

    /// The same host by another name, without TLS so far, as the user with the least rights.
    pub(super) fn at(&self, host: &str) -> Servers {
        Servers::one(&format!("{host}:{}", self.port)).user(APP_USER).password(APP_PASSWORD)
    }

    pub(super) fn tls(&self) -> Tls {
        Tls::new().ca_file(self.ca_file()).client_certificate(&self.client.certificate, &self.client.key)
    }

    /// Ends all connections of the library's.
    pub(super) async fn cut(&self) {
        self.server.cmd(&["CLIENT", "KILL", "USER", APP_USER]).await;
    }
}

/// The settings for a server that presents this certificate, and knows the CA of `ca.pem`.
fn certificates(folder: &Path, files: &Files) -> [(&'static str, String); 3] {
    let ca = folder.join("ca.pem");
    [("tls-cert-file", &files.certificate), ("tls-key-file", &files.key), ("tls-ca-cert-file", &ca)]
        .map(|(name, path)| (name, path.to_str().unwrap().to_owned()))
}

/// What a program is told that connects there.
pub(super) async fn refusal(servers: Servers) -> Error {
    Schedule::connect(servers).await.map(|_| ()).expect_err("no connection")
}
