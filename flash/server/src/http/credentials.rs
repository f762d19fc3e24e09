// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user and the password of a request (RFC 7617).

use std::fmt;

use base64::prelude::{Engine, BASE64_STANDARD};

/// Bytes of a name and of a password. Longer ones match no user; hashing them would take long.
const MAX_NAME: usize = 255;
const MAX_PASSWORD: usize = 256;

/// An `Authorization` field, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorization(pub String);

#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: String,
    /// In UTF-8 if the client follows the server's `charset`.
    pub password: Vec<u8>,
}

impl fmt::Debug for Authorization {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Authorization(hidden)")
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Credentials({:?}, hidden)", self.user)
    }
}

impl Credentials {
    /// `None`: the field has another scheme, or is not valid.
    pub fn of(field: &Authorization) -> Option<Credentials> {
        let (scheme, encoded) = field.0.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let decoded = BASE64_STANDARD.decode(encoded.trim_matches(' ')).ok()?;
        let colon = memchr::memchr(b':', &decoded)?;
        let (name, password) = (&decoded[..colon], &decoded[colon + 1..]);
        let user = std::str::from_utf8(name).ok()?.to_string();
        let is_short = name.len() <= MAX_NAME && password.len() <= MAX_PASSWORD;
        let has_control = decoded.iter().any(u8::is_ascii_control);
        (is_short && !has_control).then(|| Credentials {
            user,
            password: password.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(field: &str) -> Option<(String, Vec<u8>)> {
        let found = Credentials::of(&Authorization(field.to_string()));
        found.map(|found| (found.user, found.password))
    }

    fn basic(pair: &[u8]) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(pair))
    }

    #[test]
    fn a_user_and_a_password() {
        let pair = |user: &str, password: &str| Some((user.to_string(), password.into()));
        // The examples of RFC 7617.
        let example = pair("Aladdin", "open sesame");
        assert_eq!(of("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), example);
        assert_eq!(of("Basic dGVzdDoxMjPCow=="), pair("test", "123\u{a3}"));
        assert_eq!(of("bASIC   QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), example);
        assert_eq!(of(&basic(b"a:b:c")), pair("a", "b:c"));
        assert_eq!(of(&basic(b":")), pair("", ""));
    }

    #[test]
    fn what_is_not_valid_is_nobodys() {
        let long = "x".repeat(300);
        for field in [
            String::new(),
            "Basic".to_string(),
            "Basic ".to_string(),
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ".to_string(),
            "Basic QWxh!".to_string(),
            "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==".to_string(),
            basic(b"no colon"),
            basic(b"a\n:b"),
            basic(b"a:b\0"),
            basic(b"\xff:b"),
            basic(format!("{long}:b").as_bytes()),
            basic(format!("a:{long}").as_bytes()),
        ] {
            assert_eq!(of(&field), None, "{field}");
        }
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        let field = Authorization(basic(b"ann:secret"));
        let shown = format!("{field:?} {:?}", Credentials::of(&field));
        assert!(shown.contains("ann"), "{shown}");
        assert!(
            !shown.contains("secret") && !shown.contains("YW5u"),
            "{shown}"
        );
    }

    proptest! {
        #[test]
        fn any_field_is_read(scheme in "(Basic|basic|)", rest in any::<String>()) {
            let _ = of(&format!("{scheme} {rest}"));
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Some((user, password)) = of(&basic(&bytes)) {
                let pair = [user.as_bytes(), b":", &password].concat();
                prop_assert_eq!(pair, bytes);
            }
        }
    }
}
