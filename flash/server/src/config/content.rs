// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a location answers with, as the configuration writes it: which files, a redirect, or always the same.

use serde::de::{self, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::access::Kind;
use super::values::Wrong;
use crate::http::response;
use crate::sites::{Fixed, Redirect};
use crate::template::Template;

const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];
/// Names that one setting may list, as each may have to be looked for.
const MOST_NAMES: usize = 16;

/// One name, or several.
#[derive(Debug, Clone)]
pub(super) struct Names {
    pub all: Vec<String>,
    /// It was written as a list.
    pub is_list: bool,
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Names, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Names;
            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("a name as \"index.html\", or a list of names")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Names, E> {
                let (all, is_list) = (vec![text.to_string()], false);
                Ok(Names { all, is_list })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Names, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = list.next_element::<String>()? {
                    all.push(name);
                }
                match all.len() {
                    1..=MOST_NAMES => Ok(Names { all, is_list: true }),
                    _ => Err(A::Error::custom(format!(
                        "the list must have 1 to {MOST_NAMES} names"
                    ))),
                }
            }
        }
        from.deserialize_any(Either)
    }
}

impl Names {
    /// Each is the name of a file in a directory.
    pub fn are_plain(&self) -> bool {
        let is_plain = |name: &String| !name.is_empty() && !name.contains(['/', '\0']);
        self.all.iter().all(is_plain)
    }
}

/// Where a redirect leads.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct To {
    to: String,
    status: Option<u16>,
}

/// `answer = { status = 200, text = "ok" }`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    status: u16,
    text: Option<String>,
    #[serde(rename = "type")]
    kind: Option<Kind>,
}

pub(super) fn index(names: &Spanned<Names>) -> Result<Vec<String>, Wrong> {
    match names.get_ref().are_plain() {
        true => Ok(names.get_ref().all.clone()),
        false => {
            let what = "`index` is the name of a file, without a slash, or a list of such names";
            Err(Wrong::at(names.span(), what))
        }
    }
}

pub(super) fn redirect(to: &Spanned<To>) -> Result<Redirect, Wrong> {
    let (span, to) = (to.span(), to.get_ref());
    let begins = ["/", "http://", "https://", "{scheme}://"];
    let is_target = begins.iter().any(|begin| to.to.starts_with(begin))
        && to.to.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_target {
        let what = "`to` is a path that begins with a slash or a URL, without spaces";
        return Err(Wrong::at(span, what));
    }
    let status = to.status.unwrap_or(301);
    if !REDIRECTS.contains(&status) {
        let what = format!("{status} is no redirect: `status` is one of 301, 302, 303, 307, 308");
        return Err(Wrong::at(span, what));
    }
    let to = Template::parse(&to.to).map_err(|what| Wrong::at(span, format!("`to`: {what}")))?;
    Ok(Redirect { to, status })
}

pub(super) fn answer(answer: &Spanned<Answer>) -> Result<Fixed, Wrong> {
    let (span, its) = (answer.span(), answer.get_ref());
    let is_known = response::reason(its.status) != "Unknown";
    if !matches!(its.status, 200 | 204 | 400..=599) || !is_known {
        let what = "`status` is 200, 204, or that of an error, as 404";
        return Err(Wrong::at(span, what));
    }
    // RFC 9110, 15.5.2 and 15.5.22: these have to say what they ask for.
    let remedy = match its.status {
        401 => Some("an answer with status 401 has a challenge: `auth` sends one, or take 403"),
        426 => Some("an answer with status 426 names a protocol, which flash cannot: take 400"),
        _ => None,
    };
    if let Some(remedy) = remedy {
        return Err(Wrong::at(span, remedy));
    }
    if its.status == 204 && its.text.is_some() {
        return Err(Wrong::at(
            span,
            "an answer with status 204 has no text: remove `text`",
        ));
    }
    let usual = "text/plain; charset=utf-8".to_string();
    let text = its.text.clone();
    Ok(Fixed {
        status: its.status,
        // There is no usual page of what is no error.
        text: text.or((its.status == 200).then(String::new)),
        kind: its.kind.as_ref().map_or(usual, |kind| kind.0.clone()),
    })
}
