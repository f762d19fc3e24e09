// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which upstream answers a request, and the head by which it is asked.

use super::super::exchange::Way;
use super::super::{Connection, Site};
use crate::candidates::is_hidden;
use crate::context::Context;
use crate::http::fields::Framing;
use crate::http::method::Method;
use crate::http::request::Request;
use crate::http::target::{Path, Target};
use crate::sites::Rules;
use crate::upstream::http::{self, Client, Field};
use crate::upstream::variables::{variables, Entrance, Script};
use crate::upstream::{records, Form, Protocol, Upstream};

impl Connection {
    pub(in crate::connection) fn way(&self, request: &Request) -> Way {
        let Some(rules) = &self.rules else {
            return Way::Files;
        };
        let (Some(upstream), Target::Path(path)) = (&rules.upstream, &request.target) else {
            return Way::Files;
        };
        let is_never = matches!(request.method, Method::Connect | Method::Trace);
        if is_never || rules.redirect.is_some() || rules.fixed.is_some() || path.is_ambiguous {
            return Way::Files;
        }
        let files = &rules.files;
        let is_looked_for = match &upstream.plan.protocol {
            Protocol::FastCgi(options) if hides(rules, path) && options.script(path).is_some() => {
                return Way::Files
            }
            Protocol::FastCgi(options) if files.scripts.is_some() => {
                match (options.names_script(path), path.is_directory) {
                    (true, _) => return Way::Upstream,
                    (false, is_directory) => is_directory || self.has_front(),
                }
            }
            Protocol::FastCgi(options) if options.script(path).is_none() => return Way::Files,
            _ => files.before_upstream && !path.is_directory,
        };
        let can_be_file = request.no_file().is_none() && (files.dotfiles || !is_hidden(path));
        let is_for_all = request.method == Method::Options;
        match is_looked_for && can_be_file && !is_for_all {
            true => Way::Either,
            false if files.scripts.is_some() && !self.has_front() => Way::Files,
            false => Way::Upstream,
        }
    }

    /// Why no file answers a request that no upstream answers either.
    pub(in crate::connection) fn missing(&self, request: &Request) -> Option<u16> {
        if let Some(refusal) = request.no_file() {
            return Some(refusal.status);
        }
        let (Some(rules), Target::Path(path)) = (&self.rules, &request.target) else {
            return None;
        };
        hides(rules, path).then_some(404)
    }

    /// The upstream answers for what is no file.
    fn has_front(&self) -> bool {
        let files = self.rules.as_ref().map(|rules| &rules.files);
        files.is_some_and(|files| files.before_upstream || files.front().is_some())
    }

    /// The script for what is no file.
    fn front(&self) -> Option<Script> {
        let name = self.rules.as_ref()?.files.front()?;
        Some(Script {
            name: format!("/{name}").into_bytes(),
            path_info: Vec::new(),
        })
    }

    /// Everything in front of the body, as the upstream reads it.
    pub(super) fn head_for(
        &self,
        upstream: &Upstream,
        request: &Request,
        fields: &[Field],
        chosen: Option<Script>,
        context: &Context,
    ) -> Result<(Vec<u8>, Form, Option<String>), u16> {
        let Target::Path(path) = &request.target else {
            return Err(404);
        };
        match &upstream.plan.protocol {
            Protocol::Http(options) => {
                let client = Client {
                    address: self.peer.address,
                    is_secure: self.transport.is_encrypted(),
                };
                let upgrade = http::upgrade(request, fields);
                let target = match &options.path {
                    Some(to) => path.forwarded_to(to, options.names),
                    None => path.forwarded(),
                };
                let other = upgrade.as_deref();
                let head = http::head(request, fields, &target, client, options, other);
                let form = match request.body {
                    Framing::Chunked => Form::Chunked,
                    _ => Form::Plain,
                };
                Ok((head, form, upgrade))
            }
            // Most programs need CONTENT_LENGTH before the content.
            protocol if request.body == Framing::Chunked && !protocol.takes_chunked() => Err(411),
            Protocol::Application(_) => Err(500),
            Protocol::Cgi(options) => {
                let entrance = self.entrance(context);
                let script = options.script(path);
                let more = options.variables.as_slice();
                let all = variables(request, path, fields, &script, entrance, None, more);
                Ok((options.order(&script, &all), Form::Plain, None))
            }
            Protocol::FastCgi(options) => {
                let entrance = self.entrance(context);
                let named = || options.script(path).or_else(|| self.front());
                let script = chosen.or_else(named);
                let script = script.ok_or(404u16)?;
                let more = options.variables.as_slice();
                let root = options.scripts.is_some().then_some(options.root.as_path());
                let all = variables(request, path, fields, &script, entrance, root, more);
                let mut head = records::begin(&all);
                if request.body == Framing::None {
                    records::body_ends(&mut head);
                }
                Ok((head, Form::Records, None))
            }
        }
    }

    pub(in crate::connection) fn entrance(&self, context: &Context) -> Entrance {
        Entrance {
            client: self.peer.address,
            is_secure: self.transport.is_encrypted(),
            port: self.port(context),
        }
    }

    /// At which the client has connected.
    fn port(&self, context: &Context) -> u16 {
        let Site::Files(number) = self.site else {
            return 0;
        };
        context.shared.ports.get(number).copied().unwrap_or(0)
    }
}

/// No script is run for the path, as no file would be shown for it.
fn hides(rules: &Rules, path: &Path) -> bool {
    let protocol = rules.upstream.as_ref().map(|it| &it.plan.protocol);
    let has_scripts =
        matches!(protocol, Some(Protocol::FastCgi(options)) if options.scripts.is_some());
    has_scripts && !rules.files.dotfiles && is_hidden(path)
}
