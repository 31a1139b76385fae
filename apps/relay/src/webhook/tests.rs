//! Names whose addresses change, with a resolver of given answers.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::dns::{Addrs, Name, Resolving};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A resolver that returns the next of these answers for each lookup, and then the last one again.
#[derive(Debug)]
struct Changing {
    answers: Mutex<Vec<Vec<&'static str>>>,
    asked: AtomicUsize,
}

impl Changing {
    fn new(answers: &[&[&'static str]]) -> Arc<Self> {
        let answers = answers.iter().rev().map(|all| all.to_vec()).collect();
        Arc::new(Self { answers: Mutex::new(answers), asked: AtomicUsize::new(0) })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Resolve for Changing {
    fn resolve(&self, _: Name) -> Resolving {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut answers = self.answers.lock().unwrap();
        let now = if answers.len() > 1 { answers.pop().unwrap() } else { answers[0].clone() };
        let found: Vec<_> = now.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 0)).collect();
        Box::pin(async move { Ok(Box::new(found.into_iter()) as Addrs) })
    }
}

/// Two receivers on the same port, of which only 127.0.0.1 may be called. They close the connection after each call, so that
/// each call needs another one.
struct Pair {
    port: u16,
    called: [Arc<AtomicUsize>; 2],
}

impl Pair {
    async fn start() -> Self {
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let second = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
        let called = <[Arc<AtomicUsize>; 2]>::default();
        for (listener, calls) in [first, second].into_iter().zip(called.clone()) {
            tokio::spawn(async move {
                while let Ok((mut line, _)) = listener.accept().await {
                    calls.fetch_add(1, Ordering::Relaxed);
                    let _ = line.read(&mut [0; 4096]).await;
                    let _ = line
                        .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
                        .await;
                }
            });
        }
        Self { port, called }
    }

    fn called(&self) -> [usize; 2] {
        [0, 1].map(|at: usize| self.called[at].load(Ordering::Relaxed))
    }

    fn webhook(&self, resolver: Arc<Changing>) -> Webhook {
        let template = Template::read(&format!("http://shop.example:{}/", self.port), &[]).unwrap();
        let settings = Settings {
            template,
            form: Form::Json,
            allowed: Allowed::read(["127.0.0.1"]).unwrap(),
            secrets: vec![Secret::parse("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap()],
            headers: HeaderMap::new(),
            timeout: Duration::from_secs(10),
            per_host: 1,
            at_once: 1,
            circuit: Limits { failures: 100, wait: Duration::from_secs(1) },
            tls: tls::trusting(None).unwrap(),
        };
        Webhook::resolving("orders", settings, resolver).unwrap()
    }
}

async fn said(webhook: &Webhook) -> String {
    match webhook.deliver(&Occurrence::for_tests()).await {
        Delivered::Ended(Ok(outcome)) => format!("{outcome:?}"),
        Delivered::Ended(Err(failure)) => failure.message().to_owned(),
        Delivered::Gone(why) => why,
    }
}

#[tokio::test]
async fn a_name_that_leads_elsewhere_at_the_second_look_is_refused() {
    let pair = Pair::start().await;
    let resolver =
        Changing::new(&[&["127.0.0.1"], &["127.0.0.2"], &["169.254.169.254"], &["::ffff:127.0.0.2"], &[]]);
    let webhook = pair.webhook(resolver.clone());
    assert_eq!(said(&webhook).await, "Done");
    for why in
        ["is 127.0.0.2, which is private", "is 169.254.169.254, which", "which is private", "has no address"]
    {
        let said = said(&webhook).await;
        assert!(said.contains(why), "{why}: {said}");
    }
    assert_eq!(pair.called(), [1, 0]);
    assert_eq!(resolver.asked(), 5, "once for each connection");
}

#[tokio::test]
async fn of_several_addresses_only_those_that_may_be_are_tried() {
    let pair = Pair::start().await;
    let webhook = pair.webhook(Changing::new(&[&["127.0.0.2", "10.0.0.1", "127.0.0.1", "::1"]]));
    for _ in 0..3 {
        assert_eq!(said(&webhook).await, "Done");
    }
    assert_eq!(pair.called(), [3, 0]);
}
