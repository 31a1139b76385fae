//! The host names that requests may use for this server.

use crate::access::AccessError;

/// Host names, each with a port or for all ports.
#[derive(Clone, Debug)]
pub(super) struct AllowedHosts(Vec<(String, Option<u16>)>);

impl AllowedHosts {
    pub(super) fn loopback() -> Self {
        Self(["localhost", "127.0.0.1", "[::1]"].map(|name| (name.to_owned(), None)).to_vec())
    }

    pub(super) fn add(&mut self, name: &str) -> Result<(), AccessError> {
        let no_name = || {
            AccessError(format!("invalid host {name:?}: write a name or an address, with or without a port"))
        };
        let read = split(name).ok_or_else(no_name)?;
        self.0.push(read);
        Ok(())
    }

    pub(super) fn has(&self, said: &str) -> bool {
        let Some((name, port)) = split(said) else { return false };
        self.0.iter().any(|(host, of)| *host == name && (of.is_none() || *of == port))
    }
}

/// Splits a host into its name, in lower case, and its port.
fn split(text: &str) -> Option<(String, Option<u16>)> {
    let (name, port) = match text.rsplit_once(':') {
        // The last colon of an IPv6 address may be inside its brackets.
        Some((name, port)) if !port.ends_with(']') => (name, Some(port.parse().ok()?)),
        _ => (text, None),
    };
    let is_bracketed = name.starts_with('[') && name.ends_with(']');
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let is_address =
        is_bracketed && name.bytes().all(|byte| byte.is_ascii_hexdigit() || b"[]:.".contains(&byte));
    (is_name || is_address).then(|| (name.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_called_by_its_names_alone() {
        let mut hosts = AllowedHosts::loopback();
        hosts.add("Timers.example.com").unwrap();
        hosts.add("10.0.0.7:8080").unwrap();
        for good in [
            "localhost",
            "localhost:80",
            "127.0.0.1:8080",
            "[::1]:8080",
            "[::1]",
            "timers.EXAMPLE.com:443",
            "10.0.0.7:8080",
        ] {
            assert!(hosts.has(good), "{good}");
        }
        for bad in [
            "",
            "evil.com",
            "localhost.evil.com",
            "localhost:80:80",
            "10.0.0.7",
            "10.0.0.7:81",
            "::1",
            "[::2]",
            "localhost:x",
            "timers.example.com.",
            "a@localhost",
        ] {
            assert!(!hosts.has(bad), "{bad}");
        }
        for bad in ["", "http://x", "a b", "x:99999", "*"] {
            assert!(hosts.add(bad).is_err(), "{bad}");
        }
    }
}
