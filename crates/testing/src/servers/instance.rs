//! One server: its process, which comes and goes, and what stays.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use keylapse::Result;
use keylapse_connection::lock::lock;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::servers::process::{Port, Process, ServerDirectory};
use crate::servers::{ask, failed, server};

/// How long a server may take to start.
const SERVER_START_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const MAX_LAUNCH_TRIES: usize = 20;

/// What a server shall be like.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerSpec {
    pub(super) binary: PathBuf,
    /// Lines of its configuration.
    pub(super) config: Vec<String>,
    /// The password of the default user, if it has one.
    pub(super) password: Option<String>,
    pub(super) kind: Kind,
}

impl ServerSpec {
    /// Whether it has a certificate: then it is called over TLS, by its like too.
    fn speaks_tls(&self) -> bool {
        self.config.iter().any(|line| line.starts_with("tls-cert-file "))
    }
}

/// The settings that all servers of a group share.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The flags of `notify-keyspace-events`.
    pub(super) notifications: String,
    /// More lines of the configuration; they override others.
    pub(super) config: Vec<String>,
    /// The server to run; none for the one of [`Server`](crate::Server).
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
    /// Returns the plan of a server that keeps nothing on disk, with these further lines of configuration.
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

/// What a server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Server,
    ClusterNode,
    Sentinel,
}

/// A server that can end and start again: with its ports, its configuration and its directory.
#[derive(Debug)]
pub(super) struct Instance {
    plan: ServerSpec,
    ports: Mutex<Ports>,
    // Before `home`, so that the process has ended when its directory is removed.
    state: Mutex<State>,
    home: ServerDirectory,
}

#[derive(Debug)]
struct Ports {
    data: Port,
    /// Where nodes of a cluster talk to each other.
    bus: Option<Port>,
    /// Beside that of `data`, where the harness has its say.
    tls: Option<Port>,
}

#[derive(Debug)]
enum State {
    Ended,
    Running(Process),
    /// By SIGSTOP.
    Suspended(Process),
}

impl Instance {
    /// Starts it on ports that are free, and waits until it answers.
    pub(super) async fn start(plan: ServerSpec) -> Result<Self> {
        let home = ServerDirectory::new(&plan.config).map_err(failed)?;
        let ports = Mutex::new(Ports::free(&plan)?);
        let instance = Self { plan, ports, state: Mutex::new(State::Ended), home };
        instance.launch_on_any_ports().await?;
        Ok(instance)
    }

    pub(super) fn port(&self) -> u16 {
        lock(&self.ports).data.number()
    }

    /// None unless it is a node of a cluster.
    pub(super) fn bus_port(&self) -> Option<u16> {
        lock(&self.ports).bus.as_ref().map(Port::number)
    }

    /// None unless it speaks TLS.
    pub(super) fn tls_port(&self) -> Option<u16> {
        lock(&self.ports).tls.as_ref().map(Port::number)
    }

    pub(super) fn password(&self) -> Option<&str> {
        self.plan.password.as_deref()
    }

    /// Where its default user connects.
    pub(super) fn url(&self) -> String {
        let encoded = self.password().map(|password| utf8_percent_encode(password, NON_ALPHANUMERIC));
        let password = encoded.map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{password}127.0.0.1:{}/", self.port())
    }

    /// The process's id; none if it has been ended.
    pub(super) fn pid(&self) -> Option<u32> {
        match &*lock(&self.state) {
            State::Ended => None,
            State::Running(process) | State::Suspended(process) => Some(process.id()),
        }
    }

    /// Whether it can answer: it was not ended, and is not stopped.
    pub(super) fn is_running(&self) -> bool {
        matches!(*lock(&self.state), State::Running(_))
    }

    /// Ends it at once (SIGKILL), also if it is stopped.
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
            State::Ended => Err(failed(format!("the one on port {} has been ended", self.port()))),
            State::Running(process) | State::Suspended(process) => {
                let sent = process.signal(name).map_err(failed);
                *state = then(process);
                sent
            }
        }
    }

    /// Starts it again where it was; ends it first if it has not ended.
    pub(super) async fn restart(&self) -> Result<()> {
        self.kill();
        let until = Instant::now() + SERVER_START_TIMEOUT;
        while !self.launch().await? {
            // The kernel has not let go of the port yet.
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

    /// Starts it again, with all that it keeps, on other ports.
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
        Err(failed(format!("{MAX_LAUNCH_TRIES} free ports in a row were taken by others")))
    }

    fn choose_ports(&self) -> Result<()> {
        let ports = Ports::free(&self.plan)?;
        *lock(&self.ports) = ports;
        Ok(())
    }

    /// Starts it and waits until it answers; false if somebody else has its port.
    async fn launch(&self) -> Result<bool> {
        let arguments = self.arguments();
        let process = Process::start(&self.plan.binary, &arguments, &self.home);
        let mut process = process
            .map_err(|error| failed(format!("{} does not run: {error}", self.plan.binary.display())))?;
        let until = Instant::now() + SERVER_START_TIMEOUT;
        while !self.answers(process.id()).await {
            if process.has_ended() {
                let log = self.home.log();
                return if log.contains("Address already in use") { Ok(false) } else { Err(failed(log)) };
            }
            if Instant::now() >= until {
                return Err(failed(format!(
                    "it did not answer within {SERVER_START_TIMEOUT:?}; {}",
                    self.home.log()
                )));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        *lock(&self.state) = State::Running(process);
        Ok(true)
    }

    /// What overrides the configuration, which the server may have rewritten.
    fn arguments(&self) -> Vec<String> {
        let mut settings = vec![("port", self.port().to_string()), ("bind", "127.0.0.1".to_owned())];
        settings.push(("dir", self.home.path().display().to_string()));
        settings.extend(self.bus_port().map(|port| ("cluster-port", port.to_string())));
        settings.extend(self.tls_port().map(|port| ("tls-port", port.to_string())));
        let settings = settings.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]);
        settings.chain((self.plan.kind == Kind::Sentinel).then(|| "--sentinel".to_owned())).collect()
    }

    /// Whether it is *this* process that answers on the port, and has loaded what it kept.
    async fn answers(&self, process: u32) -> bool {
        let url = self.url();
        let Ok(info) = ask::ask::<redis::InfoDict>(&url, &["INFO", "server"]).await else { return false };
        info.get::<u32>("process_id") == Some(process) && ask::raw(&url, &["PING"]).await.is_ok()
    }
}

impl Ports {
    fn free(plan: &ServerSpec) -> Result<Self> {
        let bus = (plan.kind == Kind::ClusterNode).then(Port::free).transpose()?;
        let tls = plan.speaks_tls().then(Port::free).transpose()?;
        Ok(Self { data: Port::free()?, bus, tls })
    }
}
