//! The hosts that a URL with braces may lead to.

use std::collections::BTreeSet;

use url::{Host, Url};

/// The listed hosts, each with a port if the list has one.
#[derive(Clone, Debug)]
pub(super) struct HostAllowlist(BTreeSet<(String, Option<u16>)>);

impl HostAllowlist {
    /// Reads hosts such as `shop.example`, `shop.example:8443` and `[2606:4700::1111]`.
    pub(super) fn read(hosts: &[String]) -> Result<Self, String> {
        hosts.iter().map(|text| target(text)).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = Host> {
        self.0.iter().filter_map(|(host, _)| Host::parse(host).ok())
    }

    pub(super) fn any(&self, is: impl Fn(&str) -> bool) -> bool {
        self.0.iter().any(|(host, _)| is(host))
    }

    pub(super) fn check(&self, url: &Url) -> Result<(), String> {
        let host = url.host_str().unwrap_or_default();
        let with = |port| self.0.contains(&(host.to_owned(), port));
        if with(url.port_or_known_default()) || url.port().is_none() && with(None) {
            return Ok(());
        }
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Err(format!("the URL leads to {host}{port}, which is not among `hosts`"))
    }
}

fn target(text: &str) -> Result<(String, Option<u16>), String> {
    let refuse = || format!("invalid host {text:?}: write shop.example or shop.example:8443");
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port.parse().map_err(|_| refuse())?)),
        _ => (text, None),
    };
    let host = Host::parse(host).ok().filter(|_| !host.contains('*'));
    Ok((host.ok_or_else(refuse)?.to_string(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads_to(hosts: &str, url: &str) -> bool {
        HostAllowlist::read(&[hosts.to_owned()]).unwrap().check(&Url::parse(url).unwrap()).is_ok()
    }

    #[test]
    fn a_port_is_that_of_the_scheme_or_is_listed() {
        for (host, url, may) in [
            ("shop.example", "https://shop.example/", true),
            ("Shop.Example", "http://shop.example:80/", true),
            ("shop.example", "https://shop.example:8443/", false),
            ("shop.example", "https://www.shop.example/", false),
            ("shop.example", "https://shop.example./", false),
            ("shop.example:8443", "https://shop.example:8443/", true),
            ("shop.example:8443", "https://shop.example/", false),
            ("shop.example:443", "https://shop.example/", true),
            ("shop.example:443", "http://shop.example/", false),
            ("[2606:4700::1111]", "https://[2606:4700:0::1111]/", true),
            ("münchen.example", "https://xn--mnchen-3ya.example/", true),
        ] {
            assert_eq!(leads_to(host, url), may, "{host} {url}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for bad in
            ["", "*.example", "https://shop.example", "shop.example/x", "shop.example:port", "a b", "::1"]
        {
            assert!(HostAllowlist::read(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
