//! Decides which addresses a webhook may call.
//!
//! A payload may name a host. Without this check it could reach services that only this machine can: its own, those of its
//! network, and the metadata service from which cloud machines get credentials. The special-purpose networks are those of
//! the registries of IANA (RFC 6890).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// IPv4 networks that are refused unless they are listed.
const REFUSED_V4: [(Ipv4Addr, u8); 14] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// The globally routed part of IPv6. All other addresses are refused unless they are listed.
const GLOBAL_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Parts of the globally routed IPv6 that are refused: Teredo and other protocols, documentation, 6to4.
const REFUSED_V6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Metadata services, from which cloud machines get credentials and startup scripts. Each is accepted only if it is listed
/// by itself. Some have public addresses, and some are in networks that are listed for other reasons.
const METADATA: [IpAddr; 17] = [
    // Amazon and most others; Amazon's containers.
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    // Azure.
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // Google.
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    // Alibaba.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200)),
    // Oracle.
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    // Tencent.
    IpAddr::V4(Ipv4Addr::new(169, 254, 0, 23)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 10, 10)),
    // Scaleway.
    IpAddr::V4(Ipv4Addr::new(169, 254, 42, 42)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
    // Akamai, and OpenStack.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
];

/// Addresses and networks that a topic may reach in addition to public ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed(Vec<IpNet>);

impl Allowed {
    /// Reads addresses and networks such as `127.0.0.1` and `10.1.0.0/16`.
    pub(crate) fn read<'a>(all: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let read = |text: &str| {
            let alone = || text.parse::<IpAddr>().map(IpNet::from);
            let refuse =
                |_| format!("invalid address {text:?}: write 127.0.0.1, 10.1.0.0/16, ::1 or fd00::/8");
            text.parse::<IpNet>().or_else(|_| alone()).map_err(refuse)
        };
        all.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether a webhook may connect to this address.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if is_metadata(address) {
            return self.0.contains(&IpNet::from(address));
        }
        self.0.iter().any(|net| net.contains(&address)) || is_public(address)
    }
}

pub(super) fn is_metadata(address: IpAddr) -> bool {
    METADATA.contains(&address.to_canonical())
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !REFUSED_V4.iter().any(|(net, length)| in_v4(*net, *length, address)),
        IpAddr::V6(address) => {
            in_v6(GLOBAL_V6, address) && !REFUSED_V6.iter().any(|net| in_v6(*net, address))
        }
    }
}

fn in_v4(net: Ipv4Addr, length: u8, address: Ipv4Addr) -> bool {
    Ipv4Net::new_assert(net, length).contains(&address)
}

fn in_v6((net, length): (Ipv6Addr, u8), address: Ipv6Addr) -> bool {
    Ipv6Net::new_assert(net, length).contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(allowed: &[&str], address: &str) -> bool {
        let allowed = Allowed::read(allowed.iter().copied()).unwrap();
        allowed.has(address.parse().unwrap())
    }

    #[test]
    fn what_only_this_machine_reaches_is_refused() {
        for address in [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.0.192",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "2001:0:1::",
            "2001:db8::1",
            "100::1",
        ] {
            assert!(!has(&[], address), "{address}");
        }
    }

    #[test]
    fn what_the_world_reaches_is_taken() {
        for address in ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"]
        {
            assert!(has(&[], address), "{address}");
        }
    }

    #[test]
    fn what_is_listed_is_taken_and_nothing_beside_it() {
        assert!(has(&["127.0.0.1"], "127.0.0.1"));
        assert!(has(&["127.0.0.1"], "::ffff:127.0.0.1"));
        assert!(!has(&["127.0.0.1"], "127.0.0.2"));
        assert!(has(&["10.1.0.0/16", "fd00::/8"], "10.1.2.3"));
        assert!(has(&["10.1.0.0/16", "fd00::/8"], "fd00::1"));
        assert!(!has(&["10.1.0.0/16"], "10.2.0.1"));
    }

    /// A wide network that is listed must not allow one of these by accident.
    #[test]
    fn metadata_of_a_cloud_is_taken_only_where_it_is_listed_by_itself() {
        for address in [
            "168.63.129.16",
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.0.23",
            "169.254.10.10",
            "169.254.42.42",
            "100.100.100.200",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:100::100:200",
            "fd00:a9fe:a9fe::1",
            "fd00:42::42",
            "fe80::a9fe:a9fe",
        ] {
            assert!(!has(&[], address), "{address}");
            let wide = ["0.0.0.0/0", "::/0", "168.63.129.0/24", "169.254.0.0/16", "fd00::/8", "fe80::/10"];
            assert!(!has(&wide, address), "{address}");
            assert!(has(&[address], address), "{address}");
        }
        assert!(!has(&["0.0.0.0/0"], "::ffff:168.63.129.16"));
        assert!(has(&["168.63.129.16"], "::ffff:168.63.129.16"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in ["localhost", "10.0.0.0/33", "", "10.0.0", "*"] {
            assert!(Allowed::read([bad]).is_err(), "{bad}");
        }
    }
}
