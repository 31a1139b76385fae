//! A server that can end and start again, with its ports, configuration and directory.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use keylapse::Result;
use keylapse_connection::lock::lock;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::servers::process::{Port, Process, ServerDirectory};
use crate::servers::{ask, failed, server};

const SERVER_START_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const MAX_LAUNCH_TRIES: usize = 20;

/// The settings of a server that is started.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerSpec {
    pub(super) binary: PathBuf,
    /// The lines of its configuration file.
    pub(super) config: Vec<String>,
    /// The password of the default user, if it has one.
    pub(super) password: Option<String>,
    pub(super) kind: Kind,
}

impl ServerSpec {
    /// Returns whether the server has a certificate. Clients and other servers then connect over TLS.
    fn has_tls(&self) -> bool {
        self.config.iter().any(|line| line.starts_with("tls-cert-file "))
    }
}

/// The settings that all servers of a group share.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The flags of `notify-keyspace-events`.
    pub(super) notifications: String,
    /// Further lines of the configuration, which override the others.
    pub(super) config: Vec<String>,
    /// The binary. `None` searches as [`LocalServer`](crate::LocalServer) does.
    pub(super) binary: Option<PathBuf>,
    /// The password of the default user, if it has one.
    pub(super) password: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { notifications: "Ex".to_owned(), config: Vec::new(), binary: None, password: None }
    }
}

impl Settings {
    /// Returns the settings of a server that stores nothing on disk. `own` has further lines of its configuration.
    pub(super) fn server_spec(&self, kind: Kind, own: Vec<String>) -> Result<ServerSpec> {
        let fixed = ["save \"\"", "appendonly no", "repl-diskless-sync yes", "repl-diskless-sync-delay 0"];
        let mut config: Vec<String> = fixed.map(str::to_owned).into();
        config.extend(own);
        config.push(format!("notify-keyspace-events \"{}\"", self.notifications));
        let password = self.password.as_ref();
        config.extend(
            password.into_iter().flat_map(|password| {
                ["requirepass", "masterauth"].map(|name| format!("{name} \"{password}\""))
            }),
        );
        config.extend(self.config.iter().cloned());
        Ok(ServerSpec {
            binary: server::or_found(self.binary.as_ref())?,
            config,
            password: password.cloned(),
            kind,
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Server,
    ClusterNode,
    Sentinel,
}

/// A server that keeps its ports, configuration and directory over restarts.
#[derive(Debug)]
pub(super) struct Instance {
    spec: ServerSpec,
    ports: Mutex<Ports>,
    // Declared before `directory`, so that the process has ended when its directory is removed.
    state: Mutex<State>,
    directory: ServerDirectory,
}

#[derive(Debug)]
struct Ports {
    data: Port,
    /// The port of the cluster bus.
    bus: Option<Port>,
    /// The test kit itself connects to `data`, without TLS.
    tls: Option<Port>,
}

#[derive(Debug)]
enum State {
    Ended,
    Running(Process),
    /// Stopped by SIGSTOP.
    Suspended(Process),
}

impl Instance {
    /// Starts a server on free ports, and waits until it replies.
    pub(super) async fn start(spec: ServerSpec) -> Result<Self> {
        let directory = ServerDirectory::new(&spec.config).map_err(failed)?;
        let ports = Mutex::new(Ports::free(&spec)?);
        let instance = Self { spec, ports, state: Mutex::new(State::Ended), directory };
        instance.launch_on_any_ports().await?;
        Ok(instance)
    }

    pub(super) fn port(&self) -> u16 {
        lock(&self.ports).data.number()
    }

    /// Returns the port of the cluster bus. `None` unless the server is a cluster node.
    pub(super) fn bus_port(&self) -> Option<u16> {
        lock(&self.ports).bus.as_ref().map(Port::number)
    }

    /// Returns the port for TLS. `None` unless the server has a certificate.
    pub(super) fn tls_port(&self) -> Option<u16> {
        lock(&self.ports).tls.as_ref().map(Port::number)
    }

    pub(super) fn password(&self) -> Option<&str> {
        self.spec.password.as_deref()
    }

    /// Returns the URL for the default user, with its password.
    pub(super) fn url(&self) -> String {
        let encoded = self.password().map(|password| utf8_percent_encode(password, NON_ALPHANUMERIC));
        let password = encoded.map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{password}127.0.0.1:{}/", self.port())
    }

    /// Returns the ID of the process. `None` after [`kill`](Self::kill).
    pub(super) fn pid(&self) -> Option<u32> {
        match &*lock(&self.state) {
            State::Ended => None,
            State::Running(process) | State::Suspended(process) => Some(process.id()),
        }
    }

    /// Returns whether the server was neither killed nor suspended.
    pub(super) fn is_running(&self) -> bool {
        matches!(*lock(&self.state), State::Running(_))
    }

    /// Ends the process with SIGKILL, even if it is suspended.
    pub(super) fn kill(&self) {
        let state = std::mem::replace(&mut *lock(&self.state), State::Ended);
        drop(state);
    }

    pub(super) fn suspend(&self) -> Result<()> {
        self.signal("STOP", State::Suspended)
    }

    pub(super) fn resume(&self) -> Result<()> {
        self.signal("CONT", State::Running)
    }

    fn signal(&self, name: &str, then: fn(Process) -> State) -> Result<()> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Ended) {
            State::Ended => Err(failed(format!("the server on port {} was killed", self.port()))),
            State::Running(process) | State::Suspended(process) => {
                let sent = process.signal(name).map_err(failed);
                *state = then(process);
                sent
            }
        }
    }

    /// Starts the server again on its ports. Kills it first if it runs.
    pub(super) async fn restart(&self) -> Result<()> {
        self.kill();
        let until = Instant::now() + SERVER_START_TIMEOUT;
        while !self.launch().await? {
            // The kernel has not released the port yet.
            if Instant::now() >= until {
                return Err(failed(format!(
                    "port {} stayed in use for {SERVER_START_TIMEOUT:?}",
                    self.port()
                )));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Starts the server again on other ports, with its configuration and directory.
    pub(super) async fn restart_elsewhere(&self) -> Result<()> {
        self.kill();
        self.choose_ports()?;
        self.launch_on_any_ports().await
    }

    async fn launch_on_any_ports(&self) -> Result<()> {
        for _ in 0..MAX_LAUNCH_TRIES {
            if self.launch().await? {
                return Ok(());
            }
            self.choose_ports()?;
        }
        Err(failed(format!("other processes took {MAX_LAUNCH_TRIES} free ports in a row")))
    }

    fn choose_ports(&self) -> Result<()> {
        let ports = Ports::free(&self.spec)?;
        *lock(&self.ports) = ports;
        Ok(())
    }

    /// Starts the process and waits until it replies. Returns false if another process has the port.
    async fn launch(&self) -> Result<bool> {
        let arguments = self.arguments();
        let process = Process::start(&self.spec.binary, &arguments, &self.directory);
        let mut process =
            process.map_err(|error| failed(format!("cannot run {}: {error}", self.spec.binary.display())))?;
        let until = Instant::now() + SERVER_START_TIMEOUT;
        while !self.answers(process.id()).await {
            if process.has_ended() {
                let log = self.directory.log();
                return if log.contains("Address already in use") { Ok(false) } else { Err(failed(log)) };
            }
            if Instant::now() >= until {
                return Err(failed(format!(
                    "the server did not reply within {SERVER_START_TIMEOUT:?}; {}",
                    self.directory.log()
                )));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        *lock(&self.state) = State::Running(process);
        Ok(true)
    }

    /// Returns the arguments that override the configuration file, which the server may have rewritten.
    fn arguments(&self) -> Vec<String> {
        let mut settings = vec![("port", self.port().to_string()), ("bind", "127.0.0.1".to_owned())];
        settings.push(("dir", self.directory.path().display().to_string()));
        settings.extend(self.bus_port().map(|port| ("cluster-port", port.to_string())));
        settings.extend(self.tls_port().map(|port| ("tls-port", port.to_string())));
        let settings = settings.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]);
        settings.chain((self.spec.kind == Kind::Sentinel).then(|| "--sentinel".to_owned())).collect()
    }

    /// Returns whether this process, and no other, replies on the port, and has loaded its data.
    async fn answers(&self, process: u32) -> bool {
        let url = self.url();
        let Ok(info) = ask::ask::<redis::InfoDict>(&url, &["INFO", "server"]).await else { return false };
        info.get::<u32>("process_id") == Some(process) && ask::raw(&url, &["PING"]).await.is_ok()
    }
}

impl Ports {
    fn free(spec: &ServerSpec) -> Result<Self> {
        let bus = (spec.kind == Kind::ClusterNode).then(Port::free).transpose()?;
        let tls = spec.has_tls().then(Port::free).transpose()?;
        Ok(Self { data: Port::free()?, bus, tls })
    }
}
