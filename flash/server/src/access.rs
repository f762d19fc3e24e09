// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a request has to pass before anything is looked for: the client's network, the user's password, and the
//! method.

pub mod check;
pub mod client;
pub mod hashes;
pub mod limits;
pub mod methods;
pub mod networks;
pub mod passwords;
pub mod remembered;
pub mod users;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use methods::Methods;
use networks::Networks;
use users::UserFile;

use crate::http::response::Head;

/// Who may do what below a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// `None`: every network.
    pub allow: Option<Networks>,
    /// Goes before `allow`.
    pub deny: Networks,
    /// `None`: all that files, or the upstream, have.
    pub methods: Option<Methods>,
}

impl Access {
    /// A client without an address, as at a Unix socket, is in no network.
    pub fn admits(&self, peer: Option<IpAddr>) -> bool {
        let is_in = |networks: &Networks| peer.is_some_and(|peer| networks.contains(peer));
        let is_allowed = self.allow.as_ref().is_none_or(is_in);
        is_allowed && !is_in(&self.deny)
    }
}

/// Asks for a password, before the file of users is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthSettings {
    /// What clients show who they ask for a password. It has no quotes and no backslash.
    pub realm: String,
    pub file: PathBuf,
}

/// Asks for the password of a user.
pub struct Auth {
    pub realm: String,
    pub file: Arc<UserFile>,
}

impl Auth {
    /// Says what the client has to prove (RFC 7617, 2).
    pub fn challenge(&self, head: &mut Head) {
        let realm = &self.realm;
        let basic = format_args!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
        head.field("WWW-Authenticate", basic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(text: &[&str]) -> Networks {
        let parsed = text.iter().map(|one| networks::parse(one).expect(one));
        parsed.collect()
    }

    #[test]
    fn a_network_that_is_denied_is_so_although_it_is_allowed() {
        let access = |allow: Option<&[&str]>, deny: &[&str]| Access {
            allow: allow.map(networks),
            deny: networks(deny),
            ..Access::default()
        };
        let peer = |text: &str| Some(text.parse().expect(text));
        let lists = access(Some(&["10.0.0.0/8", "2001:db8::/32"]), &["10.9.0.0/16"]);
        for (address, is_in) in [
            ("10.1.2.3", true),
            ("10.9.2.3", false),
            ("11.0.0.1", false),
            ("2001:db8::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(lists.admits(peer(address)), is_in, "{address}");
        }
        assert!(!lists.admits(None));
        assert!(access(None, &["10.0.0.0/8"]).admits(peer("11.0.0.1")));
        assert!(!access(Some(&[]), &[]).admits(peer("11.0.0.1")));
        assert!(Access::default().admits(None));
    }
}
