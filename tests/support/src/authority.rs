//! Certificates for tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// A certificate authority (CA).
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The CA's own certificate in PEM.
    pub pem: String,
}

impl Authority {
    /// Creates a CA with this name.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a certificate");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes a certificate for these names to `<stem>.pem`, and its key to `<stem>.key`.
    pub fn issue(&self, folder: &Path, stem: &str, names: &[&str]) -> Files {
        self.issue_with(folder, stem, names, |_| {})
    }

    /// Like [`issue`](Self::issue), with parameters that `change` sets.
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

/// The files of a certificate and its key.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate in PEM.
    pub certificate: PathBuf,
    /// The key in PEM.
    pub key: PathBuf,
}

/// Writes a file. The replacement of an old file is atomic, as in a rotation of secrets.
pub fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (path, new) = (folder.join(name), folder.join("new"));
    fs::write(&new, text).expect("the folder of a test");
    fs::rename(&new, &path).expect("the folder of a test");
    path
}
