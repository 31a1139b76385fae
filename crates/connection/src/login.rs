//! Logins, with passwords from the program, an environment variable or a file.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::escape::escape_line;

/// The largest accepted file, far larger than any password, certificate or key. It bounds the memory if a path is wrong.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Looks up an environment variable.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The environment variable with the password of servers. The variable with `_FILE` appended names a file instead.
pub const SERVER_PASSWORD_VARIABLE: &str = "KEYLAPSE_REDIS_PASSWORD";
/// The environment variable with the password of sentinels. The variable with `_FILE` appended names a file instead.
pub const SENTINEL_PASSWORD_VARIABLE: &str = "KEYLAPSE_SENTINEL_PASSWORD";

/// A user and a password. `Debug` leaves out both.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The user; `None` for the server's default user.
    pub user: Option<Arc<str>>,
    /// The password; `None` if the server requires none.
    pub password: Option<Password>,
}

impl Login {
    /// Adds the password of the environment, unless the login has one.
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

/// A password, or the file that contains it. `Debug` leaves out the password.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// The password itself, from a program, a URL or the environment.
    Literal(Arc<str>),
    /// A file, which is read again for each connection. A rotated password takes effect without a restart.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The variable or the method that set the path.
        named_by: String,
    },
}

impl Password {
    /// Returns the password in a file. Errors name `named_by`, the variable or the method that set the path.
    pub fn file(path: impl Into<PathBuf>, named_by: &str) -> Self {
        Self::File { path: path.into(), named_by: named_by.to_owned() }
    }

    /// Returns the password in `variable`, or in the file that `variable` with `_FILE` names. An empty variable counts as
    /// unset.
    fn of_environment(variable: &str, environment: Environment<'_>) -> Result<Option<Self>> {
        let value_of = |name: &str| environment(name).filter(|value| !value.is_empty());
        let of_file = format!("{variable}_FILE");
        match (value_of(variable), value_of(&of_file)) {
            (Some(_), Some(_)) => {
                Err(Error::invalid(format!("{variable} and {of_file} are both set: unset one of them")))
            }
            (None, None) => Ok(None),
            (None, Some(path)) => Ok(Some(Self::file(path, &of_file))),
            (Some(password), None) => match password.into_string() {
                Ok(password) => Ok(Some(Self::Literal(password.into()))),
                Err(_) => Err(Error::invalid(format!("{variable} is not UTF-8"))),
            },
        }
    }

    /// Returns the password. Reads a file on each call.
    pub(super) fn get(&self) -> Result<Arc<str>> {
        let (path, named_by) = match self {
            Self::Literal(password) => return Ok(password.clone()),
            Self::File { path, named_by } => (path, named_by),
        };
        let of_file = |problem: &str| {
            let path = escape_line(&path.to_string_lossy(), 255);
            Error::new(ErrorKind::Auth, format!("the password file {path} ({named_by}) {problem}"))
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
            Self::Literal(_) => f.write_str("Password(…)"),
            Self::File { path, .. } => write!(f, "Password(of {path:?})"),
        }
    }
}

/// Reads a file with a password, a certificate or a key.
///
/// # Errors
/// The file cannot be read, or has more than 4 MiB.
pub(super) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is over 4 MiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns an environment with only these variables.
    fn of(variables: &[(&'static str, &'static str)]) -> impl Fn(&str) -> Option<OsString> {
        let variables = variables.to_vec();
        move |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    fn read(variables: &[(&'static str, &'static str)]) -> Result<Option<Password>> {
        Password::of_environment(SERVER_PASSWORD_VARIABLE, &of(variables))
    }

    #[test]
    fn the_environment_says_a_password_or_names_its_file() {
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(
            read(&[(SERVER_PASSWORD_VARIABLE, ""), ("KEYLAPSE_REDIS_PASSWORD_FILE", "")]).unwrap(),
            None
        );
        assert_eq!(
            &*read(&[(SERVER_PASSWORD_VARIABLE, "hunter2")]).unwrap().unwrap().get().unwrap(),
            "hunter2"
        );
        assert_eq!(
            read(&[("KEYLAPSE_REDIS_PASSWORD_FILE", "/run/secrets/redis")]).unwrap(),
            Some(Password::file("/run/secrets/redis", "KEYLAPSE_REDIS_PASSWORD_FILE"))
        );
        assert_eq!(read(&[(SENTINEL_PASSWORD_VARIABLE, "hunter2")]).unwrap(), None);
    }

    #[test]
    fn both_at_once_are_refused() {
        let error = read(&[(SERVER_PASSWORD_VARIABLE, "hunter2"), ("KEYLAPSE_REDIS_PASSWORD_FILE", "/f")])
            .unwrap_err();
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
