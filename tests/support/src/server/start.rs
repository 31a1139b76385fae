//! From a command line to a server that answers.

use std::time::Duration;

use redis::{AsyncCommands, InfoDict, RedisResult, aio::MultiplexedConnection};
use tokio::time::{sleep, timeout};

use super::{Builder, Server, home::Home, process::Process};
use crate::{Binary, Deadline, Error, Reach, connect, port};

/// Long enough to load what a test can have written.
const READY: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
const PORTS_TO_TRY: usize = 20;

/// Where a server listens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    /// For plain TCP.
    pub(super) own: u16,
    /// For clients.
    pub(super) door: u16,
}

impl Ports {
    fn candidates(reach: &Reach) -> Self {
        let own = port::candidate();
        Self { own, door: if reach.tls().is_some() { port::candidate() } else { own } }
    }
}

enum Failure {
    PortTaken,
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Starts a server of its own on whichever port is free.
pub(super) async fn on_any_port(binary: Binary, settings: Builder) -> Result<Server, Error> {
    let home = Home::new()?;
    for _ in 0..PORTS_TO_TRY {
        let ports = Ports::candidates(&settings.reach);
        match once(&binary, &settings, ports, &home).await {
            Ok(process) => {
                return Ok(Server {
                    binary,
                    settings,
                    ports,
                    line: None,
                    front: None,
                    process: Some(process),
                    home,
                });
            }
            // A test that runs beside this one was quicker.
            Err(Failure::PortTaken) => {}
            Err(Failure::Other(error)) => return Err(error),
        }
    }
    Err(Error::new(format!(
        "{PORTS_TO_TRY} free ports in a row were taken by others before the server had them"
    )))
}

/// Starts a server again on the port that it had.
pub(super) async fn on_same_port(server: &Server) -> Result<Process, Error> {
    let deadline = Deadline::after(READY);
    loop {
        match once(&server.binary, &server.settings, server.ports, &server.home).await {
            Ok(process) => return Ok(process),
            // The kernel has not yet let go of it.
            Err(Failure::PortTaken) if !deadline.is_over() => sleep(POLL).await,
            Err(Failure::PortTaken) => {
                return Err(Error::new(format!("a port of {:?} stayed in use for {READY:?}", server.ports)));
            }
            Err(Failure::Other(error)) => return Err(error),
        }
    }
}

async fn once(binary: &Binary, settings: &Builder, ports: Ports, home: &Home) -> Result<Process, Failure> {
    let log_before = home.log_size();
    let mut process = Process::spawn(&mut settings.command(binary, ports, home)?)?;

    let deadline = Deadline::after(READY);
    while !answers(ports.own, process.id(), &settings.reach, deadline).await {
        if process.ended().is_some() {
            return Err(explain(binary, &home.log_since(log_before)));
        }
        if deadline.is_over() {
            let log = home.last_log_lines();
            return Err(
                Error::new(format!("{} did not answer in {READY:?}:\n{log}", binary.version())).into()
            );
        }
        sleep(POLL).await;
    }
    Ok(process)
}

fn explain(binary: &Binary, log: &str) -> Failure {
    if log.contains("Address already in use") {
        return Failure::PortTaken;
    }
    Error::new(format!("{} did not start; it said:\n{log}", binary.version())).into()
}

/// Whether *this* process answers PING: the port may belong to another test's server, while ours
/// is about to find out.
async fn answers(port: u16, process: u32, reach: &Reach, deadline: Deadline) -> bool {
    let asked = async {
        let mut connection = connect(&format!("redis://127.0.0.1:{port}/")).await?;
        // PING is refused while data is being loaded, INFO is not: both must work.
        let _: () = connection.ping().await?;
        let info: InfoDict = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        let is_ours = info.get::<u32>("process_id") == Some(process);
        RedisResult::Ok(is_ours && (!reach.has_slots() || serves_all_slots(&mut connection).await?))
    };
    matches!(timeout(deadline.remaining(), asked).await, Ok(Ok(true)))
}

/// Whether a node is a cluster by itself, of which it is made one at first. It then takes no write for 2 s after each start.
async fn serves_all_slots(connection: &mut MultiplexedConnection) -> RedisResult<bool> {
    let info: InfoDict = redis::cmd("CLUSTER").arg("INFO").query_async(connection).await?;
    if info.get::<u32>("cluster_slots_assigned") == Some(0) {
        redis::cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16_383).exec_async(connection).await?;
    }
    Ok(info.get::<String>("cluster_state").is_some_and(|state| state == "ok"))
}
