//! A part that one process after the other plays, each in the same way.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use keylapse_support::{Proxy, Server};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Cast;
use crate::ledger::{Entry, Ledger};

/// How long a process may take to end when it is asked to.
const TO_RETIRE: Duration = Duration::from_secs(60);

/// A part, and who is playing it. A process that ends is followed by another.
#[derive(Debug)]
pub struct Actor {
    name: String,
    line: Option<Proxy>,
    orders: mpsc::Sender<Order>,
    /// Who plays it now; 0 until somebody does.
    pid: watch::Receiver<u32>,
    /// Ends with this value, and its process with it.
    _supervisor: JoinSet<()>,
}

#[derive(Debug)]
enum Order {
    Signal(Signal, oneshot::Sender<()>),
    Retire(oneshot::Sender<()>),
}

/// What an actor's processes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Listener,
    Producer,
}

impl Actor {
    /// With a line of its own to the server.
    pub(super) async fn behind_a_line(
        role: Role,
        place: usize,
        cast: &Cast,
        server: &Server,
        ledger: &Ledger,
        folder: &Path,
    ) -> Self {
        let line = Proxy::before(server).await;
        let mut actor = Self::new(role, place, cast, &line.url(), ledger, folder);
        actor.line = Some(line);
        actor
    }

    /// With its own ways to whatever servers there are.
    pub(super) fn new(
        role: Role,
        place: usize,
        cast: &Cast,
        url: &str,
        ledger: &Ledger,
        folder: &Path,
    ) -> Self {
        let (who, does) = match role {
            Role::Listener => ("listener", "listen"),
            Role::Producer => ("producer", "produce"),
        };
        let mut script = Script::new(cast, does, url, folder);
        if role == Role::Producer {
            script.produces = Some(Produces { cast: cast.clone(), next_place: place as u64 });
        }
        let name = format!("{who} {place}");
        let (orders, ordered) = mpsc::channel(8);
        let (plays, pid) = watch::channel(0);
        let supervisor = Supervisor { name: name.clone(), script, ledger: ledger.clone(), ordered, plays };
        let _supervisor = [supervisor.run()].into_iter().collect();
        Self { name, line: None, orders, pid, _supervisor }
    }

    /// What the part is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The line between its process and the server.
    ///
    /// # Panics
    /// If it has none, as where there are several servers.
    pub fn line(&self) -> &Proxy {
        self.line.as_ref().expect("it has a line")
    }

    /// The process that plays it now.
    pub(super) async fn pid(&self) -> u32 {
        let mut pid = self.pid.clone();
        *pid.wait_for(|pid| *pid != 0).await.expect("it is being played")
    }

    /// Sends a signal to whoever plays it now.
    pub async fn signal(&self, signal: Signal) {
        let (done, is_done) = oneshot::channel();
        let _ = self.orders.send(Order::Signal(signal, done)).await; // nobody plays it any more
        let _ = is_done.await;
    }

    /// Ends it in order; nobody follows.
    pub(super) async fn retire(&self) {
        let (done, is_done) = oneshot::channel();
        if self.orders.send(Order::Retire(done)).await.is_ok() {
            is_done.await.unwrap_or_else(|_| panic!("{} did not end in order", self.name));
        }
    }
}

/// Owns the process, so that a signal never meets a pid that is another's by now.
struct Supervisor {
    name: String,
    script: Script,
    ledger: Ledger,
    ordered: mpsc::Receiver<Order>,
    plays: watch::Sender<u32>,
}

impl Supervisor {
    async fn run(mut self) {
        loop {
            let mut child = self.script.start();
            let pid = child.id().expect("a child that was not waited for has a pid");
            self.plays.send_replace(pid);
            self.ledger.write(Entry::Born { child: pid, actor: self.name.clone() });
            let retired = self.watch(&mut child).await;
            let Some(done) = retired else { continue };
            signal(&child, Signal::TERM);
            match timeout(TO_RETIRE, child.wait()).await {
                Ok(status) => self.died(pid, status.expect("a child's end")),
                Err(_) => panic!("{} did not end within {TO_RETIRE:?} of SIGTERM", self.name),
            }
            let _ = done.send(());
            return;
        }
    }

    /// Until the process has ended (none), or is to.
    async fn watch(&mut self, child: &mut Child) -> Option<oneshot::Sender<()>> {
        let pid = child.id();
        loop {
            tokio::select! {
                status = child.wait() => {
                    self.died(pid.unwrap_or_default(), status.expect("a child's end"));
                    return None;
                }
                // Whoever gave the orders is gone: the child ends with its handle.
                order = self.ordered.recv() => match order {
                    None => std::future::pending().await,
                    Some(Order::Retire(done)) => return Some(done),
                    Some(Order::Signal(which, done)) => {
                        if let (Signal::KILL, Some(child)) = (which, pid) {
                            self.ledger.write(Entry::Killed { child });
                        }
                        signal(child, which);
                        let _ = done.send(());
                    }
                }
            }
        }
    }

    fn died(&self, child: u32, status: ExitStatus) {
        self.ledger.write(Entry::Died { child, status: status.to_string() });
    }
}

/// A child has no pid once it was waited for, and only we wait for it.
fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
        let _ = kill_process(pid, signal); // it may be a zombie
    }
}

/// How a process is started.
struct Script {
    program: PathBuf,
    words: Vec<String>,
    log: PathBuf,
    produces: Option<Produces>,
}

/// What each producer process is told anew.
struct Produces {
    cast: Cast,
    next_place: u64,
}

impl Script {
    fn new(cast: &Cast, role: &str, url: &str, folder: &Path) -> Self {
        let words = [
            role,
            "--url",
            url,
            "--folder",
            &folder.display().to_string(),
            "--lease-ms",
            &cast.lease.as_millis().to_string(),
        ];
        let replicas = cast.replicas.map(|replicas| format!("--replicas={replicas}"));
        Self {
            program: cast.program.clone(),
            words: words.map(str::to_owned).into_iter().chain(replicas).collect(),
            log: folder.join(format!("{role}.log")),
            produces: None,
        }
    }

    fn start(&mut self) -> Child {
        let mut command = Command::new(&self.program);
        command.args(&self.words).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        // What it says, and panics as it was told to, is for whoever looks into a failure.
        let log = OpenOptions::new().create(true).append(true).open(&self.log).expect("a log");
        // Looking up the symbols of a backtrace holds a panicking thread up for half a second.
        command.stderr(log).env("RUST_BACKTRACE", "0");
        if let Some(produces) = &mut self.produces {
            command.args(produces.next());
        }
        command.spawn().expect("a child process")
    }
}

impl Produces {
    fn next(&mut self) -> Vec<String> {
        let place = self.next_place;
        // Each process has keys and numbers of its own.
        self.next_place += self.cast.producers as u64;
        let words = [
            ("--place", place),
            ("--seed", self.cast.seed ^ place << 32),
            ("--per-second", self.cast.per_second),
            ("--pills-per-thousand", self.cast.pills_per_thousand),
        ];
        words.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_string()]).collect()
    }
}
