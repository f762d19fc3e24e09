// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hashes of passwords: bcrypt, and the SHA-256 and SHA-512 of `crypt(3)`.
//!
//! Checking a password takes as long as the hash was made to take, so it is no loop's work.

use std::ops::RangeInclusive;

use bcrypt::HashParts;
use sha_crypt::{PasswordVerifier, ShaCrypt};

/// Beyond these a check would take longer than about a second.
const BCRYPT_COSTS: RangeInclusive<u32> = 4..=14;
const SHA_ROUNDS: RangeInclusive<u32> = 1_000..=1_000_000;
const MAX_SALT: usize = 16;

#[derive(Clone, PartialEq, Eq)]
pub enum Hash {
    Bcrypt(String),
    Sha(String),
}

impl Hash {
    /// # Errors
    ///
    /// What is wrong with it, and what to do. The error does not contain the text, which may be a password.
    pub fn parse(text: &str) -> Result<Hash, String> {
        let kind = text.split('$').nth(1).unwrap_or_default();
        match kind {
            "2a" | "2b" | "2y" => bcrypt(text),
            "5" => sha(text, 43),
            "6" => sha(text, 86),
            _ if text.starts_with("$apr1$") || text.starts_with("$1$") => {
                Err(again("is MD5, which is broken"))
            }
            _ if text.starts_with("{SHA}") => Err(again("is SHA-1 without a salt")),
            _ if text.starts_with('$') => Err(again("is of a kind that is not known here")),
            _ => Err(again("is plain text, or the DES of old systems")),
        }
    }

    /// Takes milliseconds or more. The results are compared in constant time.
    pub fn is_of(&self, password: &[u8]) -> bool {
        match self {
            Hash::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Hash::Sha(hash) => ShaCrypt::default()
                .verify_password(password, hash.as_str())
                .is_ok(),
        }
    }
}

fn again(what: &str) -> String {
    format!(
        "the password {what}: make it again with `htpasswd -B FILE USER` (bcrypt) or `openssl passwd -6` (SHA-512)"
    )
}

fn bcrypt(text: &str) -> Result<Hash, String> {
    let parts = text.parse::<HashParts>();
    let cost = parts
        .map_err(|_| again("is no whole bcrypt hash"))?
        .get_cost();
    match BCRYPT_COSTS.contains(&cost) {
        true => Ok(Hash::Bcrypt(text.to_string())),
        false => Err(again(&format!(
            "has a bcrypt cost of {cost}, and only {} to {} are taken",
            BCRYPT_COSTS.start(),
            BCRYPT_COSTS.end()
        ))),
    }
}

/// `$5$salt$hash` or `$5$rounds=N$salt$hash`.
fn sha(text: &str, length: usize) -> Result<Hash, String> {
    let mut fields: Vec<&str> = text.split('$').skip(2).collect();
    if let Some(rounds) = fields
        .first()
        .and_then(|field| field.strip_prefix("rounds="))
    {
        let taken = rounds
            .parse()
            .ok()
            .filter(|rounds| SHA_ROUNDS.contains(rounds));
        if taken.is_none() {
            return Err(again(&format!(
                "has a number of rounds that is not from {} to {}",
                SHA_ROUNDS.start(),
                SHA_ROUNDS.end()
            )));
        }
        fields.remove(0);
    }
    let is_coded = |text: &str| {
        let mut bytes = text.bytes();
        bytes.all(|byte| byte.is_ascii_alphanumeric() || b"./".contains(&byte))
    };
    match fields.as_slice() {
        [salt, hash]
            if (1..=MAX_SALT).contains(&salt.len())
                && hash.len() == length
                && is_coded(salt)
                && is_coded(hash) =>
        {
            Ok(Hash::Sha(text.to_string()))
        }
        _ => Err(again("is no whole SHA hash of crypt(3)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Made by `htpasswd -nbB`, `openssl passwd -5`, `openssl passwd -6` and `crypt(3)`.
    const KNOWN: [(&str, &str); 5] = [
        ("$2y$05$vUTD..yuNtEEzvTmuBngZOlsOlRN8Q0cFRRTsnr7HFBXC7B9vT.ie", "sesame"),
        ("$5$abcdefgh$4PbtPZdUc33o7LmNsM4HTsjYbIhyCeh4aCe.rEbHkq1", "sesame"),
        ("$6$ijklmnop$VAuoQ3iwaYJF3vSLqoNGAYhDTM.8kbCdWnJbJRS6t4GGPDulGkOKQVryFnsRKkEGth1FzCFLEleA8Ya2mnrbi.", "sesame"),
        (
            "$5$rounds=10000$saltstringsaltst$3xv.VbSHBb41AL9AvLeujZkZRBAwqFMz2.opqey6IcA",
            "Hello world!",
        ),
        (
            "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
            "Hello world!",
        ),
    ];

    #[test]
    fn hashes_of_other_programs_are_checked() {
        for (text, password) in KNOWN {
            let hash = Hash::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert!(hash.is_of(password.as_bytes()), "{text}");
            for wrong in ["", "Sesame", "Hello world", "sesame\0"] {
                assert!(!hash.is_of(wrong.as_bytes()), "{text} {wrong}");
            }
        }
    }

    #[test]
    fn what_is_weak_slow_or_cut_is_refused() {
        let [bcrypt, sha256, ..] = KNOWN.map(|(text, _)| text);
        for (text, why) in [
            ("secret".to_string(), "plain text"),
            (String::new(), "plain text"),
            ("rqXexS6ZhobKA".to_string(), "DES"),
            ("$apr1$rOioh4Wh$bVD3DRwksETubcpEH90ww0".to_string(), "MD5"),
            ("$1$abc$def".to_string(), "MD5"),
            ("{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=".to_string(), "SHA-1"),
            (
                "$argon2id$v=19$m=1,t=1,p=1$YWFhYWFhYWE$YQ".to_string(),
                "not known",
            ),
            (
                "$2x$05$abcdefghijklmnopqrstuu5s2v8.iXieOjg/.AySBTTZIIVFJeBui".to_string(),
                "not known",
            ),
            (bcrypt.replace("$05$", "$31$"), "cost of 31"),
            (bcrypt.replace("$05$", "$03$"), "cost of 3"),
            (bcrypt[..59].to_string(), "no whole bcrypt"),
            (sha256[..sha256.len() - 1].to_string(), "no whole SHA"),
            (sha256.replace("$5$", "$6$"), "no whole SHA"),
            (sha256.replace("$5$", "$5$rounds=999999999$"), "rounds"),
            (sha256.replace("$5$", "$5$rounds=10$"), "rounds"),
            (sha256.replace("$5$", "$5$rounds=$"), "rounds"),
        ] {
            let found = Hash::parse(&text).err().unwrap_or_default();
            assert!(
                found.contains(why) && found.contains("htpasswd -B"),
                "{text}: {found}"
            );
            assert!(!found.contains("secret"), "{found}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(\\$(2y|5|6|1)\\$)?(rounds=[0-9]{0,6}\\$)?[a-z0-9$./]{0,70}\\PC{0,3}") {
            let _ = Hash::parse(&text);
        }
    }
}
