// SPDX-License-Identifier: MIT OR Apache-2.0
//! Translates nginx's configuration: what static sites, FastCGI and proxies use of it. What flash does not have is named.
//!
//! `syntax` reads files, `server` and `locations` make flash's tables from their blocks, and `notes` keeps what could not be
//! translated.

mod answers;
pub mod command;
mod conditions;
mod directives;
mod error_pages;
mod files;
mod handlers;
mod limits;
mod location;
mod locations;
mod logs;
mod notes;
mod pattern;
mod scope;
mod server;
mod settings;
mod site;
mod static_files;
pub mod syntax;
mod table;
pub mod translate;
mod upstreams;
mod values;
