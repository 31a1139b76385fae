//! Ports of 127.0.0.1 to listen on.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::Mutex;

use crate::servers::failed;
use keylapse::Result;
use keylapse_connection::lock::lock;

/// Below the ports from which systems take those of outgoing connections: the port of a server that
/// has ended is still free when it starts again, and no client that calls it meanwhile is given it to
/// call *from*, and so talks to itself.
const RANGE: Range<u16> = 10_000..32_000;
const TRIES: usize = 1_000;

/// Those of this process. Other processes may choose the same: then a server cannot start there, and
/// another port is tried.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that no other test of this process is given as long as this value lives, whether or not
/// something listens there.
#[derive(Debug)]
pub(super) struct Port(u16);

impl Port {
    /// One that nothing listens on at this moment; another process may be quicker.
    pub(super) fn free() -> Result<Self> {
        for _ in 0..TRIES {
            let port = rand::random_range(RANGE);
            if lock(&TAKEN).insert(port) {
                let port = Self(port);
                if TcpListener::bind((Ipv4Addr::LOCALHOST, port.0)).is_ok() {
                    return Ok(port);
                }
            }
        }
        Err(failed(format!("none of {TRIES} ports tried in {RANGE:?} is free on 127.0.0.1")))
    }

    pub(super) fn number(&self) -> u16 {
        self.0
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        lock(&TAKEN).remove(&self.0);
    }
}
