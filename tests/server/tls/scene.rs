//! A server that speaks TLS beside plain Redis, and asks for client certificates.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use keylapse::{Error, Schedule, Servers, Tls};
use keylapse_support::{APP_PASSWORD, APP_USER, Server, skipped};
use tempfile::TempDir;

use super::authority::{Authority, Files, write};

pub(super) struct Scene {
    pub(super) server: Server,
    pub(super) port: u16,
    pub(super) authority: Authority,
    /// The certificate that clients present.
    pub(super) client: Files,
    /// The server's, for `localhost` alone.
    pub(super) own: Files,
    folder: TempDir,
}

impl Scene {
    /// None, and said, where the server was built without TLS.
    pub(super) async fn start() -> Option<Self> {
        Self::on(Server::start().await).await
    }

    pub(super) async fn on(server: Server) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("the CA of this test");
        write(folder.path(), "ca.pem", &authority.pem);
        let own = authority.issue(folder.path(), "server", &["localhost"]);
        let client = authority.issue(folder.path(), "client", &["client"]);
        let mut scene = Self { server, port: 0, authority, client, own, folder };
        if let Err(error) = scene.serve(&scene.own).await {
            assert!(error.to_string().contains("Unknown option"), "{error}");
            skipped("this server was built without TLS");
            return None;
        }
        while scene.port == 0 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            // Somebody else may be quicker.
            if scene.set(&[("tls-port", &free.to_string())]).await.is_ok() {
                scene.port = free;
            }
        }
        Some(scene)
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn ca_file(&self) -> PathBuf {
        self.folder().join("ca.pem")
    }

    /// Has the server present this certificate from now on.
    pub(super) async fn serve(&self, files: &Files) -> redis::RedisResult<()> {
        let [certificate, key, ca] = [&files.certificate, &files.key, &self.ca_file()].map(|path| text(path));
        self.set(&[("tls-cert-file", &certificate), ("tls-key-file", &key), ("tls-ca-cert-file", &ca)]).await
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

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// What a program is told that connects there.
pub(super) async fn refusal(servers: Servers) -> Error {
    Schedule::connect(servers).await.map(|_| ()).expect_err("no connection")
}
