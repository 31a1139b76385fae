//! Programs that a page's reader starts in another terminal.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use crate::scene::PATIENCE;

/// A program that says lines until it is dropped.
pub(super) struct Running {
    child: Child,
    pub(super) said: mpsc::Receiver<String>,
}

impl Running {
    /// The lines of its standard output.
    pub(super) fn talking(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
        let out = child.stdout.take().expect("its output");
        Self { child, said: lines(out) }
    }

    /// The lines of its log.
    pub(super) fn logging(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let log = child.stderr.take().expect("its log");
        Self { child, said: lines(log) }
    }

    /// The line that has these words, once it is said.
    pub(super) fn until(&self, what: &str) -> String {
        let mut before = Vec::new();
        while let Ok(line) = self.said.recv_timeout(PATIENCE) {
            if line.contains(what) {
                return line;
            }
            before.push(line);
        }
        panic!("nothing says {what}: {before:#?}")
    }
}

fn lines(of: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (tell, said) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(of).lines().map_while(Result::ok);
        while lines.next().is_some_and(|line| tell.send(line).is_ok()) {}
    });
    said
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
