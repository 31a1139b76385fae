//! Names become addresses here, and only here: what is checked is what is connected to.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Host;

use super::address::{Allowed, is_metadata};

/// A resolver, without what may not be reached. The addresses that it answers are those that are connected to: nobody asks
/// a second time, when the answer may be another.
pub(crate) struct Checked {
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) allowed: Allowed,
}

/// That of the operating system.
#[derive(Debug)]
pub(crate) struct System;

impl Resolve for System {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let (allowed, host) = (self.allowed.clone(), name.as_str().to_owned());
        let resolving = self.resolver.resolve(name);
        Box::pin(async move {
            let found: Vec<SocketAddr> = resolving.await?.collect();
            let kept: Vec<_> = found.iter().copied().filter(|at| allowed.has(at.ip())).collect();
            match (found.first(), kept.is_empty()) {
                (Some(refused), true) => Err(refuse(&host, refused.ip()).into()),
                (None, _) => Err(format!("{host} has no address").into()),
                _ => Ok(Box::new(kept.into_iter()) as Addrs),
            }
        })
    }
}

/// An address in place of a name is asked of no resolver, so it is looked at here.
pub(crate) fn check_literal(host: &Host, allowed: &Allowed) -> Result<(), String> {
    let address: IpAddr = match host {
        Host::Ipv4(address) => (*address).into(),
        Host::Ipv6(address) => (*address).into(),
        Host::Domain(_) => return Ok(()),
    };
    if allowed.has(address) { Ok(()) } else { Err(refuse(&address.to_string(), address)) }
}

fn refuse(host: &str, address: IpAddr) -> String {
    let (is, lists) = if is_metadata(address) {
        ("gives the machines of a cloud their credentials", "lists such an address by itself")
    } else {
        ("is private to this machine or its network", "lists such addresses")
    };
    format!("{host} is {address}, which {is}; `allow` {lists}")
}
