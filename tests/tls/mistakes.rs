//! Each mistake has a message of its own, which says what to do.

use std::fs;
use std::time::{Duration, Instant};

use keylapse::{ErrorKind, Servers, Tls};
use keylapse_support::{APP_PASSWORD, Authority, write};

use super::scene::{Scene, refusal};

/// What is said is of TLS, comes at once, names the mistake and what to set, and no password.
async fn told(servers: Servers, parts: &[&str]) {
    let started = Instant::now();
    let error = refusal(servers).await;
    let said = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Tls, "{said}");
    assert!(error.needs_operator() && started.elapsed() < Duration::from_secs(3), "{said}");
    for part in parts {
        assert!(said.contains(part), "not {part:?}: {said}");
    }
    assert!(!said.contains(APP_PASSWORD) && !said.contains("PRIVATE"), "{said}");
}

#[tokio::test]
async fn a_certificate_of_the_server_that_cannot_be_trusted_is_told_by_its_fault() {
    let Some(scene) = Scene::start().await else { return };
    let folder = scene.folder();
    let stranger = Authority::new("another CA");
    let other_ca = write(folder, "other.pem", &stranger.pem);

    told(
        scene.at("localhost").tls(scene.tls().ca_file(&other_ca)),
        &["no CA that is trusted", "Tls::ca_file"],
    )
    .await;
    told(
        scene.at("127.0.0.1").tls(scene.tls()),
        &["not that of 127.0.0.1", "localhost", "Tls::server_name", "announce-hostname"],
    )
    .await;
    told(
        scene.at("localhost").tls(scene.tls().server_name("redis.example.com")),
        &["not that of redis.example.com", "localhost"],
    )
    .await;
    let by_name = scene.at("127.0.0.1").tls(scene.tls().server_name("localhost"));
    keylapse::Schedule::connect(by_name).await.unwrap();

    let expired = scene.authority.issue_with(folder, "expired", &["localhost"], |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    scene.serve(&expired).await.unwrap();
    told(scene.servers(), &["has expired", "days ago", "renew it"]).await;

    let coming = scene.authority.issue_with(folder, "coming", &["localhost"], |params| {
        params.not_before = rcgen::date_time_ymd(2100, 1, 1);
        params.not_after = rcgen::date_time_ymd(2101, 1, 1);
    });
    scene.serve(&coming).await.unwrap();
    told(scene.servers(), &["not valid yet", "clock"]).await;
}

#[tokio::test]
async fn a_client_certificate_that_the_server_does_not_take_is_told() {
    let Some(scene) = Scene::start().await else { return };
    let folder = scene.folder();
    let without = Tls::new().ca_file(scene.ca_file());
    let with =
        |files: keylapse_support::Files| without.clone().client_certificate(files.certificate, files.key);
    let at = |tls: Tls| scene.at("localhost").tls(tls);

    for protocol in ["TLSv1.3", "TLSv1.2"] {
        scene.set(&[("tls-protocols", protocol)]).await.unwrap();
        told(at(without.clone()), &["asks for a client certificate", "Tls::client_certificate"]).await;
        let strange = Authority::new("another CA").issue(folder, "strange", &["client"]);
        told(at(with(strange)), &["does not know the CA of our client certificate"]).await;
        let expired = scene.authority.issue_with(folder, "old", &["client"], |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        });
        told(at(with(expired)), &["our client certificate has expired"]).await;
    }
}

#[tokio::test]
async fn a_plain_port_and_a_tls_port_are_told_from_each_other() {
    let Some(scene) = Scene::start().await else { return };
    let plain = Servers::one(&format!("localhost:{}", scene.server.port())).password(APP_PASSWORD);
    told(plain.tls(scene.tls()), &["no TLS is spoken at this port", "tls-port"]).await;
    told(scene.at("localhost"), &["TLS is spoken at this port", "rediss://"]).await;
    told(Servers::at(&format!("redis://localhost:{}", scene.port)), &["TLS is spoken", "rediss://"]).await;
}

#[tokio::test]
async fn files_that_are_of_no_use_are_named() {
    let Some(scene) = Scene::start().await else { return };
    let folder = scene.folder();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    fs::write(path("text"), "hello").unwrap();
    let cut_short = fs::read_to_string(scene.ca_file()).unwrap().replace("-----END", "----");
    fs::write(path("half.pem"), cut_short).unwrap();
    fs::write(path("odd.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let other = scene.authority.issue(folder, "other", &["client"]);
    let (certificate, key) = (&scene.client.certificate, &scene.client.key);

    let ca = |name: &str| scene.tls().ca_file(path(name));
    let client = |certificate: &str, key: &str| scene.tls().client_certificate(path(certificate), path(key));
    for (tls, named, problem) in [
        (ca("away"), "away", "CA file"),
        (ca("away"), "away", "cannot be read"),
        (ca("text"), "text", "holds no certificate"),
        (ca("half.pem"), "half.pem", "malformed"),
        (ca("odd.pem"), "odd.pem", "malformed"),
        (client("away", "client.key"), "away", "client certificate"),
        (client("text", "client.key"), "text", "holds no certificate"),
        (client("odd.pem", "client.key"), "odd.pem", "cannot be used"),
        (client("client.pem", "away"), "away", "private key"),
        (client("client.pem", "text"), "text", "malformed"),
        (client("client.pem", "client.pem"), "client.pem", "malformed"),
        (scene.tls().client_certificate(certificate, &other.key), "other.key", "replaced together"),
        (scene.tls().client_certificate(&other.certificate, key), "client.key", "replaced together"),
    ] {
        told(scene.at("localhost").tls(tls), &[&path(named), problem]).await;
    }
}

/// It is refused before anybody is asked.
#[tokio::test]
async fn a_name_that_no_server_can_have_is_refused() {
    let servers = Servers::one("h").tls(Tls::new().server_name("no name"));
    let error = refusal(servers).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("server_name"), "{error}");
}
