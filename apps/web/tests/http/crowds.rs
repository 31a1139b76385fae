//! More clients than there are places.

use std::time::{Duration, Instant};

use futures::future::join_all;
use keylapse_web::{Access, ServerLimits, Web};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::http::site::{Site, nowhere};

/// 2,000 connections that are held, half of which have said something, keep nobody out.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_asks_for_nothing_does_not_keep_a_probe_waiting() {
    let access = Access::to_loopback();
    let patience = ServerLimits::default().connections(64);
    let site = Site::patient(Web::new(nowhere(), access.clone()), &access, patience, None).await;
    let address = site.address;
    let held = join_all((0..2000).map(async |n| {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let said: &[u8] = if n % 2 == 0 { b"" } else { b"GET /livez HTTP/1.1\r\nHos" };
        // It may have given way to another already.
        _ = stream.write_all(said).await;
        stream
    }))
    .await;
    for _ in 0..20 {
        let began = Instant::now();
        assert_eq!(site.get("/livez").await.status, 200);
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    }
    drop(held);
}
