//! The parts of the repository's `redis.conf` that tests use.

use std::path::{Path, PathBuf};

const CONF: &str = include_str!("../../../redis.conf");

/// Returns the configuration line that defines the user with the least permissions.
///
/// # Panics
///
/// If `redis.conf` has no such line.
pub fn app_user_line() -> &'static str {
    CONF.lines()
        .find(|line| line.starts_with("user keylapse "))
        .expect("redis.conf defines the user keylapse")
}

/// Returns the TLS settings. In `redis.conf` they are comments, because a server that was built without TLS would not start.
pub fn tls_lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    CONF.lines().filter_map(|line| line.strip_prefix("# tls-").map(|_| &line[2..])?.split_once(' '))
}

/// Returns the TLS settings for a server on this port. Each file is that of the same name in `folder`.
pub fn tls_settings(folder: &Path, port: u16) -> Vec<(String, String)> {
    let here = |(name, value): (&str, &str)| {
        let value = match Path::new(value).file_name() {
            Some(file) if value.starts_with('/') => shown(folder.join(file)),
            _ if name == "tls-port" => port.to_string(),
            _ => value.to_owned(),
        };
        (name.to_owned(), value)
    };
    tls_lines().map(here).collect()
}

fn shown(path: PathBuf) -> String {
    path.into_os_string().into_string().expect("folders of tests must have names in UTF-8")
}
