// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers requests for files and lists of directories, with the help of those who may wait for the disk, and for what
//! the server shows of itself.

use std::sync::Arc;

use super::{Asked, Connection, State};
use crate::answer::Form;
use crate::candidates::{Candidates, Role};
use crate::context::Context;
use crate::counts::add;
use crate::files::{Kind, Lookup};
use crate::helpers::{self, Job, Ticket, Work};
use crate::http::request::Request;
use crate::http::target::Target;
use crate::status;

impl Connection {
    pub(super) fn found_by_helper(
        &mut self,
        key: usize,
        asked: Asked,
        result: helpers::Result,
        context: &mut Context,
    ) {
        let Asked {
            request,
            mut candidates,
        } = asked;
        match result {
            helpers::Result::Opened(at, lookup) => {
                self.has_missed = matches!(lookup, Lookup::Missing);
                let lookup = match &self.rules {
                    Some(rules) => {
                        let (stage, now) = (&mut context.stage, context.now);
                        stage.found(&rules.root, &mut candidates, at, lookup, now)
                    }
                    None => lookup,
                };
                self.found(key, request, candidates, lookup, context);
            }
            helpers::Result::Listed(page) => {
                let common = self.common(&request, context);
                let reply = common.page("text/html; charset=utf-8", page);
                self.reply(Some(request), reply, context);
            }
            _ => self.error(500, request, context),
        }
    }

    /// A page of what the server shows of itself.
    pub(super) fn own_page(&mut self, request: Box<Request>, context: &mut Context) {
        let page = match &request.target {
            Target::Path(path) => status::page(&path.name, &context.shared),
            Target::Server => None,
        };
        let Some((kind, page)) = page else {
            return self.error(404, request, context);
        };
        let reply = self.common(&request, context).page(kind, page);
        self.reply(Some(request), reply, context);
    }

    pub(super) fn look_up(
        &mut self,
        key: usize,
        request: Box<Request>,
        mut candidates: Candidates,
        context: &mut Context,
    ) {
        let Some(rules) = &self.rules else {
            return self.error(404, request, context);
        };
        let root = Arc::clone(&rules.root);
        let stage = &mut context.stage;
        if let Some(lookup) = stage.find(&root, &mut candidates, context.now) {
            return self.found(key, request, candidates, lookup, context);
        }
        add(&context.counts().cold_names, 1);
        let names = candidates.names();
        let work = Work::Open { root, names };
        self.ask(key, request, candidates, work, context);
    }

    /// Hands the work to a helper.
    pub(super) fn ask(
        &mut self,
        key: usize,
        request: Box<Request>,
        candidates: Candidates,
        work: Work,
        context: &mut Context,
    ) {
        let is_taken = self.submit(key, work, context);
        if !is_taken {
            add(&context.counts().refused, 1);
            return self.error(503, request, context);
        }
        self.deadline = context.now + context.options.helper_ms;
        self.state = State::Asked(Box::new(Asked {
            request,
            candidates,
        }));
    }

    pub(super) fn submit(&mut self, key: usize, work: Work, context: &Context) -> bool {
        let ticket = Ticket {
            connection: key,
            number: self.number,
        };
        let answer_to = Arc::clone(&context.inbox);
        let job = Job {
            ticket,
            work,
            answer_to,
        };
        context.shared.helpers.submit(job, self.has_missed)
    }

    /// Answers with the candidate that was found.
    pub(super) fn found(
        &mut self,
        key: usize,
        request: Box<Request>,
        mut candidates: Candidates,
        lookup: Lookup,
        context: &mut Context,
    ) {
        let Target::Path(path) = &request.target else {
            return self.error(404, request, context);
        };
        let file = match lookup {
            Lookup::Found(file) => file,
            Lookup::Missing => return self.error(404, request, context),
            Lookup::Forbidden => return self.error(403, request, context),
            Lookup::Busy => return self.error(503, request, context),
            Lookup::Failed(_) => return self.error(500, request, context),
        };
        match (candidates.role(), file.kind) {
            (Role::File(coding), Kind::Regular) => {
                let common = self.common(&request, context);
                let form = Form {
                    name: candidates.plain_name(),
                    coding,
                    may_be_coded: self
                        .rules
                        .as_ref()
                        .is_some_and(|rules| rules.files.precompressed),
                };
                let reply = common.file(&request, &file, &form);
                self.reply(Some(request), reply, context);
            }
            // It has the name of a compressed file and is none.
            (Role::File(Some(_)), _) if candidates.skip(1) => {
                self.look_up(key, request, candidates, context);
            }
            (Role::File(_), Kind::Directory) if !path.is_directory => {
                let common = self.common(&request, context);
                let reply = common.to_directory(&path.raw, path.query.as_deref());
                self.reply(Some(request), reply, context);
            }
            (Role::Directory, Kind::Directory)
                if self.rules.as_ref().is_some_and(|rules| rules.files.lists) =>
            {
                let title = format!("/{}", String::from_utf8_lossy(&path.name));
                let work = Work::List {
                    directory: file,
                    title,
                };
                self.ask(key, request, candidates, work, context);
            }
            // `/file/` is no name of a file.
            (Role::Directory, Kind::Regular) => self.error(404, request, context),
            _ => self.error(403, request, context),
        }
    }
}
