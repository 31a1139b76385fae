//! Whole lives of timers over TLS.

use std::process::Command;
use std::time::Duration;

use keylapse::{Client, Done, Lapse, Listener, Schedule, Topic};
use keylapse_support::{APP_USER, Server, eventually};

use tokio::net::TcpStream;

use super::scene::Scene;
use crate::support::{PATIENCE, Running, reporting, show_log};

fn topic() -> Topic<String> {
    Topic::new("app:tls:{id}").unwrap()
}

/// Arms a timer, hears it, and leaves both ends connected.
async fn live(scene: &Scene) -> (Schedule, Running) {
    let client = Client::try_from(scene.servers()).unwrap();
    let (handler, mut reports) = reporting(|lapse: Lapse<String>| (lapse.payload().clone(), Ok(Done)));
    let running = Running::start(Listener::builder(client.clone()).on(topic(), handler));
    let schedule = Schedule::connect(client).await.unwrap();
    let _ = schedule.arm(&topic(), ["1"], Duration::from_millis(20), &"paid".to_owned()).await.unwrap();
    assert_eq!(reports.next().await, "paid");
    (schedule, running)
}

/// The ports at which the library's connections have come in, one for each.
async fn ports(server: &Server) -> Vec<u16> {
    let mut connection = server.conn().await;
    let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await.unwrap();
    let ours = list.lines().filter(|line| line.contains(&format!(" user={APP_USER} ")));
    let port =
        |line: &str| line.split(' ').find_map(|word| word.strip_prefix("laddr=127.0.0.1:")?.parse().ok());
    ours.map(|line| port(line).unwrap()).collect()
}

/// Waits for this many connections, and fails if one of them is plain.
async fn until_all_are_over_tls(scene: &Scene, count: usize) {
    eventually(PATIENCE, "the connections", async || {
        let ports = ports(&scene.server).await;
        assert!(ports.iter().all(|port| *port == scene.port), "{ports:?}");
        ports.len() >= count
    })
    .await;
}

#[tokio::test]
async fn a_producer_and_a_listener_do_all_that_they_do_over_tls() {
    show_log();
    let Some(scene) = Scene::start().await else { return };
    let (_schedule, running) = live(&scene).await;
    running.until_anchored().await;
    until_all_are_over_tls(&scene, 3).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_subscription_in_resp2_is_over_tls_too() {
    show_log();
    let without_hello = Server::builder().config("rename-command", "HELLO \"\"");
    let Some(scene) = Scene::of(&without_hello).await else { return };
    let (_schedule, running) = live(&scene).await;
    until_all_are_over_tls(&scene, 4).await;
    running.stop().await.unwrap();
}

/// A tunnel, say: the certificate is still that of the host that was named.
#[tokio::test]
async fn over_streams_of_the_application_tls_is_spoken_too() {
    let Some(scene) = Scene::start().await else { return };
    let address = ("127.0.0.1", scene.port);
    let client = Client::try_from(scene.servers()).unwrap().connect_with(move || TcpStream::connect(address));
    let _schedule = Schedule::connect(client).await.unwrap();
    until_all_are_over_tls(&scene, 1).await;

    let strange = Client::try_from(scene.at("redis.example.com").tls(scene.tls())).unwrap();
    let error =
        Schedule::connect(strange.connect_with(move || TcpStream::connect(address))).await.unwrap_err();
    assert!(error.to_string().contains("not that of redis.example.com"), "{error}");
}

const URL: &str = "KEYLAPSE_TLS_URL";

/// Not a test of its own: what a program does that has nothing but a URL and its environment.
#[tokio::test]
async fn connect_if_told_to() {
    if let Ok(url) = std::env::var(URL) {
        let schedule = Schedule::connect(url).await.unwrap();
        let _ = schedule.arm(&topic(), ["url"], Duration::from_secs(60), &"x".to_owned()).await.unwrap();
    }
}

#[tokio::test]
async fn a_program_that_takes_a_url_alone_is_told_of_its_ca_and_password_by_the_environment() {
    let Some(scene) = Scene::start().await else { return };
    scene.set(&[("tls-auth-clients", "no")]).await.unwrap();
    let password = keylapse_support::write(scene.folder(), "password", "change-me\n");
    let mut program = Command::new(std::env::current_exe().unwrap());
    program
        .args(["--exact", "lives::connect_if_told_to", "--nocapture"])
        .env(URL, format!("rediss://{APP_USER}@localhost:{}/", scene.port));
    let mut run = move |variables: &[(&str, &std::path::Path)]| {
        let output = program.envs(variables.iter().copied()).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    };
    let ca_file = scene.ca_file();
    let said = run(&[("KEYLAPSE_REDIS_PASSWORD_FILE", &password)]).unwrap_err();
    assert!(said.contains("no CA that is trusted") || said.contains("no CA certificate"), "{said}");
    run(&[("SSL_CERT_FILE", &ca_file)]).unwrap();
    let said = run(&[("KEYLAPSE_REDIS_PASSWORD", &password)]).unwrap_err();
    assert!(said.contains("are both set"), "{said}");
    let connection = scene.server.cmd(&["EXISTS", "keylapse:{app.tls/0}:due"]).await;
    assert_eq!(connection, redis::Value::Int(1));
}
