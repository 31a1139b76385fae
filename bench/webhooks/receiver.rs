//! Takes webhooks, and says when they came. A thread for each connection costs the least of what runs beside it.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write, stdout};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{SystemTime, UNIX_EPOCH};

use keylapse_bench::Fault;
use serde::{Deserialize, Serialize};

/// What makes this program one.
pub(crate) const WORD: &str = "receiver";

/// What came of a number of webhooks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Came {
    /// From the first deadline to the arrival of the last.
    pub(crate) per_second: f64,
    /// From the deadline to the arrival.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    max_ms: f64,
}

impl fmt::Display for Came {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.1}, p99 {:.1}, max {:.1} ms late", self.p50_ms, self.p99_ms, self.max_ms)
    }
}

/// The process.
#[derive(Debug)]
pub(crate) struct Receiver {
    process: Child,
    said: BufReader<ChildStdout>,
    pub(crate) url: String,
}

impl Receiver {
    /// One that is to take so many, and then so many.
    pub(crate) fn start(counts: &[usize]) -> Result<Self, Fault> {
        let mut program = Command::new(std::env::current_exe()?);
        program.arg(WORD).args(counts.iter().map(ToString::to_string)).stdout(Stdio::piped());
        let mut process = program.spawn()?;
        let mut said = BufReader::new(process.stdout.take().ok_or("no output")?);
        let mut url = String::new();
        said.read_line(&mut url)?;
        Ok(Self { process, said, url: url.trim().to_owned() })
    }

    /// What came of the next number, once all of it is there.
    pub(crate) fn came(&mut self) -> Result<Came, Fault> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Is one.
pub(crate) fn play(counts: &[String]) -> Result<(), Fault> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("http://{}/hook", listener.local_addr()?);
    let (arrived, arrivals) = channel();
    std::thread::spawn(move || {
        for line in listener.incoming().flatten() {
            let arrived = arrived.clone();
            std::thread::spawn(move || serve(line, &arrived));
        }
    });
    for count in counts {
        let all: Vec<(f64, f64)> = arrivals.iter().take(count.parse()?).collect();
        writeln!(stdout(), "{}", serde_json::to_string(&came(&all))?)?;
    }
    Ok(())
}

/// Of pairs of deadline and arrival, in ms.
fn came(all: &[(f64, f64)]) -> Came {
    let mut late: Vec<_> = all.iter().map(|(deadline, arrival)| arrival - deadline).collect();
    late.sort_by(f64::total_cmp);
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize];
    let first = all.iter().map(|pair| pair.0).fold(f64::INFINITY, f64::min);
    let last = all.iter().map(|pair| pair.1).fold(0.0, f64::max);
    let per_second = all.len() as f64 * 1000.0 / (last - first);
    Came { per_second, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0) }
}

/// Answers until the other side hangs up.
fn serve(mut line: TcpStream, arrived: &Sender<(f64, f64)>) -> Option<()> {
    line.set_nodelay(true).ok()?;
    let mut from = BufReader::new(line.try_clone().ok()?);
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
        line.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

fn deadline_of(body: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(body).ok()?;
    let rest = text.split_once("\"deadline_ms\":")?.1;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

pub(crate) fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1000.0
}
