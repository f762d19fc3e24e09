// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers requests for files and lists of directories, with the help of those who may wait for the disk, and for what
//! the server shows of itself.

use std::sync::Arc;
use std::time::Duration;

use super::{Asked, Connection, State};
use crate::answer::{Form, Reply};
use crate::candidates::{Candidates, Role};
use crate::context::{Context, Site};
use crate::counts::add;
use crate::files::{Kind, Lookup};
use crate::helpers::pools::Origin;
use crate::helpers::{self, Caller, Job, Ticket, Want, Work};
use crate::http::method::Method;
use crate::http::request::Request;
use crate::http::target::Target;
use crate::sites::Rules;
use crate::status;
use crate::template::Subject;
use crate::upstream::variables::Script;

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
                self.has_found = match lookup {
                    Lookup::Found(_) => at < candidates.asked(),
                    Lookup::Busy => self.has_found,
                    _ => false,
                };
                let root = self.rules.as_ref().and_then(|rules| rules.root.clone());
                let lookup = match root {
                    Some(root) => {
                        let (stage, now) = (&mut context.stage, context.now);
                        stage.found(&root, &mut candidates, at, lookup, now)
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

    /// The answer for which nothing has to be looked for.
    pub(super) fn constant(
        &self,
        request: &Request,
        rules: &Rules,
        context: &Context,
    ) -> Option<Reply> {
        let common = self.common(request, context);
        if let Some(fixed) = &rules.fixed {
            return Some(common.fixed(fixed));
        }
        let redirect = rules.redirect.as_ref()?;
        let subject = Subject {
            request,
            is_secure: self.transport.is_encrypted(),
            client: self.peer.address,
            names: rules.names,
            own_host: &rules.host,
        };
        // HTTP/1.0 knows requests that name no host, and there is nowhere to send their clients.
        if redirect.to.lacks_host(&subject) {
            return Some(common.error(400));
        }
        Some(common.redirect(&redirect.to.write(&subject), redirect.status))
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
        let Some(root) = rules.root.clone() else {
            return self.error(404, request, context);
        };
        if candidates.role() == Role::Upstream {
            return self.ask_upstream(key, request, &candidates, context);
        }
        if self.taken.is_none() {
            self.taken = context.shared.spare.take(1);
        }
        if self.taken.is_none() {
            add(&context.counts().refused, 1);
            return self.error(503, request, context);
        }
        let stage = &mut context.stage;
        if let Some(lookup) = stage.find(&root, &mut candidates, context.now) {
            return self.found(key, request, candidates, lookup, context);
        }
        add(&context.counts().cold_names, 1);
        let names = candidates.names();
        let first = context.stage.first_bytes(&root, &request, &candidates);
        let work = Work::Open { root, names, first };
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
        let is_taken = self.submit(key, work, candidates.asked(), context);
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

    /// `asked`: so many of the names that are looked for are what the client asks for.
    pub(super) fn submit(
        &mut self,
        key: usize,
        work: Work,
        asked: usize,
        context: &Context,
    ) -> bool {
        let caller = self.caller(key, context);
        let origin = Origin {
            peer: self.peer.address,
            asked,
            has_found: self.has_found,
        };
        context.shared.helpers.submit(Job { caller, work }, origin)
    }

    /// For the next question to a helper.
    pub(super) fn caller(&mut self, key: usize, context: &Context) -> Caller {
        let ticket = Ticket {
            connection: key,
            number: self.number,
        };
        let want = self.want.insert(Want::default());
        let patience = Duration::from_millis(context.options.helper_ms);
        Caller::new(ticket, Arc::clone(&context.inbox), want, patience)
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
            Lookup::Missing if candidates.skip(1) => {
                return self.look_up(key, request, candidates, context)
            }
            Lookup::Missing => return self.error(404, request, context),
            Lookup::Forbidden => return self.error(403, request, context),
            Lookup::Busy => return self.error(503, request, context),
            Lookup::Failed(_) => return self.error(500, request, context),
        };
        match (candidates.role(), file.kind) {
            (Role::Script, Kind::Regular) => {
                self.ask_upstream(key, request, &candidates, context);
            }
            (Role::File(_), Kind::Regular) if !is_for_files(request.method) => {
                self.error(405, request, context);
            }
            (Role::File(coding), Kind::Regular) => {
                self.take_rules_of(&candidates, &request, context);
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
            // What is no file is a program's.
            (Role::File(_), Kind::Directory) if self.is_before_upstream() && candidates.skip(1) => {
                self.look_up(key, request, candidates, context);
            }
            (Role::File(_), Kind::Directory) if !path.is_directory && candidates.is_own() => {
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

    /// What a location says of the file itself, as of `/index.html`, holds also where it is an index or a fallback.
    fn take_rules_of(&mut self, candidates: &Candidates, request: &Request, context: &Context) {
        let Some(rules) = self.rules.as_ref().filter(|_| !candidates.is_own()) else {
            return;
        };
        let own = match self.site {
            Site::Files(address) if rules.files.left_out == 0 => {
                let hosts = context.shared.hosts.get(address);
                hosts.and_then(|hosts| hosts.find(&request.host, candidates.plain_name()))
            }
            _ => None,
        };
        let is_for_files = |own: &&Arc<Rules>| {
            let is_other = own.upstream.is_some() || own.redirect.is_some() || own.fixed.is_some();
            let is_open = own.auth.is_none() && own.access.admits(self.peer.address);
            is_open && !is_other && own.files.left_out == 0
        };
        if let Some(own) = own.filter(is_for_files) {
            let own = Arc::clone(own);
            self.rules = Some(own);
        }
    }

    fn is_before_upstream(&self) -> bool {
        let rules = self.rules.as_ref();
        rules.is_some_and(|rules| rules.files.before_upstream)
    }

    /// No file answers, or the file is a script.
    fn ask_upstream(
        &mut self,
        key: usize,
        mut request: Box<Request>,
        candidates: &Candidates,
        context: &mut Context,
    ) {
        let rules = self.rules.as_ref();
        let Some(upstream) = rules.and_then(|rules| rules.upstream.clone()) else {
            return self.error(404, request, context);
        };
        // No file is open for it any more.
        self.taken = None;
        let script = (!candidates.name().is_empty()).then(|| Script {
            name: [b"/", candidates.name()].concat(),
            path_info: Vec::new(),
        });
        let fields = std::mem::take(&mut request.fields);
        if let Some(pool) = upstream.pool.clone() {
            return self.begin_lending(key, request, &fields, upstream, pool, context);
        }
        let asked = (upstream, script);
        self.begin_relay(key, request, &fields, asked, context);
    }
}

fn is_for_files(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head)
}
