//! Where servers may be, so that nobody who names one reaches what he is not to reach.
//!
//! Names are no business of this: what is judged is the address that is connected to. Invariant: every address is in one
//! of the places that have names at most, and in the same one however it is written.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::pattern::Network;

/// Where servers may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// This machine.
    Loopback,
    /// Networks that are somebody's own.
    Private,
    /// Whoever is on the same cable, which is where clouds tell machines their secrets; with the addresses where some
    /// do it elsewhere.
    LinkLocal,
    /// All other machines.
    Public,
    /// A network, or one address.
    Network(Network),
}

/// Where clouds tell machines their secrets beside the addresses of the link: AWS and Google over IPv6, Alibaba, Azure,
/// and Oracle.
const METADATA: [IpAddr; 5] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
];

impl Place {
    /// Whether an address lies there. Some lie nowhere: those that mean many machines, or none, or that somebody on the
    /// way takes for others in a manner of his own.
    pub fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if let Self::Network(network) = self {
            return network.contains(address);
        }
        Self::of(address) == Some(self)
    }

    fn of(address: IpAddr) -> Option<Self> {
        let address = leads_to(address);
        let (is_none, is_link_local, is_private) = match address {
            IpAddr::V4(v4) => {
                // Shared between customers of one provider.
                let is_shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
                // For protocols, and for measuring.
                let is_special = matches!(v4.octets(), [192, 0, 0, _] | [198, 18 | 19, ..]);
                let is_none = v4.is_broadcast() || v4.octets()[0] == 0 || v4.octets()[0] >= 240;
                (is_none, v4.is_link_local(), v4.is_private() || is_shared || is_special)
            }
            IpAddr::V6(v6) => {
                let is_none = match v6.segments() {
                    [0, 0, 0, 0, 0, 0, ..] => !v6.is_loopback(),
                    // Translated as a network likes, or through a tunnel.
                    [0x64, 0xff9b, 1, ..] | [0x2001, 0, ..] => true,
                    _ => false,
                };
                // Sites had addresses of their own before these were called unique.
                let is_of_site = v6.segments()[0] & 0xffc0 == 0xfec0;
                (is_none, v6.is_unicast_link_local(), v6.is_unique_local() || is_of_site)
            }
        };
        match () {
            () if is_none || address.is_multicast() => None,
            () if address.is_loopback() => Some(Self::Loopback),
            () if is_link_local || METADATA.contains(&address) => Some(Self::LinkLocal),
            () if is_private => Some(Self::Private),
            () => Some(Self::Public),
        }
    }
}

/// The address of old that one of IPv6 leads to: written as one, translated (NAT64), or through a tunnel (6to4).
fn leads_to(address: IpAddr) -> IpAddr {
    let address = address.to_canonical();
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0, 0, high @ 1..=0xffff, low]
        | [0x2002, high, low, ..] => Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)).into(),
        _ => address,
    }
}

impl std::str::FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "loopback" => Ok(Self::Loopback),
            "private" => Ok(Self::Private),
            "link_local" => Ok(Self::LinkLocal),
            "public" => Ok(Self::Public),
            _ => Network::parse(text).map(Self::Network).ok_or(()),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Loopback => f.write_str("loopback"),
            Self::Private => f.write_str("private"),
            Self::LinkLocal => f.write_str("link_local"),
            Self::Public => f.write_str("public"),
            Self::Network(network) => network.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_in_one_place_at_most_however_it_is_written() {
        let named = [Place::Loopback, Place::Private, Place::LinkLocal, Place::Public];
        let place = |text: &str| {
            let address = text.parse().unwrap();
            let mut places = named.into_iter().filter(|place| place.contains(address));
            let first = places.next();
            assert_eq!(places.next(), None, "{text}");
            first
        };
        for (text, expected) in [
            ("127.0.0.1", Some(Place::Loopback)),
            ("127.255.0.9", Some(Place::Loopback)),
            ("::1", Some(Place::Loopback)),
            ("::ffff:127.0.0.1", Some(Place::Loopback)),
            ("10.1.2.3", Some(Place::Private)),
            ("172.31.0.1", Some(Place::Private)),
            ("192.168.0.1", Some(Place::Private)),
            ("100.64.0.1", Some(Place::Private)),
            ("fd00::1", Some(Place::Private)),
            ("::ffff:10.0.0.1", Some(Place::Private)),
            ("169.254.169.254", Some(Place::LinkLocal)),
            ("::ffff:169.254.169.254", Some(Place::LinkLocal)),
            ("fe80::1", Some(Place::LinkLocal)),
            ("fd00:ec2::254", Some(Place::LinkLocal)),
            ("fd20:ce::254", Some(Place::LinkLocal)),
            ("100.100.100.200", Some(Place::LinkLocal)),
            ("168.63.129.16", Some(Place::LinkLocal)),
            ("::ffff:168.63.129.16", Some(Place::LinkLocal)),
            ("fd00:ec2::253", Some(Place::Private)),
            ("168.63.129.17", Some(Place::Public)),
            ("8.8.8.8", Some(Place::Public)),
            ("172.32.0.1", Some(Place::Public)),
            ("100.128.0.1", Some(Place::Public)),
            ("2606:4700::1", Some(Place::Public)),
            ("64:ff9b::169.254.169.254", Some(Place::LinkLocal)),
            ("64:ff9b::a9fe:a9fe", Some(Place::LinkLocal)),
            ("64:ff9b::100.100.100.200", Some(Place::LinkLocal)),
            ("64:ff9b::127.0.0.1", Some(Place::Loopback)),
            ("64:ff9b::10.0.0.1", Some(Place::Private)),
            ("64:ff9b::8.8.8.8", Some(Place::Public)),
            ("64:ff9b::0.0.0.0", None),
            ("64:ff9b:1::8.8.8.8", None),
            ("2002:a9fe:a9fe::1", Some(Place::LinkLocal)),
            ("2002:7f00:1::", Some(Place::Loopback)),
            ("2002:c0a8:1::5", Some(Place::Private)),
            ("2002:808:808::8", Some(Place::Public)),
            ("::169.254.169.254", Some(Place::LinkLocal)),
            ("::127.0.0.1", Some(Place::Loopback)),
            ("::5", None),
            ("2001:0:4136:e378::1", None),
            ("2001:db8::1", Some(Place::Public)),
            ("192.0.0.192", Some(Place::LinkLocal)),
            ("192.0.0.1", Some(Place::Private)),
            ("198.19.0.1", Some(Place::Private)),
            ("fec0::1", Some(Place::Private)),
            ("0.0.0.0", None),
            ("0.1.2.3", None),
            ("255.255.255.255", None),
            ("240.0.0.1", None),
            ("224.0.0.1", None),
            ("::", None),
            ("ff02::1", None),
        ] {
            assert_eq!(place(text), expected, "{text}");
        }
        assert!("10.0.0.0/8".parse::<Place>().is_ok_and(|place| place.contains("10.9.9.9".parse().unwrap())));
        assert!("somewhere".parse::<Place>().is_err());
        for place in named {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
    }
}
