// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks of clients: `192.0.2.0/24`, `2001:db8::/32`, or one address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Bits before an IPv4 address in the IPv6 address that is mapped to it.
const MAPPED: u8 = 96;

/// A set of networks. Looking for an address takes the logarithm of their number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks {
    // Sorted, and none is in another.
    v4: Vec<Ipv4Net>,
    v6: Vec<Ipv6Net>,
}

impl Networks {
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let after = self.v4.partition_point(|net| net.network() <= address);
                self.v4[..after]
                    .last()
                    .is_some_and(|net| net.contains(&address))
            }
            IpAddr::V6(address) => {
                let after = self.v6.partition_point(|net| net.network() <= address);
                self.v6[..after]
                    .last()
                    .is_some_and(|net| net.contains(&address))
            }
        }
    }
}

impl FromIterator<IpNet> for Networks {
    fn from_iter<T: IntoIterator<Item = IpNet>>(networks: T) -> Networks {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match network {
                IpNet::V4(network) => v4.push(network),
                IpNet::V6(network) => v6.push(network),
            }
        }
        Networks {
            v4: Ipv4Net::aggregate(&v4),
            v6: Ipv6Net::aggregate(&v6),
        }
    }
}

/// Reads one network. An IPv4-mapped one, `::ffff:192.0.2.0/120`, becomes the IPv4 network.
///
/// # Errors
///
/// What is wrong, and how to write it.
pub fn parse(text: &str) -> Result<IpNet, String> {
    let wrong =
        || format!("`{text}` is no network: write it as 192.0.2.0/24, 2001:db8::/32, or 192.0.2.7");
    let network = match text.contains('/') {
        true => text.parse::<IpNet>().map_err(|_| wrong())?,
        false => IpNet::from(text.parse::<IpAddr>().map_err(|_| wrong())?),
    };
    if network.trunc() != network {
        let whole = network.trunc();
        return Err(format!(
            "`{text}` has bits of an address behind the network: write {whole}"
        ));
    }
    Ok(canonical(network))
}

fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else {
        return network;
    };
    let mapped: Option<Ipv4Addr> = Ipv6Addr::to_ipv4_mapped(&v6.network());
    match (mapped, v6.prefix_len().checked_sub(MAPPED)) {
        // No more than 32 bits are left.
        (Some(address), Some(bits)) => Ipv4Net::new(address, bits).map_or(network, IpNet::V4),
        _ => network,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn networks(text: &[&str]) -> Networks {
        text.iter().map(|one| parse(one).expect(one)).collect()
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        let both = networks(&["::ffff:192.0.2.0/120", "::ffff:198.51.100.7"]);
        for (address, is_in) in [
            ("192.0.2.9", true),
            ("::ffff:192.0.2.9", true),
            ("198.51.100.7", true),
            ("198.51.100.8", false),
            ("::192.0.2.9", false),
        ] {
            assert_eq!(
                both.contains(address.parse().expect(address)),
                is_in,
                "{address}"
            );
        }
        let all6 = networks(&["::/0"]);
        assert!(all6.contains("2001:db8::1".parse().expect("an address")));
        assert!(!all6.contains("::ffff:192.0.2.9".parse().expect("an address")));
    }

    #[test]
    fn what_is_no_network_says_how_to_write_one() {
        for (text, remedy) in [
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("2001:db8::1/32", "write 2001:db8::/32"),
            ("10.0.0.0/33", "192.0.2.0/24"),
            ("10.0.0", "192.0.2.0/24"),
            ("localhost", "192.0.2.0/24"),
            ("", "192.0.2.0/24"),
            ("fe80::1%eth0", "2001:db8::/32"),
        ] {
            let why = parse(text).expect_err(text);
            assert!(why.contains(remedy), "{text}: {why}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[0-9a-f:./%]{0,24}") {
            let _ = parse(&text);
        }

        /// The search finds what looking at each network would.
        #[test]
        fn a_set_is_the_union(
            pairs in prop::collection::vec((any::<bool>(), any::<u128>(), any::<u8>()), 0..20),
            pick in any::<prop::sample::Index>(),
            noise in any::<u8>(),
        ) {
            let address = |is_v4: bool, bits: u128| match is_v4 {
                true => IpAddr::V4(Ipv4Addr::from(bits as u32)),
                false => IpAddr::V6(Ipv6Addr::from(bits)),
            };
            let all: Vec<IpNet> = pairs.iter().map(|(is_v4, bits, length)| {
                let most = if *is_v4 { 32 } else { 128 };
                let network = IpNet::new(address(*is_v4, *bits), length % (most + 1));
                canonical(network.expect("a length that fits").trunc())
            }).collect();
            let set: Networks = all.iter().copied().collect();
            if !pairs.is_empty() {
                let (is_v4, bits, _) = pairs[pick.index(pairs.len())];
                let asked = address(is_v4, bits ^ u128::from(noise)).to_canonical();
                let is_in = all.iter().any(|network| network.contains(&asked));
                prop_assert_eq!(set.contains(asked), is_in, "{}", asked);
            }
        }
    }
}
