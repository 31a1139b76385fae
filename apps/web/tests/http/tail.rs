//! The live tail.

use std::time::Duration;

use futures::future::join_all;
use keylapse_console::Action;
use keylapse_support::eventually;
use keylapse_web::{Access, ServerLimits, Web};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::http::shop::Shop;
use crate::http::site::Site;
use crate::http::slow::PATIENCE;

#[tokio::test]
async fn what_happens_is_told_as_it_happens_and_the_end_is_an_end() {
    let shop = Shop::open().await;
    let mut site = Site::open(&shop.console).await;
    let mut tail = look_on(&site, "?topic=order").await;
    let head = until(&mut tail, "\r\n\r\n").await;
    assert!(
        head.contains("200 OK") && head.contains("text/event-stream") && head.contains("no-store"),
        "{head}"
    );
    let done = shop.topic().await.act(Action::Cancel, b"order:first", None).await.expect("an answer");
    assert_eq!(done.outcome, "cancelled");
    let told = until(&mut tail, "\n\n").await;
    assert!(told.contains("event: tail\ndata: {"), "{told}");
    assert!(told.contains(r#""key":"order:first""#) && told.contains(r#""event":"cancelled""#), "{told}");
    site.close().await;
    let mut rest = String::new();
    tail.read_to_string(&mut rest).await.expect("an orderly end");
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
}

#[tokio::test]
async fn one_too_many_is_refused_and_has_a_place_once_another_has_gone() {
    let shop = Shop::open().await;
    let access = Access::to_loopback();
    let web = Web::new(shop.console.clone(), access.clone());
    let site = Site::patient(web, &access, ServerLimits::default().tails(3), None).await;
    let mut tails = join_all((0..3).map(|_| look_on(&site, ""))).await;
    for tail in &mut tails {
        until(tail, "\r\n\r\n").await;
    }
    let many = join_all((0..400).map(|_| site.get("/api/v1/tail"))).await;
    many.iter().for_each(|refused| refused.refused(503, "3 live tails are open"));
    assert_eq!(subscribers(&shop).await, 3);
    drop(tails);
    eventually(PATIENCE, "that they have gone", async || subscribers(&shop).await == 0).await;
    until(&mut look_on(&site, "").await, "200 OK").await;
}

/// Connections that look on.
async fn subscribers(shop: &Shop) -> usize {
    let clients = shop.server.cmd(&["CLIENT", "LIST"]).await;
    let clients: String = redis::from_redis_value(clients).expect("a list");
    clients.lines().filter(|line| line.contains(" ssub=4 ") || line.contains(" sub=4 ")).count()
}

async fn look_on(site: &Site, query: &str) -> TcpStream {
    let mut stream = site.connect().await;
    let request = format!("GET /api/v1/tail{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("a request");
    stream
}

/// All up to where this comes.
async fn until(stream: &mut TcpStream, mark: &str) -> String {
    let mut all = String::new();
    let read = async {
        while !all.contains(mark) {
            all.push(char::from(stream.read_u8().await.expect("more")));
        }
    };
    tokio::time::timeout(Duration::from_secs(20), read).await.expect("in time");
    all
}
