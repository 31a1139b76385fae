//! Ports to listen on.

use std::{
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

/// The range is below the ports of outgoing connections (32768 and up on Linux, 49152 elsewhere), for two reasons. A stopped
/// server's port must still be free at its restart. A client that keeps connecting to a closed port of that range sooner or
/// later connects *from* this port, and then to itself.
///
/// A cluster node also listens 10,000 above its port, for the cluster bus.
const RANGE: Range<u16> = 10_000..22_000;

const TRIES: usize = 1_000;

/// Returns a port on which nothing listens now. Another process may take it first, so a caller that cannot bind it must try
/// another port.
pub(crate) fn candidate() -> u16 {
    (0..TRIES)
        .map(|_| random(RANGE))
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap_or_else(|| panic!("found no free port on 127.0.0.1: tried {TRIES} ports of {RANGE:?}"))
}

/// Returns a number of the range. The random keys of each `RandomState` are random enough here.
fn random(range: Range<u16>) -> u16 {
    let width = u64::from(range.end - range.start);
    let offset = RandomState::new().hash_one(0) % width;
    range.start + u16::try_from(offset).expect("a remainder is below the width, a u16")
}
