//! A server at a port of this machine, and requests to it.

use std::net::SocketAddr;

use keylapse::Client;
use keylapse_console::Console;
use keylapse_web::{Access, Certificate, ServerLimits, Token, Web, WebServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::http::answer::Answer;
use crate::http::slow::PATIENCE;

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// What a page posts.
pub(crate) const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
pub(crate) const READ_TOKEN: &str = "fedcba9876543210fedcba9876543210";

pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

/// A console of servers that are not there.
pub(crate) fn nowhere() -> Console {
    let client = Client::new("redis://127.0.0.1:1/").expect("a client");
    Console::new(client.retry_for(std::time::Duration::from_millis(50)))
}

pub(crate) fn guarded() -> Access {
    let token = |text| Token::new(text).expect("a token");
    Access::to_loopback().token(token(TOKEN)).read_token(token(READ_TOKEN))
}

impl Site {
    pub(crate) async fn serve(web: Web, access: &Access) -> Self {
        Self::patient(web, access, ServerLimits::default(), None).await
    }

    pub(crate) async fn patient(
        web: Web,
        access: &Access,
        patience: ServerLimits,
        certificate: Option<Certificate>,
    ) -> Self {
        let server = WebServer::bind("127.0.0.1:0".parse().expect("an address"), access, certificate).await;
        let server = server.expect("a server").limits(patience);
        let address = server.address().expect("its address");
        let (stop, stopped) = oneshot::channel::<()>();
        let routes = web.limits(patience).router();
        let task = tokio::spawn(server.run(routes, async { _ = stopped.await }));
        Self { address, stop: Some(stop), task: Some(task) }
    }

    /// Of a namespace that nobody guards, for whoever is on this machine.
    pub(crate) async fn open(console: &Console) -> Self {
        let access = Access::to_loopback();
        Self::serve(Web::new(console.clone(), access.clone()), &access).await
    }

    /// Tells it to end, and waits until it has.
    pub(crate) async fn close(&mut self) {
        drop(self.stop.take());
        self.task.take().expect("it runs").await.expect("its end");
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }

    /// Sends this as it is, and reads to the end.
    pub(crate) async fn send(&self, request: impl AsRef<[u8]>) -> Option<Answer> {
        let mut stream = self.connect().await;
        // It may have answered and gone before all is sent.
        _ = stream.write_all(request.as_ref()).await;
        read(stream).await
    }

    /// A request as a program makes it: with these lines in its head.
    pub(crate) async fn ask(&self, method: &str, path: &str, head: &[&str], body: &str) -> Answer {
        let lines: String = head.iter().map(|line| format!("{line}\r\n")).collect();
        let (host, length) = (self.address, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{lines}\r\n{body}"
        );
        self.send(request).await.unwrap_or_else(|| panic!("no answer to {method} {path}"))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    /// With a body of JSON.
    pub(crate) async fn say(&self, method: &str, path: &str, body: &serde_json::Value) -> Answer {
        self.ask(method, path, &["Content-Type: application/json"], &body.to_string()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &serde_json::Value) -> Answer {
        self.say("POST", path, body).await
    }
}

/// All that comes until the end; none where that is no answer.
pub(crate) async fn read(mut stream: TcpStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    // A reset behind the answer does not take it back.
    _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the answer has an end");
    Answer::read(&bytes)
}
