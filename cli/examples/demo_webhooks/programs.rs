//! The programs that the demo starts and ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::Result;

/// Ends with the value that owns it.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }

    /// One that says in its log where it listens. Answers that, too.
    pub(crate) fn listening(command: &mut Command) -> Result<(Self, String)> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut log = BufReader::new(child.stderr.take().ok_or("no log")?).lines();
        let process = Self(child);
        let heard = log.by_ref().map_while(std::result::Result::ok);
        let address = heard
            .filter_map(|line| Some(line.split_once("listening at ")?.1.trim_end_matches('/').to_owned()));
        let address = address.into_iter().next().ok_or("it has ended before it listened")?;
        // Nobody may stop reading: it would wait.
        std::thread::spawn(move || log.map_while(std::result::Result::ok).for_each(drop));
        Ok((process, address))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// As a crash does: nothing can be handed back.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The program `keylapse`, beside this one.
pub(crate) fn keylapse() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let folder = this.parent().and_then(Path::parent).ok_or("this program is in no folder")?;
    let program = folder.join("keylapse");
    if program.exists() {
        Ok(program)
    } else {
        Err("build the program first: make demo-webhooks does".into())
    }
}

/// A server of one's own.
pub(crate) fn redis(folder: &Path) -> Result<(Process, String)> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let binary = std::env::var("KEYLAPSE_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let mut server = Command::new(binary);
    server.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--notify-keyspace-events", "KExg$"]);
    Ok((Process::start(server.arg("--dir").arg(folder))?, format!("redis://127.0.0.1:{port}/")))
}
