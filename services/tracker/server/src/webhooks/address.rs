//! Which addresses a webhook may reach: those of the public network, and those that the operator allows. Everything that is not known to be public is
//! inside, so that a range that this list forgets is closed.

use footplate_types::Invalid;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Blocks of addresses inside that webhooks may reach all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedInside(Vec<IpNet>);

impl AllowedInside {
    /// Reads blocks separated by commas, such as `10.1.0.0/16, fd00::/8`; nothing allows nothing.
    ///
    /// # Errors
    /// What is no block of addresses.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refused = |part: &str| Invalid::new("webhooks.allow-inside", part, "blocks separated by commas, such as 10.1.0.0/16, fd00::/8");
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let blocks = parts.map(|part| part.parse::<IpNet>().map_err(|_| refused(part)));
        blocks.collect::<Result<_, _>>().map(Self)
    }

    /// Why an address is not to be reached; `None` for one that is.
    pub(crate) fn denies(&self, address: IpAddr) -> Option<&'static str> {
        let address = address.to_canonical();
        if self.0.iter().any(|block| block.contains(&address)) {
            return None;
        }
        match address {
            IpAddr::V4(address) => inside_v4(address),
            // Behind a translator the address that counts is the one inside; the operator allows it in its own form.
            IpAddr::V6(address) => match embedded(address) {
                Some(inner) => self.denies(IpAddr::V4(inner)),
                None => inside_v6(address),
            },
        }
    }
}

/// The IPv4 address that a translator (RFC 6052's well-known prefix) would take a packet to.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bytes = address.octets();
    let is_translated = bytes[..12] == [0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0];
    is_translated.then(|| Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]))
}

fn inside_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [0, ..] => Some("unspecified"),
        [127, ..] => Some("loopback"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some("private"),
        [100, 64..=127, ..] => Some("shared by a provider's customers"),
        [169, 254, ..] => Some("link-local"),
        [192, 0, 0, _] | [192, 88, 99, _] => Some("reserved for protocols"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Some("reserved for documents"),
        [198, 18..=19, ..] => Some("reserved for measurements"),
        [224..=239, ..] => Some("multicast"),
        [240..=255, ..] => Some("reserved"),
        _ => None,
    }
}

fn inside_v6(address: Ipv6Addr) -> Option<&'static str> {
    let parts = address.segments();
    match parts {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("loopback"),
        [0xfe80..=0xfebf, ..] => Some("link-local"),
        [0xfc00..=0xfdff, ..] => Some("private"),
        [0xff00..=0xffff, ..] => Some("multicast"),
        // Tunnels (Teredo and 6to4) hold an address of which only the tunnel's end knows where it leads.
        [0x2001, 0..=0x01ff, ..] | [0x2002, ..] => Some("reserved for protocols"),
        [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => Some("reserved for documents"),
        [0x2000..=0x3fff, ..] => None,
        _ => Some("reserved"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn denies(allowed: &str, address: &str) -> Option<&'static str> {
        AllowedInside::parse(allowed).unwrap().denies(address.parse().unwrap())
    }

    #[test]
    fn every_kind_of_address_inside_is_denied_in_every_form() {
        for (address, why) in [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("10.0.0.1", "private"),
            ("100.64.0.1", "shared by a provider's customers"),
            ("100.127.255.255", "shared by a provider's customers"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("169.254.169.254", "link-local"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.192", "reserved for protocols"),
            ("192.0.2.1", "reserved for documents"),
            ("192.88.99.1", "reserved for protocols"),
            ("192.168.1.1", "private"),
            ("198.18.0.1", "reserved for measurements"),
            ("198.51.100.7", "reserved for documents"),
            ("203.0.113.7", "reserved for documents"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::7f00:1", "reserved"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:169.254.169.254", "link-local"),
            ("64:ff9b::10.0.0.1", "private"),
            ("64:ff9b::a9fe:a9fe", "link-local"),
            ("64:ff9b:1::1", "reserved"),
            ("100::1", "reserved"),
            ("2001::1", "reserved for protocols"),
            ("2001:db8::1", "reserved for documents"),
            ("2002:7f00:1::1", "reserved for protocols"),
            ("3fff::1", "reserved for documents"),
            ("fc00::1", "private"),
            ("fd00:ec2::254", "private"),
            ("fe80::1", "link-local"),
            ("fec0::1", "reserved"),
            ("ff02::1", "multicast"),
        ] {
            assert_eq!(denies("", address), Some(why), "{address}");
        }
        let public =
            ["1.1.1.1", "9.255.255.255", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "192.167.0.1", "223.255.255.255"];
        let public_six = ["2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "::ffff:1.1.1.1", "64:ff9b::101:101"];
        for address in public.iter().chain(&public_six) {
            assert_eq!(denies("", address), None, "{address}");
        }
    }

    #[test]
    fn what_the_operator_allows_is_reached_and_nothing_beside_it() {
        let allowed = "10.1.0.0/16, ::1/128,127.0.0.0/8";
        for address in ["10.1.2.3", "::1", "127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::10.1.2.3"] {
            assert_eq!(denies(allowed, address), None, "{address}");
        }
        for address in ["10.2.0.1", "fd00::1", "169.254.169.254", "::ffff:10.2.0.1"] {
            assert!(denies(allowed, address).is_some(), "{address}");
        }
        for wrong in ["10.1.0.0", "10.0.0.0/33", "localhost/8", "10.0.0.0/8;::1/128"] {
            assert_eq!(AllowedInside::parse(wrong).unwrap_err().field, "webhooks.allow-inside", "{wrong}");
        }
    }

    proptest! {
        /// The standard library's own words for what is inside, as far as it has them, are denied here; and the mapped form says the same.
        #[test]
        fn what_the_standard_library_knows_to_be_inside_is_denied(bits in any::<u32>()) {
            let four = Ipv4Addr::from(bits);
            let known = four.is_private() || four.is_loopback() || four.is_link_local() || four.is_broadcast() || four.is_documentation()
                || four.is_multicast() || four.is_unspecified();
            let none = AllowedInside::default();
            let denied = none.denies(IpAddr::V4(four));
            prop_assert!(!known || denied.is_some(), "{}", four);
            prop_assert_eq!(none.denies(IpAddr::V6(four.to_ipv6_mapped())), denied);
        }

        /// The same in the blocks that a uniform draw hardly meets.
        #[test]
        fn whole_blocks_are_denied(rest in any::<u32>(), block in prop::sample::select(vec![
            ("10.0.0.0", 8), ("127.0.0.0", 8), ("169.254.0.0", 16), ("172.16.0.0", 12), ("192.168.0.0", 16), ("100.64.0.0", 10),
        ])) {
            let (base, length) = block;
            let base = u32::from(base.parse::<Ipv4Addr>().unwrap());
            let address = Ipv4Addr::from(base | (rest & (u32::MAX >> length)));
            prop_assert!(AllowedInside::default().denies(IpAddr::V4(address)).is_some(), "{}", address);
        }

        #[test]
        fn only_global_addresses_of_version_six_are_reached(bits in any::<u128>()) {
            let six = Ipv6Addr::from(bits);
            let none = AllowedInside::default();
            if none.denies(IpAddr::V6(six)).is_none() {
                let is_translated = six.to_ipv4_mapped().is_some() || embedded(six).is_some();
                prop_assert!(is_translated || bits >> 125 == 1, "{}", six);
            }
        }
    }
}
