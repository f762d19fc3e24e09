//! The dynamic part of the full mix: the answers of the program behind the server. A client knows every
//! byte of them in advance.
//!
//! Modelled on SPECweb99's: a page around a file of the set, an advertisement chosen by the user's
//! cookie, a form that is posted and logged, and a CGI program. Fields have fixed widths, so a page's
//! length follows from the file's.

use crate::content::mix;
use crate::fileset::{File, FileSet};

/// The kind of dynamic request: the first part of the path below the prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    Get,
    Ad,
    Post,
    Cgi,
}

pub const PAGES: [Page; 4] = [Page::Get, Page::Ad, Page::Post, Page::Cgi];

impl Page {
    pub fn name(self) -> &'static str {
        match self {
            Page::Get => "get",
            Page::Ad => "ad",
            Page::Post => "post",
            Page::Cgi => "cgi",
        }
    }

    pub fn from_name(name: &str) -> Option<Page> {
        PAGES.into_iter().find(|page| page.name() == name)
    }
}

/// As many as SPECweb99 has in `Custom.Ads`.
pub const ADS: u16 = 360;
/// Users have the numbers from 0 to this one.
pub const USERS: u32 = 10_000;

/// The content of the cookie, or of the form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Visitor {
    pub user: u32,
    pub last_ad: u16,
}

impl Visitor {
    pub fn cookie(self) -> String {
        format!("user={}; last_ad={}", self.user, self.last_ad)
    }

    pub fn form(self) -> String {
        format!("user={}&last_ad={}", self.user, self.last_ad)
    }

    /// Parses a cookie or a form. A field that is missing or no number is 0.
    pub fn parse(text: &str) -> Visitor {
        let mut visitor = Visitor::default();
        for part in text.split(['&', ';']) {
            match part.trim().split_once('=') {
                Some(("user", value)) => visitor.user = value.parse().unwrap_or(0),
                Some(("last_ad", value)) => visitor.last_ad = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        visitor
    }

    /// The next advertisement for this user: the first one after the last whose audience includes the
    /// user. About every second one does.
    pub fn next_ad(self, set: FileSet) -> u16 {
        let user = mix(set.seed ^ u64::from(self.user));
        (1..=ADS)
            .map(|step| (self.last_ad % ADS + step) % ADS)
            .find(|ad| {
                let audience = mix(!set.seed ^ (u64::from(*ad) << 32));
                (audience & user & 3) == (audience & 3)
            })
            .unwrap_or(0)
    }
}

/// The parts of the page before and after the file's bytes.
pub fn page(page: Page, file: File, visitor: Visitor, set: FileSet) -> (String, &'static str) {
    let ad = match page {
        Page::Ad => visitor.next_ad(set),
        _ => 0,
    };
    let before = format!(
        "<!doctype html>\n<title>latlab</title>\n<p>page {:<4} user {:010} ad {ad:05} file {}</p>\n<pre>\n",
        page.name(),
        visitor.user,
        file.path(),
    );
    (before, "\n</pre>\n")
}

/// The length of the whole page in bytes.
pub fn page_size(file: File) -> u64 {
    // All pages around files have the same length: the widths are fixed.
    const AROUND: u64 = 117;
    AROUND + file.size()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_pages_length_is_known_beforehand(
            index in 0u32..36 * 99_999, which in 0usize..4, user: u32, last_ad in 0..ADS, seed: u64
        ) {
            let file = File::from_index(index);
            let set = FileSet { seed, directories: 1 };
            let (before, after) = page(PAGES[which], file, Visitor { user, last_ad }, set);
            prop_assert_eq!(before.len() as u64 + file.size() + after.len() as u64, page_size(file));
        }

        #[test]
        fn visitors_are_read_as_they_are_written(user: u32, last_ad: u16) {
            let visitor = Visitor { user, last_ad };
            prop_assert_eq!(Visitor::parse(&visitor.cookie()), visitor);
            prop_assert_eq!(Visitor::parse(&visitor.form()), visitor);
        }

        #[test]
        fn any_text_is_some_visitor(text in "\\PC*") {
            let set = FileSet { seed: 1, directories: 1 };
            prop_assert!(Visitor::parse(&text).next_ad(set) < ADS);
        }
    }

    #[test]
    fn ads_rotate() {
        let set = FileSet {
            seed: 3,
            directories: 1,
        };
        let mut visitor = Visitor {
            user: 17,
            last_ad: 0,
        };
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..ADS {
            visitor.last_ad = visitor.next_ad(set);
            seen.insert(visitor.last_ad);
        }
        assert!(
            (ADS / 8..=ADS).contains(&(seen.len() as u16)),
            "{}",
            seen.len()
        );
    }
}
