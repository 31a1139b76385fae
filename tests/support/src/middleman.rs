//! Proxies of other projects, in Debian's versions: HAProxy and twemproxy, whose program is `nutcracker`.
//!
//! The programs come from the PATH, or from the folder into which `scripts/proxies.sh` has unpacked them.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::{APP_PASSWORD, APP_USER, Program, Reach, Server, binary::REPOSITORY, eventually, port, skipped};

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running HAProxy or twemproxy before a server, on its own port. The proxy ends when this value is dropped.
#[derive(Debug)]
pub struct Middleman {
    _program: Program,
    _folder: TempDir,
    address: SocketAddr,
}

impl Middleman {
    /// Starts HAProxy, which forwards bytes, and closes connections after this idle time. Returns `None` and reports a
    /// skipped test if HAProxy is not available.
    pub async fn haproxy(server: &Server, idle: Duration) -> Option<Self> {
        let idle = idle.as_millis();
        let configured = |port: u16| {
            format!(
                "global\n  maxconn 500\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client {idle}ms\n  \
                 timeout server {idle}ms\nlisten redis\n  bind 127.0.0.1:{port}\n  server one 127.0.0.1:{}\n",
                server.port()
            )
        };
        Self::start("haproxy", &["-db", "-f"], configured).await
    }

    /// Starts twemproxy, which parses each command and supports only some. Returns `None` like [`haproxy`](Self::haproxy).
    pub async fn nutcracker(server: &Server) -> Option<Self> {
        let configured = |port: u16| {
            format!(
                "redis:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash: fnv1a_64\n  hash_tag: \"{{}}\"\n  \
                 distribution: ketama\n  servers:\n   - 127.0.0.1:{}:1\n",
                server.port()
            )
        };
        // By default, all instances would serve their statistics at the same port.
        let statistics = port::candidate().to_string();
        Self::start("nutcracker", &["-a", "127.0.0.1", "-s", &statistics, "-o", "log", "-c"], configured)
            .await
    }

    async fn start(name: &str, options: &[&str], configured: impl Fn(u16) -> String) -> Option<Self> {
        let reach = Reach::of_this_run();
        if reach.is_over_tls() || reach.is_cluster() {
            skipped(&format!("tests of {name} need plain TCP and one server"));
            return None;
        }
        let Some(path) = find(name) else {
            skipped(&format!("{name} is not installed: scripts/proxies.sh fetches it"));
            return None;
        };
        let (folder, port) =
            (tempfile::tempdir().expect("cannot create a temporary folder"), port::candidate());
        let file = folder.path().join("configuration");
        fs::write(&file, configured(port)).expect("cannot write the configuration of the proxy");
        let program = Program::silent(Command::new(path).args(options).arg(&file).current_dir(&folder))
            .expect("cannot start the proxy");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listens = async || TcpStream::connect(address).await.is_ok();
        eventually(START_TIMEOUT, &format!("{name} to listen"), listens).await;
        Some(Self { _program: program, _folder: folder, address })
    }

    /// Returns the URL for the `default` user.
    pub fn url(&self) -> String {
        Reach::default().url(None, self.address)
    }

    /// Returns the URL for the user of `redis.conf` with the least permissions.
    pub fn app_url(&self) -> String {
        Reach::default().url(Some((APP_USER, APP_PASSWORD)), self.address)
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let on_path = env::var_os("PATH").unwrap_or_default();
    let fetched = Path::new(REPOSITORY).join(".server/proxies");
    let folders = env::split_paths(&on_path).chain([PathBuf::from("/usr/sbin"), fetched]);
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}
