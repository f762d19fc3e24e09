// SPDX-License-Identifier: MIT OR Apache-2.0
//! What counts as one client: an IPv4 address, or the /64 of an IPv6 address, in which a client can choose its address.

use std::net::IpAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Client {
    is_v4: bool,
    bits: u64,
}

impl Client {
    pub fn of(address: IpAddr) -> Client {
        match address.to_canonical() {
            IpAddr::V4(address) => Client {
                is_v4: true,
                bits: address.to_bits().into(),
            },
            IpAddr::V6(address) => Client {
                is_v4: false,
                bits: (address.to_bits() >> 64) as u64,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_client_has_a_whole_64() {
        let of = |text: &str| Client::of(text.parse().expect(text));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_ne!(of("0.0.0.1"), of("0:0:0:1::"));
    }
}
