//! Receives webhooks, and prints when they arrived. A thread for each connection uses the least processor time.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write, stdout};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{SystemTime, UNIX_EPOCH};

use keylapse_bench::Fault;
use serde::{Deserialize, Serialize};

/// The first argument that makes this program a receiver.
pub(crate) const WORD: &str = "receiver";

/// The rate and the lateness of a number of webhooks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Came {
    /// The rate from the first deadline to the last arrival.
    pub(crate) per_second: f64,
    /// The time from the deadline to the arrival.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    max_ms: f64,
}

impl fmt::Display for Came {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.1}, p99 {:.1}, max {:.1} ms late", self.p50_ms, self.p99_ms, self.max_ms)
    }
}

/// The process of the receiver.
#[derive(Debug)]
pub(crate) struct Receiver {
    process: Child,
    output: BufReader<ChildStdout>,
    pub(crate) url: String,
}

impl Receiver {
    /// Starts a receiver of groups of webhooks, with the size of each group.
    pub(crate) fn start(counts: &[usize]) -> Result<Self, Fault> {
        let mut program = Command::new(std::env::current_exe()?);
        program.arg(WORD).args(counts.iter().map(ToString::to_string)).stdout(Stdio::piped());
        let mut process = program.spawn()?;
        let mut output = BufReader::new(process.stdout.take().ok_or("no output")?);
        let mut url = String::new();
        output.read_line(&mut url)?;
        Ok(Self { process, output, url: url.trim().to_owned() })
    }

    /// Waits for the next group, and returns its rate and lateness.
    pub(crate) fn came(&mut self) -> Result<Came, Fault> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the receiver in this process.
pub(crate) fn play(counts: &[String]) -> Result<(), Fault> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("http://{}/hook", listener.local_addr()?);
    let (arrived, arrivals) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let arrived = arrived.clone();
            std::thread::spawn(move || serve(stream, &arrived));
        }
    });
    for count in counts {
        let all: Vec<(f64, f64)> = arrivals.iter().take(count.parse()?).collect();
        writeln!(stdout(), "{}", serde_json::to_string(&came(&all))?)?;
    }
    Ok(())
}

/// Calculates rate and lateness from pairs of deadline and arrival, in ms.
fn came(all: &[(f64, f64)]) -> Came {
    let mut late: Vec<_> = all.iter().map(|(deadline, arrival)| arrival - deadline).collect();
    late.sort_by(f64::total_cmp);
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize];
    let first = all.iter().map(|pair| pair.0).fold(f64::INFINITY, f64::min);
    let last = all.iter().map(|pair| pair.1).fold(0.0, f64::max);
    let per_second = all.len() as f64 * 1000.0 / (last - first);
    Came { per_second, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0) }
}

/// Answers requests until the client closes the connection.
fn serve(mut stream: TcpStream, arrived: &Sender<(f64, f64)>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut from = BufReader::new(stream.try_clone().ok()?);
    let (mut text, mut body) = (String::new(), Vec::new());
    loop {
        let mut length = 0;
        loop {
            text.clear();
            from.read_line(&mut text).ok().filter(|read| *read > 0)?;
            match text.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().ok()?;
                }
                None if text.trim_end().is_empty() => break,
                _ => {}
            }
        }
        body.resize(length, 0);
        from.read_exact(&mut body).ok()?;
        let _ = arrived.send((deadline_of(&body)?, now_ms()));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

fn deadline_of(body: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(body).ok()?;
    let rest = text.split_once("\"deadline_ms\":")?.1;
    rest.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

pub(crate) fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1000.0
}
