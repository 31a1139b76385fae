//! Hosts that answer late, or never, or a byte now and then; all of them in a process of its own.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write, stdout};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::{park, sleep, spawn};
use std::time::Duration;

use clap::ValueEnum;
use keylapse_bench::Fault;

/// The first argument by which this program plays bad hosts.
pub(crate) const WORD: &str = "bad-hosts";

const LATE: Duration = Duration::from_secs(10);
const DRIP: Duration = Duration::from_millis(200);

/// The kinds of bad hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Nothing: answers at once. The others are to be compared with these, as calls of their own take the processors, too.
    Prompt,
    /// Accepts, and never answers.
    Hanging,
    /// Answers after ten seconds.
    Slow,
    /// Sends the head of its answer byte by byte.
    TricklingHead,
    /// Sends a head at once, and the body byte by byte.
    TricklingBody,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("each has a name").get_name())
    }
}

/// The process.
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
        let said = BufReader::new(process.stdout.take().ok_or("no output")?);
        let urls = said.lines().take(count).collect::<Result<_, _>>()?;
        Ok(Self { process, urls })
    }
}

impl Drop for BadHosts {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Is them.
pub(crate) fn play(words: &[String]) -> Result<(), Fault> {
    let [kind, count] = words else { return Err("a kind and a count".into()) };
    let kind = Kind::from_str(kind, false)?;
    for _ in 0..count.parse()? {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        writeln!(stdout(), "http://{}/hook", listener.local_addr()?)?;
        spawn(move || {
            for line in listener.incoming().flatten() {
                spawn(move || serve(line, kind));
            }
        });
    }
    loop {
        park();
    }
}

/// A call is small, and comes in one piece.
fn serve(mut line: TcpStream, kind: Kind) -> Option<()> {
    while line.read(&mut [0; 64 << 10]).ok()? > 0 {
        match kind {
            Kind::Prompt => line.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?,
            Kind::Hanging => {}
            Kind::Slow => {
                sleep(LATE);
                line.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
            }
            Kind::TricklingHead => drip(&mut line, b"HTTP/1.1 200 OK\r\nx: ")?,
            Kind::TricklingBody => drip(&mut line, b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n")?,
        }
    }
    None
}

fn drip(line: &mut TcpStream, head: &[u8]) -> Option<()> {
    line.write_all(head).ok()?;
    loop {
        sleep(DRIP);
        line.write_all(b"x").ok()?;
    }
}
