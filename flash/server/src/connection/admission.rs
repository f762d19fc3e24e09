// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a request has to pass before it is looked at: the client's network, and the user's password.

use std::sync::Arc;

use super::{Connection, State};
use crate::access::check::Checked;
use crate::access::passwords::Refused;
use crate::context::Context;
use crate::counts::add;
use crate::helpers::{Job, Work};
use crate::http::credentials::Credentials;
use crate::http::request::Request;

impl Connection {
    pub(super) fn admit(&mut self, key: usize, mut request: Box<Request>, context: &mut Context) {
        let place = self.peer.place.as_ref();
        if place.is_some_and(|place| !place.request()) {
            add(&context.counts().limited_requests, 1);
            return self.error(429, request, context);
        }
        let Some(rules) = self.rules.clone() else {
            return self.serve(key, request, context);
        };
        if !rules.access.admits(self.peer.address) {
            return self.error(403, request, context);
        }
        let Some(auth) = &rules.auth else {
            return self.serve(key, request, context);
        };
        let field = request.authorization.as_ref();
        let Some(credentials) = field.and_then(Credentials::of) else {
            return self.error(401, request, context);
        };
        let users = Arc::clone(&auth.file.users);
        if context
            .remembered
            .knows(users.version, &credentials, context.now)
        {
            request.user = Some(credentials.user);
            return self.serve(key, request, context);
        }
        let Some(passwords) = &context.shared.passwords else {
            return self.error(500, request, context);
        };
        let asked = passwords.admit(self.peer.address, users, credentials);
        let asked = asked.and_then(|check| {
            passwords.submit(Job {
                caller: self.caller(key, context),
                work: Work::Check(Box::new(check)),
            })
        });
        match asked {
            Ok(()) => {
                self.deadline = context.now + context.options.helper_ms;
                self.state = State::Checking(request);
            }
            Err(Refused::Client) => {
                add(&context.counts().limited_passwords, 1);
                self.error(429, request, context);
            }
            Err(Refused::Queue) => {
                add(&context.counts().refused, 1);
                self.error(503, request, context);
            }
        }
    }

    pub(super) fn checked(
        &mut self,
        key: usize,
        mut request: Box<Request>,
        checked: Checked,
        context: &mut Context,
    ) {
        if !checked.is_right {
            add(&context.counts().wrong_passwords, 1);
            return self.error(401, request, context);
        }
        let (remembered, now) = (&mut context.remembered, context.now);
        remembered.add(checked.version, &checked.credentials, now);
        request.user = Some(checked.credentials.user);
        self.serve(key, request, context);
    }
}
