//! A connection that sends many commands together, so that the cost of the writer does not matter.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use keylapse_bench::Fault;

/// The time between two writes of a steady writer.
const BEAT: Duration = Duration::from_millis(4);
/// The most commands of one write, even if the writer is late.
const AT_ONCE: u64 = 2000;

#[derive(Debug)]
pub(crate) struct Line {
    replies: BufReader<TcpStream>,
    unsent: Vec<u8>,
    reply: Vec<u8>,
}

impl Line {
    pub(crate) fn to(port: u16) -> Result<Self, Fault> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self { replies: BufReader::new(stream), unsent: Vec::new(), reply: Vec::new() })
    }

    /// Adds a command to those that are sent next.
    pub(crate) fn push(&mut self, words: &[&[u8]]) {
        let _ = write!(self.unsent, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.unsent, "${}\r\n", word.len());
            self.unsent.extend_from_slice(word);
            self.unsent.extend_from_slice(b"\r\n");
        }
    }

    pub(crate) fn send(&mut self) -> Result<(), Fault> {
        self.replies.get_mut().write_all(&self.unsent)?;
        self.unsent.clear();
        Ok(())
    }

    /// Reads the next reply: a number, zero for a status, or 1 for no value.
    pub(crate) fn reply(&mut self) -> Result<i64, Fault> {
        self.reply.clear();
        self.replies.read_until(b'\n', &mut self.reply)?;
        match self.reply.trim_ascii_end() {
            [b':', digits @ ..] => Ok(std::str::from_utf8(digits)?.parse()?),
            [b'+', ..] => Ok(0),
            b"$-1" => Ok(1),
            other => Err(format!("the server answered {}", other.escape_ascii()).into()),
        }
    }

    /// Sends the commands, and reads their replies, which do not matter.
    pub(crate) fn exchange(&mut self, commands: usize) -> Result<(), Fault> {
        self.send()?;
        (0..commands).try_for_each(|_| self.reply().map(drop))
    }
}

/// A steady rate, in portions of equal time.
#[derive(Debug)]
pub(crate) struct Pace {
    began: Instant,
    rate: f64,
    done: u64,
}

impl Pace {
    pub(crate) fn of(rate: f64) -> Self {
        Self { began: Instant::now(), rate, done: 0 }
    }

    /// Waits for the next portion, and returns its size.
    pub(crate) fn portion(&mut self) -> u64 {
        loop {
            let due = (self.began.elapsed().as_secs_f64() * self.rate) as u64 - self.done;
            if due > 0 {
                let portion = due.min(AT_ONCE);
                self.done += portion;
                if due < AT_ONCE {
                    sleep(BEAT); // larger portions need fewer calls
                }
                return portion;
            }
            sleep(BEAT);
        }
    }

    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}
