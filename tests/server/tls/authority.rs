//! Certificates, made for one test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// A CA.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub(super) pem: String,
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for these names, into `<stem>.pem`, and its key, into `<stem>.key`.
    pub(super) fn issue(&self, folder: &Path, stem: &str, names: &[&str]) -> Files {
        self.issue_with(folder, stem, names, |_| {})
    }

    pub(super) fn issue_with(
        &self,
        folder: &Path,
        stem: &str,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Files {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, stem);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Files {
            certificate: write(folder, &format!("{stem}.pem"), &certificate.pem()),
            key: write(folder, &format!("{stem}.key"), &key.serialize_pem()),
        }
    }
}

/// A certificate and its key.
#[derive(Clone)]
pub(super) struct Files {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// Replaced in one step, as whoever rotates secrets does.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (path, new) = (folder.join(name), folder.join("new"));
    fs::write(&new, text).unwrap();
    fs::rename(&new, &path).unwrap();
    path
}
