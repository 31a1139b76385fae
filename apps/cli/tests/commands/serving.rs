//! `keylapse serve`, and `keylapse health` beside it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keylapse_support::{Authority, Program, Server, eventually};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};

use crate::commands::scene::{PATIENCE, Scene, run_at};

/// A program that serves until it is dropped.
struct Serving {
    program: Program,
    /// Where it listens: host and port.
    at: String,
}

impl Serving {
    async fn start(url: &str, args: &[&str]) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_keylapse"));
        program.env("KEYLAPSE_URL", url).args(["serve", "--listen", "127.0.0.1:0"]).args(args);
        let program = Program::logging(&mut program).expect("the program");
        let line = program.says("listening at").await;
        let (_, at) = line.split_once("://").expect("an address");
        let at = at.trim_end().trim_end_matches('/').to_owned();
        Self { program, at }
    }

    fn health(&self, args: &[&str]) -> crate::commands::scene::Ran {
        run_at(
            "redis://127.0.0.1:1/",
            &[&["health", "--at", &format!("http://{}", self.at)], args].concat(),
            b"",
        )
    }

    fn get(&self, path: &str, head: &str) -> String {
        let mut stream = TcpStream::connect(&self.at).expect("a connection");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{head}\r\n", self.at);
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_what_the_program_says_of_itself() {
    let mut server = Server::start().await;
    let serving = Serving::start(&server.plain_url(), &[]).await;
    assert_eq!((serving.health(&[]).code, serving.health(&["--live"]).code), (0, 0));
    server.kill().await;
    let began = Instant::now();
    eventually(PATIENCE, "that it is not ready", async || serving.health(&[]).code == 1).await;
    // Well before the server is given up.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let ran = serving.health(&["--live"]);
    assert_eq!((ran.code, &*ran.out), (0, "200 ok\n"));
    let lines =
        run_at("redis://127.0.0.1:1/", &["--json", "health", "--at", &format!("http://{}", serving.at)], b"");
    let line: serde_json::Value = serde_json::from_str(&lines.out).expect("a line of JSON");
    assert_eq!(
        (&line["type"], &line["healthy"], &line["status"]),
        (&"health".into(), &false.into(), &503.into())
    );
    // Nobody is there, and what is there is something else.
    let at = format!("http://{}", serving.at);
    drop(serving);
    let gone = run_at("redis://127.0.0.1:1/", &["health", "--at", &at], b"");
    assert!(gone.code == 3 && !gone.err.is_empty(), "{gone:?}");
    let redis = Server::start().await;
    let other =
        run_at("", &["health", "--within", "2s", "--at", &format!("http://127.0.0.1:{}", redis.port())], b"");
    assert!(other.code == 3, "{other:?}");
    assert_eq!(run_at("", &["health", "--at", "https://127.0.0.1:1"], b"").code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_those_who_have_a_token() {
    let scene = Scene::new().await;
    scene.arm(b"1", PATIENCE, crate::commands::scene::Do::Succeed).await;
    let folder = tempfile::tempdir().expect("a folder");
    let token = "0123456789abcdef0123456789abcdef";
    let file = keylapse_support::write(folder.path(), "token", token);
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, permissions).expect("a secret");
    let serving =
        Serving::start(&scene.server.plain_url(), &["--read-token-file", file.to_str().expect("UTF-8")])
            .await;
    assert!(serving.get("/metrics", "").starts_with("HTTP/1.1 401 "));
    let metrics = serving.get("/metrics", &format!("Authorization: Bearer {token}\r\n"));
    for line in
        ["keylapse_redis_up 1\n", "keylapse_topic_timers{topic=\"order.unpaid\",state=\"pending\"} 1\n"]
    {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_certificate_are_read_again_at_a_hang_up() {
    let (folder, authority) = (tempfile::tempdir().expect("a folder"), Authority::new("tests"));
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (one, other) = ("0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210");
    secret(folder.path(), "token", one);
    let serving = Serving::start("redis://127.0.0.1:1/", &["--token-file", &path("token")]).await;
    let comes_in = |token: &str| {
        serving.get("/metrics", &format!("Authorization: Bearer {token}\r\n")).contains(" 200 OK")
    };
    assert!(comes_in(one) && !comes_in(other));
    for (text, said, times, holds) in [
        ("short", "were not reloaded", 1, one),
        (&*format!("a act {one}\nb act {one}"), "were not reloaded", 2, one),
        (other, "were reloaded", 1, other),
    ] {
        secret(folder.path(), "token", text);
        serving.program.signal("HUP");
        serving.program.has_said(said, times).await;
        assert!(comes_in(holds), "{text}");
    }
    assert!(!comes_in(one));

    authority.issue(folder.path(), "shown", &["localhost"]);
    let (certificate, key) = (path("shown.pem"), path("shown.key"));
    let args = ["--token-file", &path("token"), "--listen-cert", &certificate, "--listen-key", &key];
    let serving = Serving::start("redis://127.0.0.1:1/", &args).await;
    let before = shown(&serving.at, &authority).await;
    std::fs::write(&certificate, "nothing").expect("it is ours");
    serving.program.signal("HUP");
    serving.program.has_said("were not reloaded", 1).await;
    assert_eq!(shown(&serving.at, &authority).await, before);
    authority.issue(folder.path(), "shown", &["localhost", "other"]);
    serving.program.signal("HUP");
    serving.program.has_said("were reloaded", 1).await;
    assert_ne!(shown(&serving.at, &authority).await, before);
}

fn secret(folder: &std::path::Path, name: &str, text: &str) {
    let file = keylapse_support::write(folder, name, text);
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(file, permissions).expect("a secret");
}

/// The certificate that a client is shown.
async fn shown(at: &str, authority: &Authority) -> Vec<u8> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("PEM")).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("a client").with_root_certificates(roots);
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config.with_no_client_auth()));
    let stream = tokio::net::TcpStream::connect(at).await.expect("a connection");
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = connector.connect(name, stream).await.expect("TLS");
    stream.get_ref().1.peer_certificates().expect("a certificate")[0].to_vec()
}

#[test]
fn what_would_be_open_to_everybody_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let short = keylapse_support::write(folder.path(), "short", "secret");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&short, permissions).expect("a secret");
    let short = short.to_str().expect("UTF-8");
    for (args, words) in [
        (&["--listen", "0.0.0.0:0"][..], "--token-file"),
        (&["--listen", "127.0.0.1:0", "--token-file", short], "32"),
        (&["--listen", "127.0.0.1:0", "--token-file", "/no/such/file"], "/no/such/file"),
        (&["--listen", "127.0.0.1:0", "--allowed-host", "http://a"], "--allowed-host"),
        (&["--listen", "127.0.0.1:0", "--listen-cert", short, "--listen-key", short], "certificate"),
        (&["--listen", "127.0.0.1:0", "--listen-cert", short], "--listen-key"),
        (&["--listen", "7117"], "--listen"),
    ] {
        let ran = run_at("redis://127.0.0.1:1/", &[&["serve"], args].concat(), b"");
        assert!(ran.code == 2 && ran.err.contains(words), "{words}: {ran:?}");
    }
}
