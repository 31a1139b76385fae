//! Logins, and where a password comes from: what a program says, a variable of the environment, or a file.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::escape::plain;

/// More than a password, a certificate or a key has. A path that leads elsewhere must not fill the memory.
const LARGEST: u64 = 4 << 20;

/// Looks up a variable of the environment.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The variable with the password of servers. Another, which ends in `_FILE`, names a file.
pub const OF_SERVERS: &str = "KEYLAPSE_REDIS_PASSWORD";
/// The variable with the password of sentinels.
pub const OF_SENTINELS: &str = "KEYLAPSE_SENTINEL_PASSWORD";

/// One login. Never shows itself.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// None: the server's default user.
    pub user: Option<Arc<str>>,
    /// None: the server asks for none.
    pub password: Option<Password>,
}

impl Login {
    /// The same with the environment's password, unless there is one already.
    pub(super) fn with_password_of(self, variable: &str, environment: Environment<'_>) -> Result<Self> {
        match self.password {
            Some(_) => Ok(self),
            None => Ok(Self { password: Password::of_environment(variable, environment)?, ..self }),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(…)")
    }
}

/// A password, or how to get it. Never shows it.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// What a program or a URL says.
    Said(Arc<str>),
    /// Read anew for each connection, so that a password that was rotated is picked up without a restart.
    File {
        /// Where the file is.
        path: PathBuf,
        /// Who named the path: a variable or a method.
        named_by: String,
    },
}

impl Password {
    /// The password in a file, which `named_by` has named.
    pub fn file(path: impl Into<PathBuf>, named_by: &str) -> Self {
        Self::File { path: path.into(), named_by: named_by.to_owned() }
    }

    /// What the environment says: in `variable`, or in a file that `variable` with `_FILE` names. An empty one says
    /// nothing.
    fn of_environment(variable: &str, environment: Environment<'_>) -> Result<Option<Self>> {
        let said = |name: &str| environment(name).filter(|value| !value.is_empty());
        let of_file = format!("{variable}_FILE");
        match (said(variable), said(&of_file)) {
            (Some(_), Some(_)) => {
                Err(Error::invalid(format!("{variable} and {of_file} are both set: unset one of them")))
            }
            (None, None) => Ok(None),
            (None, Some(path)) => Ok(Some(Self::file(path, &of_file))),
            (Some(password), None) => match password.into_string() {
                Ok(password) => Ok(Some(Self::Said(password.into()))),
                Err(_) => Err(Error::invalid(format!("{variable} is not UTF-8"))),
            },
        }
    }

    /// The password as it is now.
    pub(super) fn get(&self) -> Result<Arc<str>> {
        let (path, named_by) = match self {
            Self::Said(password) => return Ok(password.clone()),
            Self::File { path, named_by } => (path, named_by),
        };
        let of_file = |problem: &str| {
            let path = plain(&path.to_string_lossy(), 255);
            Error::new(ErrorKind::Auth, format!("the password's file {path} ({named_by}) {problem}"))
        };
        let bytes = read_file(path).map_err(|error| of_file(&format!("cannot be read: {error}")))?;
        let text = String::from_utf8(bytes).map_err(|_| of_file("is not UTF-8"))?;
        let password = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
        if password.is_empty() {
            return Err(of_file("is empty"));
        }
        Ok(password.into())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Said(_) => f.write_str("Password(…)"),
            Self::File { path, .. } => write!(f, "Password(of {path:?})"),
        }
    }
}

/// All of a small file that says how to log in: a password, a certificate, a key.
pub(super) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is over 4 MiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// An environment of these variables alone.
    fn of(variables: &[(&'static str, &'static str)]) -> impl Fn(&str) -> Option<OsString> {
        let variables = variables.to_vec();
        move |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    fn read(variables: &[(&'static str, &'static str)]) -> Result<Option<Password>> {
        Password::of_environment(OF_SERVERS, &of(variables))
    }

    #[test]
    fn the_environment_says_a_password_or_names_its_file() {
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&[(OF_SERVERS, ""), ("KEYLAPSE_REDIS_PASSWORD_FILE", "")]).unwrap(), None);
        assert_eq!(&*read(&[(OF_SERVERS, "hunter2")]).unwrap().unwrap().get().unwrap(), "hunter2");
        assert_eq!(
            read(&[("KEYLAPSE_REDIS_PASSWORD_FILE", "/run/secrets/redis")]).unwrap(),
            Some(Password::file("/run/secrets/redis", "KEYLAPSE_REDIS_PASSWORD_FILE"))
        );
        assert_eq!(read(&[(OF_SENTINELS, "hunter2")]).unwrap(), None);
    }

    #[test]
    fn both_at_once_are_refused() {
        let error = read(&[(OF_SERVERS, "hunter2"), ("KEYLAPSE_REDIS_PASSWORD_FILE", "/f")]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("KEYLAPSE_REDIS_PASSWORD and KEYLAPSE_REDIS_PASSWORD_FILE"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_file_is_read_each_time_and_its_last_line_break_is_not_part_of_the_password() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let password = Password::file(&path, "KEYLAPSE_REDIS_PASSWORD_FILE");
        for (written, meant) in
            [("hunter2", "hunter2"), ("hunter3\n", "hunter3"), ("a\r\n", "a"), (" b \n\n", " b \n")]
        {
            fs::write(&path, written).unwrap();
            assert_eq!(&*password.get().unwrap(), meant);
        }
    }

    #[test]
    fn a_file_that_holds_no_password_is_named_with_its_variable() {
        let folder = tempfile::tempdir().unwrap();
        for (name, written, problem) in
            [("away", None, "cannot be read"), ("empty", Some("\n"), "is empty"), ("odd", Some("\u{0}"), "")]
        {
            let path = folder.path().join(name);
            if let Some(written) = written {
                fs::write(&path, written).unwrap();
            }
            let got = Password::file(&path, "KEYLAPSE_SENTINEL_PASSWORD_FILE").get();
            if problem.is_empty() {
                assert!(got.is_ok());
                continue;
            }
            let error = got.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Auth);
            let text = error.to_string();
            for part in [path.to_str().unwrap(), "KEYLAPSE_SENTINEL_PASSWORD_FILE", problem] {
                assert!(text.contains(part), "{text}");
            }
        }
        fs::write(folder.path().join("binary"), b"hunter2\xff").unwrap();
        let error = Password::file(folder.path().join("binary"), "X").get().unwrap_err().to_string();
        assert!(error.contains("not UTF-8") && !error.contains("hunter2"), "{error}");
    }
}
