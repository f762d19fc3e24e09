// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where clients connect.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{bail, Error, Result};

/// Connections that wait to be accepted; the kernel's own limit is `net.core.somaxconn`.
pub const BACKLOG: i32 = 4096;

/// What stands before the name of a Unix socket.
const UNIX: &str = "unix:";
/// What stands before the name of sockets that systemd has opened.
const PASSED: &str = "systemd:";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    Inet(SocketAddr),
    /// The name of a socket in a file system.
    Unix(PathBuf),
    /// Sockets that systemd has opened and passed on, by their `FileDescriptorName=`.
    Passed(String),
}

impl Address {
    /// Port 0 is a new port each time.
    pub fn is_new_each_time(&self) -> bool {
        self.port() == Some(0)
    }

    pub fn port(&self) -> Option<u16> {
        match self {
            Address::Inet(address) => Some(address.port()),
            Address::Unix(_) | Address::Passed(_) => None,
        }
    }

    /// With a relative path that begins at a directory.
    pub fn below(&self, directory: &Path) -> Address {
        match self {
            Address::Unix(path) => Address::Unix(directory.join(path)),
            other => other.clone(),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Inet(address)
    }
}

impl From<([u8; 4], u16)> for Address {
    fn from(address: ([u8; 4], u16)) -> Address {
        Address::Inet(address.into())
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address> {
        if let Some(path) = text.strip_prefix(UNIX) {
            if path.is_empty() || path.contains('\0') {
                bail!("`{text}` names no socket: write it as {UNIX}/run/flash/http.sock");
            }
            return Ok(Address::Unix(PathBuf::from(path)));
        }
        if let Some(name) = text.strip_prefix(PASSED) {
            // As systemd.socket(5) allows it.
            let is_fine = |byte: u8| byte.is_ascii_graphic() && byte != b':';
            if name.is_empty() || name.len() > 255 || !name.bytes().all(is_fine) {
                bail!(
                    "`{text}` names no socket: write `{PASSED}` and what FileDescriptorName= says"
                );
            }
            return Ok(Address::Passed(name.to_string()));
        }
        match text.parse() {
            Ok(address) => Ok(Address::Inet(address)),
            Err(_) => bail!(
                "`{text}` is no address with a port: write it as 127.0.0.1:8080 or [::1]:8080, or \
                 {UNIX}/run/flash/http.sock, or `{PASSED}` and the name of a socket of systemd"
            ),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Inet(address) => address.fmt(out),
            Address::Unix(path) => write!(out, "{UNIX}{}", path.display()),
            Address::Passed(name) => write!(out, "{PASSED}{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_read() {
        let read = |text: &str| text.parse::<Address>().map_err(|error| error.to_string());
        assert_eq!(read("127.0.0.1:80"), Ok(([127, 0, 0, 1], 80).into()));
        assert_eq!(read("unix:/a b"), Ok(Address::Unix("/a b".into())));
        assert_eq!(read("systemd:web"), Ok(Address::Passed("web".to_string())));
        for text in [
            "",
            "80",
            "localhost:80",
            "unix:",
            "unix:\0",
            "systemd:",
            "systemd:a:b",
            "systemd:a b",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_the_same(text in "(systemd:|unix:)?[ -~]{0,20}") {
            if let Ok(address) = text.parse::<Address>() {
                prop_assert_eq!(address.to_string().parse::<Address>().expect("it is one"), address);
            }
        }
    }
}
