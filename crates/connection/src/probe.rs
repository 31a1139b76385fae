//! Who answers at a port, when a connection there could not be made: so that an error can say what to set. Nothing is
//! told but what any stranger would say.

use std::future::pending;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::endpoint::Endpoint;
use crate::socket;

/// How an error begins where TLS was tried at a plain port, and where plain Redis was tried at one of TLS.
pub const NO_TLS: &str = "no TLS is spoken at this port";
pub const TLS: &str = "TLS is spoken at this port";

/// How long an answer may take.
const WITHIN: Duration = Duration::from_millis(400);
/// After this long without an answer to TLS somebody who speaks none is suspected. With the answer it is less than anybody waits
/// for a connection: a second, for a sentinel.
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
const SUSPECT_AFTER: Duration = Duration::from_millis(300);

/// The shortest greeting of TLS 1.2. It need not lead to a session: an alert is an answer, too.
#[rustfmt::skip]
const HELLO: [u8; 56] = [
    0x16, 3, 1, 0, 51, // a record of the handshake
    1, 0, 0, 47, 3, 3, // a client's hello
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0,                                     // no session to resume
    0, 8, 0xc0, 0x2f, 0xc0, 0x2b, 0xc0, 0x30, 0xc0, 0x2c, // cipher suites
    1, 0, // no compression
];

/// Whether TLS is spoken there.
pub(super) async fn speaks_tls(endpoint: &Endpoint) -> bool {
    matches!(first_bytes(endpoint, &HELLO).await, Some([0x15 | 0x16, 3]))
}

/// Comes when Redis' protocol turns out to be spoken there, without TLS; else never. For whoever waits for TLS.
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
pub(super) async fn turns_out_plain(endpoint: &Endpoint) {
    tokio::time::sleep(SUSPECT_AFTER).await;
    if !matches!(first_bytes(endpoint, b"PING\r\n").await, Some([b'+' | b'-', _])) {
        pending::<()>().await;
    }
}

async fn first_bytes(endpoint: &Endpoint, greeting: &[u8]) -> Option<[u8; 2]> {
    let Endpoint::Tcp { host, port } = endpoint else { return None };
    let asked = async {
        let mut stream = socket::open(host, *port).await?;
        stream.write_all(greeting).await?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer).await.map(|_| answer)
    };
    tokio::time::timeout(WITHIN, asked).await.ok()?.ok()
}
