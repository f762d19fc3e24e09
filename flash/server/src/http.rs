// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP/1.1 without sockets and files: what a request asks for, and the head of what answers it.

pub mod chunked;
pub mod codings;
pub mod conditions;
pub mod credentials;
pub mod fields;
pub mod host;
pub mod method;
pub mod ranges;
pub mod refusal;
pub mod request;
pub mod response;
pub mod target;
