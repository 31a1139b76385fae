//! Where a request comes from.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};

use crate::access::Access;

const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-for");

#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The other end of the connection; not known within another program's server.
    from: Option<SocketAddr>,
    /// The client, as a proxy names it that is trusted.
    forwarded: Option<IpAddr>,
}

impl Origin {
    pub(super) fn of(parts: &Parts, access: &Access) -> Self {
        let from = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        let forwarded = access.has_proxy().then(|| last(&parts.headers)).flatten();
        Self { from, forwarded }
    }

    /// For the log.
    pub(super) fn from(&self) -> String {
        self.from.map(|from| from.to_string()).unwrap_or_default()
    }

    pub(super) fn forwarded(&self) -> Option<tracing::field::DisplayValue<IpAddr>> {
        self.forwarded.map(tracing::field::display)
    }

    /// Whose it is: of IPv6 the network, as everybody has as many addresses there as he likes.
    pub(super) fn address(&self) -> Option<IpAddr> {
        let address = self.forwarded.or(self.from.map(|from| from.ip()))?.to_canonical();
        Some(match address {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        })
    }
}

/// The address that the proxy has written itself: what stands before it comes from the client.
fn last(headers: &HeaderMap) -> Option<IpAddr> {
    let line = headers.get_all(FORWARDED).iter().next_back()?.to_str().ok()?;
    line.rsplit(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn origin(lines: &[&str], has_proxy: bool) -> Origin {
        let request = lines.iter().fold(Request::builder(), |request, line| request.header(FORWARDED, *line));
        let mut parts = request.body(()).unwrap().into_parts().0;
        let from: SocketAddr = "10.0.0.1:4711".parse().unwrap();
        parts.extensions.insert(ConnectInfo(from));
        Origin::of(&parts, &Access::to_loopback().behind_proxy(has_proxy))
    }

    #[test]
    fn a_proxy_is_believed_the_address_that_it_wrote_itself() {
        for (lines, has_proxy, address) in [
            (&["192.0.2.7"][..], false, "10.0.0.1"),
            (&["192.0.2.7"], true, "192.0.2.7"),
            (&["1.1.1.1, 192.0.2.7"], true, "192.0.2.7"),
            (&["1.1.1.1", "192.0.2.7"], true, "192.0.2.7"),
            (&["2001:db8:1:2:3:4:5:6"], true, "2001:db8:1:2::"),
            (&["::ffff:192.0.2.7"], true, "192.0.2.7"),
            (&["nobody"], true, "10.0.0.1"),
            (&[], true, "10.0.0.1"),
        ] {
            assert_eq!(origin(lines, has_proxy).address(), Some(address.parse().unwrap()), "{lines:?}");
        }
    }
}
