//! A thousand clients of each kind that is slow, and others who want a word meanwhile.

use std::time::{Duration, Instant};

use futures::future::join_all;
use keylapse_support::eventually;
use keylapse_web::{Access, ServerLimits, Web};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::http::shop::Shop;
use crate::http::site::{FORM, Site, TOKEN, guarded, nowhere};
use crate::http::slow::PATIENCE;

const CROWD: usize = 1000;
/// So soon everybody else is answered.
const SOON: Duration = Duration::from_secs(1);
/// Between two bytes of a slow client.
const BEAT: Duration = Duration::from_millis(200);

/// Clients that have sent this, and now send a byte from time to time.
async fn crowd(site: &Site, said: &str) -> JoinSet<()> {
    let address = site.address;
    let streams = join_all((0..CROWD).map(async |_| {
        // A window as small as it gets: nothing of an answer fits into it.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(1024).expect("a small window");
        let mut stream = socket.connect(address).await.expect("a connection");
        // It may have given way to another already.
        _ = stream.write_all(said.as_bytes()).await;
        stream
    }));
    let mut all = JoinSet::new();
    streams.await.into_iter().for_each(|stream| drop(all.spawn(trickle(stream))));
    all
}

async fn trickle(mut stream: TcpStream) {
    loop {
        tokio::time::sleep(BEAT).await;
        if stream.write_all(b"a").await.is_err() {
            // The answer is not read, and the connection not closed.
            return std::future::pending().await;
        }
    }
}

/// How long answers take that were asked for in a row: mostly less than a second, on a machine that has much else to do.
#[derive(Default)]
struct Taken(Vec<Duration>);

impl Taken {
    async fn ask(&mut self, site: &Site, method: &str, path: &str, body: &str, status: u16) {
        let began = Instant::now();
        let answer = timeout(PATIENCE / 2, site.ask(method, path, &[FORM], body)).await;
        let answer = answer.unwrap_or_else(|_| panic!("no answer to {path}"));
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        self.0.push(began.elapsed());
    }

    fn were_short(mut self, beside: &str) {
        self.0.sort_unstable();
        assert!(self.0[self.0.len() * 9 / 10] < SOON, "beside {beside}: {:?}", self.0);
    }
}

/// Probes are answered in time, and so is one who logs in.
async fn others_are_answered(site: &Site, crowd: &str) {
    // Until all of the crowd has been let in, the system itself may drop who connects.
    let live = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    eventually(PATIENCE, "the crowd to be in", async || {
        site.send(live).await.is_some_and(|answer| answer.status == 200)
    })
    .await;
    let (login, mut taken) = (format!("token={TOKEN}"), Taken::default());
    for _ in 0..10 {
        taken.ask(site, "GET", "/livez", "", 200).await;
        taken.ask(site, "GET", "/readyz", "", 503).await;
        taken.ask(site, "POST", "/login", &login, 303).await;
    }
    taken.were_short(crowd);
}

fn body(line: &str, head: &str) -> String {
    format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2000\r\n{head}\r\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_slow_clients_of_any_kind_keep_nobody_waiting() {
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    for (kind, said) in [
        ("heads that trickle", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ".to_owned()),
        (
            "bodies for the login",
            body("POST /login", "").replace("application/json", "application/x-www-form-urlencoded"),
        ),
        ("bodies without a token", body("PUT /api/v1/topics/a/timers/b", "")),
        ("bodies with a token", body("PUT /api/v1/topics/a/timers/b", &token)),
    ] {
        let access = guarded();
        let site = Site::serve(Web::new(nowhere(), access.clone()), &access).await;
        let slow = crowd(&site, &said).await;
        others_are_answered(&site, kind).await;
        drop(slow);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_who_do_not_read_their_answers_keep_nobody_waiting() {
    let access = guarded();
    // More than the system takes from the server for somebody who reads nothing.
    let web = Web::new(nowhere(), access.clone()).process_metrics(|| "a".repeat(1 << 20));
    let patience = ServerLimits::default().connections(64);
    let site = Site::patient(web, &access, patience, None).await;
    let said = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    let slow = crowd(&site, &said).await;
    others_are_answered(&site, "answers that nobody reads").await;
    drop(slow);
}

/// While every place is taken by somebody whose answer is being made, probes have places of their own.
#[tokio::test(flavor = "multi_thread")]
async fn probes_have_places_that_nobody_else_can_take() {
    let shop = Shop::open().await;
    let access = Access::to_loopback();
    let patience = ServerLimits::default().connections(4);
    let site = Site::patient(Web::new(shop.console.clone(), access.clone()), &access, patience, None).await;
    shop.server.stop();
    let mut working = Vec::new();
    for _ in 0..4 {
        let mut stream = site.connect().await;
        let request = format!("GET /api/v1/status HTTP/1.1\r\nHost: {}\r\n\r\n", site.address);
        stream.write_all(request.as_bytes()).await.expect("a request");
        working.push(stream);
    }
    // Others wait for a place, and keep none from a probe.
    let waiting = join_all((0..100).map(async |_| {
        let mut stream = site.connect().await;
        stream.write_all(b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("a request");
        stream
    }));
    let waiting = waiting.await;
    let mut taken = Taken::default();
    for (path, status) in [("/livez", 200), ("/readyz", 503), ("/metrics", 200)].repeat(5) {
        taken.ask(&site, "GET", path, "", status).await;
    }
    taken.were_short("those who wait for Redis");
    shop.server.cont();
    for stream in working {
        stream.readable().await.expect("an answer");
    }
    drop(waiting);
}
