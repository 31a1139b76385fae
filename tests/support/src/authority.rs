//! Certificates for tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// A CA.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub pem: String,
}

impl Authority {
    /// A new one, of this name.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a certificate");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for these names, into `<stem>.pem`, and its key, into `<stem>.key`.
    pub fn issue(&self, folder: &Path, stem: &str, names: &[&str]) -> Files {
        self.issue_with(folder, stem, names, |_| {})
    }

    /// The same with something changed.
    pub fn issue_with(
        &self,
        folder: &Path,
        stem: &str,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Files {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("a certificate");
        params.distinguished_name.push(DnType::CommonName, stem);
        change(&mut params);
        let key = KeyPair::generate().expect("a certificate");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Files {
            certificate: write(folder, &format!("{stem}.pem"), &certificate.pem()),
            key: write(folder, &format!("{stem}.key"), &key.serialize_pem()),
        }
    }
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct Files {
    /// In PEM, as the key.
    pub certificate: PathBuf,
    /// Of this certificate.
    pub key: PathBuf,
}

/// Writes a file, which is replaced in one step, as whoever rotates secrets does.
pub fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (path, new) = (folder.join(name), folder.join("new"));
    fs::write(&new, text).expect("the folder of a test");
    fs::rename(&new, &path).expect("the folder of a test");
    path
}
