// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host that a request is for.

use super::refusal::Refusal;
use super::target::has_valid_escapes;

/// Checks `host[:port]` (RFC 3986, 3.2.2) and returns the host in lower case, without the dot that stands for the root of
/// the name system.
pub fn host(named: &str) -> Result<String, Refusal> {
    const WRONG: Refusal = BAD_HOST;
    let (host, port) = match named.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or(WRONG)?;
            address.parse::<std::net::Ipv6Addr>().map_err(|_| WRONG)?;
            (&named[..address.len() + 2], port)
        }
        None => {
            let end = named.find(':').unwrap_or(named.len());
            let host = &named[..end];
            let is_allowed =
                |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte);
            if !host.bytes().all(is_allowed) {
                return Err(WRONG);
            }
            (host, &named[end..])
        }
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_port = port.is_empty() || port.starts_with(':');
    if !is_port || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(WRONG);
    }
    let is_number = digits.is_empty() || digits.parse::<u16>().is_ok();
    if !is_number || !has_valid_escapes(host) {
        return Err(WRONG);
    }
    match host.strip_suffix('.') {
        Some("") => Err(WRONG),
        Some(relative) => Ok(relative.to_ascii_lowercase()),
        None => Ok(host.to_ascii_lowercase()),
    }
}

pub const BAD_HOST: Refusal = Refusal::new(400, "the host is not valid");
