//! Proxies of others, as Debian has them: HAProxy and twemproxy, whose program is `nutcracker`.
//!
//! They are taken from the PATH, or from where `scripts/proxies.sh` has unpacked them.

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

const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy of others before a server, on a port of its own. It ends with this value.
#[derive(Debug)]
pub struct Middleman {
    _program: Program,
    _folder: TempDir,
    address: SocketAddr,
}

impl Middleman {
    /// Starts HAProxy, which hands on bytes, and closes connections that are idle for this long. None, which is said, where
    /// it cannot be had.
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

    /// Starts twemproxy, which reads each command and knows some of them alone.
    pub async fn nutcracker(server: &Server) -> Option<Self> {
        let configured = |port: u16| {
            format!(
                "redis:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash: fnv1a_64\n  hash_tag: \"{{}}\"\n  \
                 distribution: ketama\n  servers:\n   - 127.0.0.1:{}:1\n",
                server.port()
            )
        };
        // Its statistics would have a port of their own, the same for each.
        let statistics = port::candidate().to_string();
        Self::start("nutcracker", &["-a", "127.0.0.1", "-s", &statistics, "-o", "log", "-c"], configured)
            .await
    }

    async fn start(name: &str, options: &[&str], configured: impl Fn(u16) -> String) -> Option<Self> {
        let reach = Reach::of_this_run();
        if reach.is_over_tls() || reach.is_cluster() {
            skipped(&format!("{name} is tried with plain TCP, before one server"));
            return None;
        }
        let Some(path) = find(name) else {
            skipped(&format!("there is no {name}: scripts/proxies.sh fetches it"));
            return None;
        };
        let (folder, port) = (tempfile::tempdir().expect("a folder"), port::candidate());
        let file = folder.path().join("configuration");
        fs::write(&file, configured(port)).expect("it is written");
        let program = Program::silent(Command::new(path).args(options).arg(&file).current_dir(&folder))
            .expect("it starts");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listens = async || TcpStream::connect(address).await.is_ok();
        eventually(PATIENCE, &format!("{name} to listen"), listens).await;
        Some(Self { _program: program, _folder: folder, address })
    }

    /// Where the `default` user connects.
    pub fn url(&self) -> String {
        Reach::default().url(None, self.address)
    }

    /// Where the user of `redis.conf` with the least rights connects.
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
