// SPDX-License-Identifier: MIT OR Apache-2.0
//! Methods of requests.

use super::refusal::{Refusal, UNKNOWN_METHOD};

/// Bytes of a method.
const MAX_METHOD: usize = 32;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Options,
    /// Its target is an authority, and what follows its head might be for another server.
    Connect,
    /// Known, but there is no file that it could be done to. What an upstream does with it is its own affair.
    Put,
    Delete,
    Trace,
    Post,
    Patch,
    /// Of an extension, as PROPFIND.
    Unknown,
}

impl Method {
    /// # Errors
    ///
    /// No method has such a name.
    pub fn of(name: &str) -> Result<Method, Refusal> {
        match name {
            "GET" => Ok(Method::Get),
            "HEAD" => Ok(Method::Head),
            "OPTIONS" => Ok(Method::Options),
            "CONNECT" => Ok(Method::Connect),
            "POST" => Ok(Method::Post),
            "PUT" => Ok(Method::Put),
            "DELETE" => Ok(Method::Delete),
            "PATCH" => Ok(Method::Patch),
            "TRACE" => Ok(Method::Trace),
            // None of an extension is as long, and none has small letters, which are a mistake.
            name if name.len() > MAX_METHOD => Err(UNKNOWN_METHOD),
            name if name.bytes().any(|byte| byte.is_ascii_lowercase()) => Err(UNKNOWN_METHOD),
            _ => Ok(Method::Unknown),
        }
    }
}

/// A character of a method (RFC 9110, 5.6.2).
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
