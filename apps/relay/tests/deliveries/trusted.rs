//! Receivers over TLS, with certificates that are right or wrong.

use std::sync::Arc;

use keylapse_support::Authority;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::rig::{SECRET, text};
use crate::{Receiver, Rig, Then};

/// With a certificate of this name.
async fn receiver(authority: &Authority, name: &str) -> Receiver {
    let folder = tempfile::tempdir().unwrap();
    let files = authority.issue(folder.path(), "receiver", &[name]);
    let certificates =
        CertificateDer::pem_file_iter(files.certificate).unwrap().collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(files.key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(certificates, key).unwrap();
    Receiver::secured(TlsAcceptor::from(Arc::new(config)), |_, _| Then::status(200)).await
}

/// That trusts this authority, if it is named.
async fn rig(receiver: &Receiver, trusted: Option<&Authority>) -> Rig {
    let ca = if trusted.is_some() { "ca-file = \"ca\"" } else { "" };
    let url = format!("https://localhost:{}/", receiver.port());
    let webhook = format!("allow-addresses = [\"127.0.0.1\", \"::1\"]\n{ca}");
    let text = text("pattern = \"order:{id}\"", &url, "max-attempts = 1", &webhook);
    let pem = trusted.map_or_else(String::new, |authority| authority.pem.clone());
    Rig::with_secrets(&text, &[("secret", SECRET), ("ca", &pem)]).await
}

#[tokio::test]
async fn one_that_shows_a_certificate_of_its_name_is_called() {
    let authority = Authority::new("the CA of this test");
    let receiver = receiver(&authority, "localhost").await;
    let rig = rig(&receiver, Some(&authority)).await;
    rig.arm("1", "1").await;
    receiver.calls(1).await;
    rig.none_left().await;
}

#[tokio::test]
async fn one_that_shows_another_certificate_is_told_nothing() {
    let (ours, others) = (Authority::new("the CA of this test"), Authority::new("another CA"));
    for (authority, name, trusted, why) in [
        (&ours, "shop.example", Some(&ours), "not valid for name"),
        (&others, "localhost", Some(&ours), "certificate"),
        (&ours, "localhost", None, "UnknownIssuer"),
    ] {
        let receiver = receiver(authority, name).await;
        let rig = rig(&receiver, trusted).await;
        rig.arm("1", "1").await;
        let said = format!("{:?}", rig.letters(1).await);
        assert!(said.contains("cannot be reached") && said.contains(why), "{why}: {said}");
        assert_eq!(receiver.count(), 0);
    }
}
