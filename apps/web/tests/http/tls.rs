//! Over TLS.

use std::sync::Arc;
use std::time::Duration;

use keylapse_support::{Authority, Files};
use keylapse_web::{Certificate, ServerLimits, Web};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use crate::http::answer::Answer;
use crate::http::site::{Site, guarded, nowhere, read};

const REQUEST: &[u8] = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

async fn secure(files: &Files) -> Site {
    let certificate = Certificate::read(&files.certificate, &files.key).expect("a certificate");
    let access = guarded().over_tls(true);
    let patience = ServerLimits::default().header_timeout(Duration::from_millis(300));
    Site::patient(Web::new(nowhere(), access.clone()), &access, patience, Some(certificate)).await
}

#[tokio::test]
async fn https_is_answered_and_plain_http_is_not() {
    let (folder, authority) = (tempfile::tempdir().expect("a folder"), Authority::new("tests"));
    let site = secure(&authority.issue(folder.path(), "server", &["localhost"])).await;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("PEM")).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("a client").with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream =
        TlsConnector::from(Arc::new(config)).connect(name, site.connect().await).await.expect("TLS");
    stream.write_all(REQUEST).await.expect("a request");
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer).await;
    assert_eq!(Answer::read(&answer).expect("an answer").status, 200);

    assert!(site.send(REQUEST).await.is_none(), "what is no TLS is not answered");
    // One who never begins is left, as one who never asks.
    assert!(read(site.connect().await).await.is_none());
}

#[tokio::test]
async fn a_certificate_with_the_key_of_another_is_refused_at_once() {
    let (folder, authority) = (tempfile::tempdir().expect("a folder"), Authority::new("tests"));
    let one = authority.issue(folder.path(), "one", &["localhost"]);
    let other = authority.issue(folder.path(), "other", &["localhost"]);
    let empty = keylapse_support::write(folder.path(), "empty.pem", "");
    let gone = folder.path().join("gone.pem");
    for (certificate, key, words) in [
        (&one.certificate, &other.key, "one.pem"),
        (&one.certificate, &one.certificate, "one.pem"),
        (&empty, &one.key, "no certificate"),
        (&gone, &one.key, "gone.pem"),
        (&one.certificate, &gone, "gone.pem"),
    ] {
        let refused = Certificate::read(certificate, key).expect_err("a refusal").to_string();
        assert!(refused.contains(words), "{refused}");
    }
}
