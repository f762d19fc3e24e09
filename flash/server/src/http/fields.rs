// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fields of a request: what they ask for, and how long its body is.

use super::credentials::Authorization;
use super::host::BAD_HOST;
use super::refusal::{Refusal, BAD};

/// Fields of one request; one with more is refused.
pub const MAX_FIELDS: usize = 100;
/// How the body of a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
}

/// The fields by which a client asks for a part, or only for what it does not have yet.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Conditions {
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub if_modified_since: Option<String>,
    pub if_unmodified_since: Option<String>,
    pub if_range: Option<String>,
    pub range: Option<String>,
}

/// What the fields say that matters here.
#[derive(Default)]
pub struct Fields<'a> {
    pub host: Option<&'a str>,
    pub length: Option<u64>,
    pub codings: Option<String>,
    pub expect: Option<String>,
    pub closes: bool,
    pub keeps_alive: bool,
    pub conditions: Conditions,
    pub accept_encoding: Option<String>,
    pub authorization: Option<Authorization>,
    pub referer: Option<String>,
    pub user_agent: Option<String>,
}

/// The fields of a head that [`super::request::Reader`] has accepted, as they came, without spaces around the values.
pub fn fields(head: &[u8]) -> Vec<(String, Vec<u8>)> {
    let begin = head.iter().position(|byte| !b"\r\n".contains(byte));
    let head = &head[begin.unwrap_or(0)..];
    let end = memchr::memchr(b'\n', head).map_or(head.len(), |at| at + 1);
    let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
    match httparse::parse_headers(&head[end..], &mut headers) {
        Ok(httparse::Status::Complete((_, headers))) => headers
            .iter()
            .map(|header| (header.name.to_string(), header.value.trim_ascii().to_vec()))
            .collect(),
        _ => Vec::new(),
    }
}

impl<'a> Fields<'a> {
    /// # Errors
    ///
    /// A field is not valid, or there twice.
    pub fn read(headers: &[httparse::Header<'a>]) -> Result<Fields<'a>, Refusal> {
        let mut fields = Fields::default();
        // A field that can be there once and is there twice is not valid.
        let mut seen_range = 0;
        let mut seen_if_range = 0;
        let mut seen_since = 0;
        let mut seen_unmodified = 0;
        let mut seen_authorization = 0;
        for header in headers {
            let name = header.name;
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            let text = || -> Option<&'a str> {
                let text = std::str::from_utf8(header.value).ok()?;
                Some(text.trim_matches([' ', '\t']))
            };
            // Entity tags may have bytes that are no UTF-8.
            let owned = || {
                let text = String::from_utf8_lossy(header.value);
                Some(text.trim_matches([' ', '\t']).to_string())
            };
            if is("host") {
                if fields.host.is_some() {
                    return Err(BAD("there are two Host fields"));
                }
                fields.host = Some(text().ok_or(BAD_HOST)?);
            } else if is("content-length") {
                if fields.length.is_some() {
                    return Err(BAD("there are two Content-Length fields"));
                }
                fields.length = Some(content_length(text().unwrap_or("?"))?);
            } else if is("transfer-encoding") {
                let coding = text().ok_or(BAD("Transfer-Encoding is not valid"))?;
                match &mut fields.codings {
                    Some(before) => before.extend([",", coding]),
                    None => fields.codings = Some(coding.to_string()),
                }
            } else if is("connection") {
                for token in text().unwrap_or_default().split(',').map(str::trim) {
                    fields.closes |= token.eq_ignore_ascii_case("close");
                    fields.keeps_alive |= token.eq_ignore_ascii_case("keep-alive");
                }
            } else if is("expect") {
                join(&mut fields.expect, owned());
            } else if is("range") {
                seen_range += 1;
                fields.conditions.range = owned().filter(|_| seen_range == 1);
            } else if is("if-range") {
                // It holds for no file then, so that the whole is sent.
                seen_if_range += 1;
                let one = owned().filter(|_| seen_if_range == 1);
                fields.conditions.if_range = Some(one.unwrap_or_default());
            } else if is("if-match") {
                join(&mut fields.conditions.if_match, owned());
            } else if is("if-none-match") {
                join(&mut fields.conditions.if_none_match, owned());
            } else if is("if-modified-since") {
                seen_since += 1;
                fields.conditions.if_modified_since = owned().filter(|_| seen_since == 1);
            } else if is("if-unmodified-since") {
                seen_unmodified += 1;
                fields.conditions.if_unmodified_since = owned().filter(|_| seen_unmodified == 1);
            } else if is("accept-encoding") {
                join(&mut fields.accept_encoding, owned());
            } else if is("authorization") {
                seen_authorization += 1;
                let one = owned().filter(|_| seen_authorization == 1);
                fields.authorization = one.map(Authorization);
            } else if is("referer") {
                fields.referer = owned();
            } else if is("user-agent") {
                fields.user_agent = owned();
            }
        }
        Ok(fields)
    }

    /// RFC 9112, 6.3: how long the body is. Whatever is not certain is refused.
    /// # Errors
    ///
    /// It is not certain.
    pub fn framing(&self, is_11: bool) -> Result<Framing, Refusal> {
        let Some(codings) = &self.codings else {
            return Ok(match self.length {
                None | Some(0) => Framing::None,
                Some(length) => Framing::Length(length),
            });
        };
        if !is_11 {
            return Err(BAD("HTTP/1.0 has no Transfer-Encoding"));
        }
        if self.length.is_some() {
            return Err(BAD(
                "Content-Length and Transfer-Encoding contradict each other",
            ));
        }
        let is_chunked = |coding: &str| coding.eq_ignore_ascii_case("chunked");
        let codings: Vec<&str> = elements(codings).collect();
        match codings.split_last() {
            Some((last, [])) if is_chunked(last) => Ok(Framing::Chunked),
            Some((last, before))
                if is_chunked(last) && !before.iter().any(|one| is_chunked(one)) =>
            {
                let why = "only the transfer coding chunked is known";
                Err(Refusal::new(501, why))
            }
            _ => Err(BAD(
                "chunked must be the last transfer coding, and only that",
            )),
        }
    }
}

/// The elements of a list of fields; empty ones do not count (RFC 9110, 5.6.1.2).
pub fn elements(list: &str) -> impl Iterator<Item = &str> {
    let elements = list.split(',').map(|one| one.trim_matches([' ', '\t']));
    elements.filter(|one| !one.is_empty())
}

/// Several fields of a list are one list.
fn join(list: &mut Option<String>, more: Option<String>) {
    match (list.as_mut(), more) {
        (Some(list), Some(more)) => {
            list.push_str(", ");
            list.push_str(&more);
        }
        (None, Some(more)) => *list = Some(more),
        (_, None) => {}
    }
}

fn content_length(text: &str) -> Result<u64, Refusal> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BAD("Content-Length is not a number"));
    }
    let length = text.parse::<u64>();
    length.map_err(|_| BAD("Content-Length is too large a number"))
}
