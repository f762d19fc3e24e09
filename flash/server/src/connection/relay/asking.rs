// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which upstream answers a request, and the head by which it is asked.

use std::sync::Arc;

use super::super::{Connection, Site};
use crate::context::Context;
use crate::http::request::{Framing, Method, Request};
use crate::http::target::Target;
use crate::upstream::http::{self, Client, Field};
use crate::upstream::variables::{variables, Entrance};
use crate::upstream::{records, Form, Protocol, Upstream};

impl Connection {
    /// The upstream that answers this request, if files do not.
    pub(in crate::connection) fn upstream_for(&self, request: &Request) -> Option<Arc<Upstream>> {
        let rules = self
            .rules
            .as_ref()
            .filter(|rules| rules.redirect.is_none())?;
        let is_for_it = !matches!(request.method, Method::Connect | Method::Trace);
        let has_path = matches!(request.target, Target::Path(_));
        let upstream = rules.upstream.as_ref()?;
        let is_answered = match (&upstream.plan.protocol, &request.target) {
            (Protocol::FastCgi(options), Target::Path(path)) => options.script(path).is_some(),
            _ => true,
        };
        (is_for_it && has_path && is_answered).then(|| Arc::clone(upstream))
    }

    /// Everything in front of the body, as the upstream reads it.
    pub(super) fn head_for(
        &self,
        upstream: &Upstream,
        request: &Request,
        fields: &[Field],
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
                let target = path.forwarded();
                let other = upgrade.as_deref();
                let head = http::head(request, fields, &target, client, options, other);
                let form = match request.body {
                    Framing::Chunked => Form::Chunked,
                    _ => Form::Plain,
                };
                Ok((head, form, upgrade))
            }
            // Programs need CONTENT_LENGTH before the content.
            _ if request.body == Framing::Chunked => Err(411),
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
                let script = options.script(path).ok_or(404u16)?;
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
