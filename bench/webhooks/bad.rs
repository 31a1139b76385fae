//! Bad hosts, which answer late, never, or byte by byte. All of them run in one process of their own.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write, stdout};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::{park, sleep, spawn};
use std::time::Duration;

use clap::ValueEnum;
use keylapse_bench::Fault;

/// The first argument that makes this program play bad hosts.
pub(crate) const WORD: &str = "bad-hosts";

const LATE: Duration = Duration::from_secs(10);
const DRIP: Duration = Duration::from_millis(200);

/// The kinds of bad hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Answers immediately. The others are compared with these hosts, whose calls use the processors, too.
    Prompt,
    /// Accepts, and never answers.
    Hanging,
    /// Answers after ten seconds.
    Slow,
    /// Sends the head of its answer byte by byte.
    TricklingHead,
    /// Sends its head immediately, and the body byte by byte.
    TricklingBody,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("each has a name").get_name())
    }
}

/// The process of the bad hosts.
#[derive(Debug)]
pub(crate) struct BadHosts {
    process: Child,
    pub(crate) urls: Vec<String>,
}

impl BadHosts {
    pub(crate) fn start(kind: Kind, count: usize) -> Result<Self, Fault> {
        let mut program = Command::new(std::env::current_exe()?);
        program.args([WORD, &kind.to_string(), &count.to_string()]).stdout(Stdio::piped());
        let mut process = program.spawn()?;
        let output = BufReader::new(process.stdout.take().ok_or("no output")?);
        let urls = output.lines().take(count).collect::<Result<_, _>>()?;
        Ok(Self { process, urls })
    }
}

impl Drop for BadHosts {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the bad hosts in this process.
pub(crate) fn play(words: &[String]) -> Result<(), Fault> {
    let [kind, count] = words else { return Err("the arguments must be a kind and a count".into()) };
    let kind = Kind::from_str(kind, false)?;
    for _ in 0..count.parse()? {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        writeln!(stdout(), "http://{}/hook", listener.local_addr()?)?;
        spawn(move || {
            for stream in listener.incoming().flatten() {
                spawn(move || serve(stream, kind));
            }
        });
    }
    loop {
        park();
    }
}

/// Serves a connection. A request is small, and arrives in one read.
fn serve(mut stream: TcpStream, kind: Kind) -> Option<()> {
    while stream.read(&mut [0; 64 << 10]).ok()? > 0 {
        match kind {
            Kind::Prompt => stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?,
            Kind::Hanging => {}
            Kind::Slow => {
                sleep(LATE);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
            }
            Kind::TricklingHead => drip(&mut stream, b"HTTP/1.1 200 OK\r\nx: ")?,
            Kind::TricklingBody => drip(&mut stream, b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n")?,
        }
    }
    None
}

fn drip(stream: &mut TcpStream, head: &[u8]) -> Option<()> {
    stream.write_all(head).ok()?;
    loop {
        sleep(DRIP);
        stream.write_all(b"x").ok()?;
    }
}
