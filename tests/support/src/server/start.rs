//! Starts a server, and waits until it answers.

use std::time::Duration;

use redis::{AsyncCommands, InfoDict, RedisResult, aio::MultiplexedConnection};
use tokio::time::{sleep, timeout};

use super::{Builder, Server, home::Home, process::Process};
use crate::{Binary, Deadline, Error, Reach, connect, port};

/// Long enough to load the data of any test.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
const PORTS_TO_TRY: usize = 20;

/// The ports on which a server listens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    /// The port for plain TCP.
    pub(super) own: u16,
    /// The port for clients.
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

/// Starts a server in a new directory on a free port.
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
            // Another process has taken the port first.
            Err(Failure::PortTaken) => {}
            Err(Failure::Other(error)) => return Err(error),
        }
    }
    Err(Error::new(format!(
        "cannot start the server: other processes took {PORTS_TO_TRY} free ports in a row"
    )))
}

/// Restarts a server on its port.
pub(super) async fn on_same_port(server: &Server) -> Result<Process, Error> {
    let deadline = Deadline::after(START_TIMEOUT);
    loop {
        match once(&server.binary, &server.settings, server.ports, &server.home).await {
            Ok(process) => return Ok(process),
            // The kernel has not yet released the port.
            Err(Failure::PortTaken) if !deadline.is_over() => sleep(POLL).await,
            Err(Failure::PortTaken) => {
                return Err(Error::new(format!(
                    "a port of {:?} stayed in use for {START_TIMEOUT:?}",
                    server.ports
                )));
            }
            Err(Failure::Other(error)) => return Err(error),
        }
    }
}

async fn once(binary: &Binary, settings: &Builder, ports: Ports, home: &Home) -> Result<Process, Failure> {
    let log_before = home.log_size();
    let mut process = Process::spawn(&mut settings.command(binary, ports, home)?)?;

    let deadline = Deadline::after(START_TIMEOUT);
    while !answers(ports.own, process.id(), &settings.reach, deadline).await {
        if process.ended().is_some() {
            return Err(explain(binary, &home.log_since(log_before)));
        }
        if deadline.is_over() {
            let log = home.last_log_lines();
            return Err(Error::new(format!(
                "{} did not answer within {START_TIMEOUT:?}:\n{log}",
                binary.version()
            ))
            .into());
        }
        sleep(POLL).await;
    }
    Ok(process)
}

fn explain(binary: &Binary, log: &str) -> Failure {
    if log.contains("Address already in use") {
        return Failure::PortTaken;
    }
    Error::new(format!("{} did not start:\n{log}", binary.version())).into()
}

/// Returns whether *this* process answers PING. Another test's server may own the port, while this process is about to fail.
async fn answers(port: u16, process: u32, reach: &Reach, deadline: Deadline) -> bool {
    let asked = async {
        let mut connection = connect(&format!("redis://127.0.0.1:{port}/")).await?;
        // A server that loads its data refuses PING but not INFO, so both must work.
        let _: () = connection.ping().await?;
        let info: InfoDict = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        let is_ours = info.get::<u32>("process_id") == Some(process);
        RedisResult::Ok(is_ours && (!reach.has_slots() || serves_all_slots(&mut connection).await?))
    };
    matches!(timeout(deadline.remaining(), asked).await, Ok(Ok(true)))
}

/// Returns whether a node serves all slots. Assigns them to a new node. A node refuses writes for 2 s after each start.
async fn serves_all_slots(connection: &mut MultiplexedConnection) -> RedisResult<bool> {
    let info: InfoDict = redis::cmd("CLUSTER").arg("INFO").query_async(connection).await?;
    if info.get::<u32>("cluster_slots_assigned") == Some(0) {
        redis::cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16_383).exec_async(connection).await?;
    }
    Ok(info.get::<String>("cluster_state").is_some_and(|state| state == "ok"))
}
