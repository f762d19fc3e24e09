// SPDX-License-Identifier: MIT OR Apache-2.0
//! Preconditions (RFC 9110, 13): whether the client has the file already, or wants it only as it was.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::fields::Conditions;
use super::method::Method;

/// What identifies a version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validators {
    /// With its quotes.
    pub etag: String,
    /// Seconds since 1970.
    pub modified: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// So many seconds after a change, its date identifies the file as it is: it could have changed twice in one second, and the
/// clocks of a file server and of this one differ.
const SETTLED: u64 = 60;

/// In the order of RFC 9110, 13.2.2.
pub fn evaluate(conditions: &Conditions, method: Method, current: &Validators) -> Verdict {
    if let Some(list) = &conditions.if_match {
        if !matches(list, &current.etag, Comparison::Strong) {
            return Verdict::Failed;
        }
    } else if let Some(since) = conditions.if_unmodified_since.as_deref().and_then(seconds) {
        if current.modified > since {
            return Verdict::Failed;
        }
    }
    let reads = matches!(method, Method::Get | Method::Head);
    if let Some(list) = &conditions.if_none_match {
        if matches(list, &current.etag, Comparison::Weak) {
            return match reads {
                true => Verdict::NotModified,
                false => Verdict::Failed,
            };
        }
    } else if let Some(since) = conditions.if_modified_since.as_deref().and_then(seconds) {
        if reads && current.modified <= since {
            return Verdict::NotModified;
        }
    }
    Verdict::Proceed
}

/// Whether a range may be sent, as far as If-Range says. `now`: in seconds since 1970.
pub fn range_holds(conditions: &Conditions, current: &Validators, now: u64) -> bool {
    match conditions.if_range.as_deref() {
        None => true,
        Some(tag) if tag.starts_with('"') => tag == current.etag,
        // A weak tag never does; a date has to be the very same, and no weak one either (RFC 9110, 8.8.2.2).
        Some(date) => {
            let is_strong = current.modified.saturating_add(SETTLED) <= now;
            is_strong && seconds(date) == Some(current.modified)
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether a list of entity tags, or `*`, has this tag. What is not a tag ends the list.
fn matches(list: &str, etag: &str, comparison: Comparison) -> bool {
    if list.trim() == "*" {
        return true;
    }
    let mut rest = list;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (is_weak, quoted) = match rest.strip_prefix("W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        let Some(inside) = quoted.strip_prefix('"') else {
            return false;
        };
        let Some(length) = inside.find('"') else {
            return false;
        };
        let tag = &quoted[..length + 2];
        if tag == etag && !(is_weak && comparison == Comparison::Strong) {
            return true;
        }
        rest = &inside[length + 1..];
    }
}

/// A date in one of the three forms of RFC 9110, 5.6.7.
pub fn seconds(date: &str) -> Option<u64> {
    let time = httpdate::parse_http_date(date).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// The form in which dates are sent.
pub fn date(seconds: u64) -> String {
    // The largest year that has four digits.
    let seconds = seconds.min(253_402_300_799);
    let time: SystemTime = UNIX_EPOCH + Duration::from_secs(seconds);
    httpdate::fmt_http_date(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MODIFIED: u64 = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT

    fn current() -> Validators {
        Validators {
            etag: "\"a-1\"".to_string(),
            modified: MODIFIED,
        }
    }

    fn verdict(set: impl Fn(&mut Conditions)) -> Verdict {
        let mut conditions = Conditions::default();
        set(&mut conditions);
        evaluate(&conditions, Method::Get, &current())
    }

    #[test]
    fn tags_come_before_dates() {
        let some = |text: &str| Some(text.to_string());
        let earlier = "Sun, 06 Nov 1994 08:49:36 GMT";
        let same = "Sunday, 06-Nov-94 08:49:37 GMT";
        assert_eq!(verdict(|_| {}), Verdict::Proceed);
        assert_eq!(
            verdict(|c| c.if_none_match = some("\"a-1\"")),
            Verdict::NotModified
        );
        assert_eq!(
            verdict(|c| c.if_none_match = some("\"x\", W/\"a-1\"")),
            Verdict::NotModified
        );
        assert_eq!(
            verdict(|c| c.if_none_match = some("*")),
            Verdict::NotModified
        );
        assert_eq!(verdict(|c| c.if_none_match = some("a-1")), Verdict::Proceed);
        assert_eq!(
            verdict(|c| c.if_modified_since = some(same)),
            Verdict::NotModified
        );
        assert_eq!(
            verdict(|c| c.if_modified_since = some(earlier)),
            Verdict::Proceed
        );
        assert_eq!(
            verdict(|c| c.if_modified_since = some("yesterday")),
            Verdict::Proceed
        );
        let both = verdict(|c| {
            c.if_none_match = some("\"x\"");
            c.if_modified_since = some(same);
        });
        assert_eq!(both, Verdict::Proceed);
        assert_eq!(verdict(|c| c.if_match = some("\"x\"")), Verdict::Failed);
        assert_eq!(verdict(|c| c.if_match = some("W/\"a-1\"")), Verdict::Failed);
        assert_eq!(
            verdict(|c| c.if_match = some("\"x\",\"a-1\"")),
            Verdict::Proceed
        );
        assert_eq!(
            verdict(|c| c.if_unmodified_since = some(earlier)),
            Verdict::Failed
        );
        assert_eq!(
            verdict(|c| c.if_unmodified_since = some(same)),
            Verdict::Proceed
        );
    }

    #[test]
    fn ranges_hold_for_the_very_same_file() {
        let holds_at = |text: &str, now: u64| {
            let conditions = Conditions {
                if_range: Some(text.to_string()),
                ..Conditions::default()
            };
            range_holds(&conditions, &current(), now)
        };
        let holds = |text: &str| holds_at(text, MODIFIED + 3600);
        assert!(holds("\"a-1\""));
        assert!(!holds("W/\"a-1\""));
        assert!(!holds("\"a-2\""));
        assert!(holds("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert!(!holds("Sun, 06 Nov 1994 08:49:38 GMT"));
        assert!(!holds("?"));
        // A file that has just changed may change again in the same second.
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert!(!holds_at(date, MODIFIED) && !holds_at(date, MODIFIED + 59));
        assert!(holds_at(date, MODIFIED + 60));
        assert!(holds_at("\"a-1\"", MODIFIED));
    }

    #[test]
    fn dates_are_those_of_the_standard() {
        assert_eq!(date(MODIFIED), "Sun, 06 Nov 1994 08:49:37 GMT");
        let _ = date(u64::MAX);
    }

    proptest! {
        #[test]
        fn any_list_is_read(list in "[ ,W/\"a-z0-9*\\\\-]{0,40}") {
            let _ = matches(&list, "\"a-1\"", Comparison::Weak);
        }
    }
}
