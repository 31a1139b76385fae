//! Secrets, which are read from files or the environment, and never printed.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The source of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretPlace {
    File(PathBuf),
    Env(String),
}

/// A signing key of Standard Webhooks: 24 to 64 bytes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(Vec<u8>);

impl Secret {
    /// Reads a key in base64, with or without the prefix `whsec_`.
    pub(crate) fn read(place: &SecretPlace) -> Result<Self, String> {
        Self::parse(&place.read()?).map_err(|why| format!("{place}: {why}"))
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let key = text.strip_prefix("whsec_").unwrap_or(text);
        let advice = "a secret is `whsec_` and 24 to 64 random bytes in base64, as `openssl rand -base64 32` makes them";
        let key = STANDARD.decode(key).map_err(|_| advice.to_owned())?;
        match key.len() {
            24..=64 => Ok(Self(key)),
            other => Err(format!("the secret has {other} bytes: {advice}")),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl SecretPlace {
    /// Reads the secret, without surrounding white space.
    pub(crate) fn read(&self) -> Result<String, String> {
        let text = match self {
            Self::File(path) => read_secret_file(path)?,
            Self::Env(name) => {
                std::env::var(name).map_err(|_| format!("the environment variable {name} is not set"))?
            }
        };
        Ok(text.trim().to_owned())
    }
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Env(name) => write!(f, "${name}"),
        }
    }
}

/// Reads a file that holds a secret, such as a token.
///
/// # Errors
/// When the file cannot be read, or every user of this machine can access it. The message names the file and the remedy.
pub fn read_secret_file(path: &Path) -> Result<String, String> {
    check_mode(path)?;
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Refuses a file that every user of this machine can access.
fn check_mode(path: &Path) -> Result<(), String> {
    let shown = path.display();
    match everybody_reads(path).map_err(|error| format!("{shown}: {error}"))? {
        true => Err(format!("{shown}: every user of this machine can read it: run chmod o= {shown}")),
        false => Ok(()),
    }
}

#[cfg(unix)]
pub(crate) fn everybody_reads(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::metadata(path)?.permissions().mode() & 0o007 != 0)
}

#[cfg(not(unix))]
pub(crate) fn everybody_reads(_: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_base64_of_enough_bytes() {
        assert!(Secret::parse("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").is_ok());
        assert!(Secret::parse("C2FVsBQIhrscChlQIMV+b5sSYspob7oD").is_ok());
        for bad in ["", "whsec_", "hunter2", "whsec_aHVudGVyMg==", "whsec_C2FV sBQIhrscChlQIMV+b5sSYspob7oD"]
        {
            let error = Secret::parse(bad).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn it_is_not_shown() {
        let secret = Secret::parse("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }
}
