//! Ports to listen on.

use std::{
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

/// Below the range from which systems take the ports of outgoing connections (32768 and up on Linux,
/// 49152 elsewhere), for two reasons. A stopped server's port must still be free when it is started
/// again. And a client that keeps connecting to a dead port of that range is, sooner or later,
/// given that same port to connect *from*: it then talks to itself.
/// 10,000 above each port there is room for the bus that a cluster node adds.
const RANGE: Range<u16> = 10_000..22_000;

const TRIES: usize = 1_000;

/// A port that nothing listens on at this moment. Another process may take it before the caller
/// does, so the caller tries again with another when it cannot bind it.
pub(crate) fn candidate() -> u16 {
    (0..TRIES)
        .map(|_| random(RANGE))
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap_or_else(|| panic!("none of {TRIES} ports tried in {RANGE:?} is free on 127.0.0.1"))
}

/// Each `RandomState` has keys of its own, which is all the randomness needed here.
fn random(range: Range<u16>) -> u16 {
    let width = u64::from(range.end - range.start);
    let offset = RandomState::new().hash_one(0) % width;
    range.start + u16::try_from(offset).expect("a remainder is below the width, a u16")
}
