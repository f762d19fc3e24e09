// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts a server, changes its configuration while it runs, and ends it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use anyhow::{bail, Context as _, Result};
use rustix::event::{eventfd, EventfdFlags};

use crate::address::Address;
use crate::companions::{
    check_forks, has_applications, scripts_at_once, start_applications, start_log, start_messages,
    start_scripts,
};
use crate::counts::add;
use crate::descriptors;
use crate::generation::{Generation, Parts};
use crate::limits::Limits;
use crate::network::Network;
use crate::ports::{CannotListen, Port};
use crate::sandbox::{self, Role};
use crate::stages::Starting;
use crate::tally::Tally;
use crate::tls::Tls;
use crate::upstream::application::host::Host;
use crate::upstream::scripts::Scripts;
use crate::user::Identity;

pub use crate::descriptors::room_for_connections;
pub use crate::plan::{Caller, Plan, HELPERS};

/// Earlier configurations whose requests have not ended. A further reload waits until one of them has.
const DRAINING: usize = 8;

/// A server that runs.
pub struct Server {
    current: Generation,
    /// Whose requests have not ended, the earliest first.
    draining: VecDeque<Generation>,
    tally: Tally,
    /// Counts loops that have ended.
    ended: Arc<OwnedFd>,
    fixed: Fixed,
    scripts: Option<Arc<Scripts>>,
    applications: Option<Arc<Host>>,
    /// Of the calling thread, if it is limited.
    sandbox: Option<sandbox::Status>,
    warnings: Vec<String>,
}

/// What cannot change while the process runs.
#[derive(PartialEq)]
struct Fixed {
    user: Option<Identity>,
    is_sandboxed: bool,
    /// Of scripts.
    starting: Starting,
}

impl Fixed {
    fn of(plan: &Plan) -> Fixed {
        Fixed {
            user: plan.user.clone(),
            is_sandboxed: plan.is_sandboxed,
            starting: plan.options.stages.stage.starting,
        }
    }
}

impl Server {
    /// # Errors
    ///
    /// A directory, an address or the log cannot be opened; the error names it.
    pub fn start(plan: Plan) -> Result<Server> {
        let limits = Limits::of(&plan);
        let fixed = Fixed::of(&plan);
        // Before all threads: they start processes.
        let applications = start_applications(&plan)?;
        let scripts = start_scripts(&plan)?;
        let connections = plan.loops * plan.options.max_connections;
        descriptors::make_room(connections, plan.options.stages.open_files());
        let network = Network::open(&plan, None)?;
        let passed = plan.passed.names().into_iter();
        let unused = passed.filter(|name| !network.has(&Address::Passed((*name).to_string())));
        let unused = unused.map(|name| {
            format!("systemd has passed the socket {name}, which no address names: clients wait there in vain")
        });
        let mut warnings: Vec<String> = unused.collect();
        // What comes now has no more rights than what is done again later.
        if let Some(user) = &plan.user {
            user.assume()?;
            let failed = network.tls().filter_map(|tls| tls.check().err());
            let name = user.name();
            warnings.extend(failed.map(|error| {
                format!("{name} will not be able to load certificates again: {error:#}")
            }));
        }
        let is_limited = plan.caller != Caller::Library;
        let sandbox = is_limited.then(|| limits.enter(Role::Main));
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let ended = Arc::new(eventfd(0, flags).context("no descriptor for the loops")?);
        let log = plan.log.as_deref();
        let log = log.map(|path| start_log(Some(path), &limits));
        let parts = Parts {
            log: log.transpose()?,
            messages: start_messages(&plan, &limits)?,
            scripts: scripts.clone(),
            applications: applications.clone(),
        };
        let mut tally = Tally::new()?;
        tally.make_room(plan.loops);
        let mut current = Generation::start(plan, network, parts, &tally, &ended, None)?;
        current.is_first();
        current.begin();
        Ok(Server {
            current,
            draining: VecDeque::new(),
            tally,
            ended,
            fixed,
            scripts,
            applications,
            sandbox,
            warnings,
        })
    }

    /// Serves another plan from now on, if it could be read. Connections go on: each is served by the new plan from its next request on. Those
    /// at addresses that the new plan does not have end with their requests, within the earlier plan's grace.
    ///
    /// # Errors
    ///
    /// What the new plan needs cannot be had, or it is an error already. The plan in force stays as it is.
    pub fn reload(&mut self, plan: Result<Plan>) -> Result<()> {
        let mut next = plan.and_then(|plan| self.prepare(plan))?;
        let reloads = &self.tally.reloads;
        add(&reloads.draining, 1);
        next.begin();
        self.current.hand_over(&next);
        // Requests that come now are served the new plan.
        add(&reloads.done, 1);
        self.reopen_log();
        let before = std::mem::replace(&mut self.current, next);
        self.draining.push_back(before);
        Ok(())
    }

    /// Counts a plan that could not be served. Who sees the number finds the error where it was reported.
    pub fn count_refusal(&self) {
        add(&self.tally.reloads.refused, 1);
    }

    /// A generation that waits to begin.
    fn prepare(&mut self, plan: Plan) -> Result<Generation> {
        let fixed = Fixed::of(&plan);
        if fixed.user != self.fixed.user {
            bail!("`user` cannot change while flash runs: restart it");
        }
        if fixed.is_sandboxed != self.fixed.is_sandboxed {
            bail!("`sandbox` cannot change while flash runs: restart it");
        }
        check_forks(&plan)?;
        let has_scripts = scripts_at_once(&plan.hosts) > 0;
        if has_scripts && fixed.starting != self.fixed.starting {
            bail!("how scripts (`cgi`) are started cannot change while flash runs: restart it for this `stage`");
        }
        let room = self.scripts.as_ref().map_or(0, |scripts| scripts.most);
        if scripts_at_once(&plan.hosts) > room {
            bail!(
                "flash makes room for scripts (`cgi`) when it starts, for {room} at the same time now: restart it for more"
            );
        }
        if has_applications(&plan) && self.applications.is_none() {
            bail!(
                "flash makes room for applications when it starts, and had none then: restart it"
            );
        }
        let network = Network::open(&plan, Some(&self.current.network));
        let network = network.map_err(|error| self.explain(error))?;
        let log = match (&plan.log, &self.current.parts.log) {
            (None, _) => None,
            (Some(path), Some(file)) if file.path.as_ref() == Some(path) => Some(Arc::clone(file)),
            (Some(path), _) => {
                let log = start_log(Some(path), &Limits::of(&plan));
                Some(log.map_err(|error| self.explain(error))?)
            }
        };
        let messages = match &self.current.parts.messages {
            Some(messages) => Some(Arc::clone(messages)),
            None => start_messages(&plan, &Limits::of(&plan))?,
        };
        let parts = Parts {
            log,
            messages,
            scripts: self.scripts.clone(),
            applications: self.applications.clone(),
        };
        self.tally.make_room(plan.loops);
        let before = Some(&self.current);
        Generation::start(plan, network, parts, &self.tally, &self.ended, before)
    }

    /// Adds why the process may not do now what it could do at its start.
    fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        use std::io::ErrorKind::{AddrInUse, PermissionDenied};
        let kind = error
            .chain()
            .find_map(|cause| cause.downcast_ref::<std::io::Error>().map(|it| it.kind()))
            .or_else(|| {
                let found = error.chain().find_map(|cause| cause.downcast_ref());
                found.map(|error: &rustix::io::Errno| error.kind())
            });
        let user = self.fixed.user.as_ref().map(Identity::name);
        let address = error.downcast_ref::<CannotListen>();
        let address = address.map(|CannotListen(address)| address);
        let why = match (kind, address, user) {
            (Some(PermissionDenied), Some(Address::Inet(_)), Some(user)) => format!(
                "flash runs as {user} now, who may not open ports below 1024: restart flash"
            ),
            (Some(AddrInUse), Some(Address::Inet(_)), Some(user)) => format!(
                "flash runs as {user} now, who may not share a port that root has opened: restart flash if it \
                 listens at another address of this port"
            ),
            (Some(PermissionDenied), Some(Address::Unix(_)), _) if self.fixed.is_sandboxed => {
                "in its sandbox, flash makes sockets only in directories where it had some at the start: use one of \
                 those, or restart flash"
                    .to_string()
            }
            (Some(PermissionDenied), None, _) if self.fixed.is_sandboxed => {
                "in its sandbox, flash makes logs only in the directory where its log was at the start: use that one, \
                 or restart flash"
                    .to_string()
            }
            _ => return error,
        };
        anyhow::anyhow!("{error:#}; {why}")
    }

    /// Frees what earlier plans had, once their loops have ended.
    pub fn reap(&mut self) {
        let _ = rustix::io::read(&self.ended, &mut [0u8; 8]);
        while self.draining.front().is_some_and(Generation::has_ended) {
            if let Some(Err(error)) = self.draining.pop_front().map(Generation::join) {
                kit_console::say_error("flash", &format!("{error:#}"));
            }
            self.tally.reloads.draining.fetch_sub(1, Ordering::Relaxed);
        }
        self.draining.front().unwrap_or(&self.current).is_first();
    }

    /// False: too many earlier plans have requests that have not ended. [`Server::reap`] makes room.
    pub fn has_room(&self) -> bool {
        self.draining.len() < DRAINING
    }

    /// Readable when a loop has ended.
    pub fn ended(&self) -> &OwnedFd {
        &self.ended
    }

    /// Where it listens, with the ports that the kernel chose.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        inet(self.current.network.ports(false))
    }

    pub fn tls_addresses(&self) -> Vec<SocketAddr> {
        inet(self.current.network.ports(true))
    }

    /// All addresses for readers.
    pub fn urls(&self) -> Vec<String> {
        let network = &self.current.network;
        let plain = network.ports(false).flat_map(|port| port.urls("http", "/"));
        let tls = network.ports(true).flat_map(|port| port.urls("https", "/"));
        plain.chain(tls).collect()
    }

    /// The addresses of the counters for readers.
    pub fn counts_urls(&self) -> Vec<String> {
        let port = self.current.network.counts();
        port.map(|port| port.urls("http", "/metrics"))
            .unwrap_or_default()
    }

    pub fn metrics(&self) -> Option<SocketAddr> {
        inet(self.current.network.counts().into_iter()).pop()
    }

    /// What the threads can still do.
    pub fn sandbox(&self) -> sandbox::Status {
        let status = self.current.sandbox();
        match &self.sandbox {
            Some(main) => status.weaker(main.clone()),
            None => status,
        }
    }

    /// What is not as one would expect, and works nevertheless.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Reads the files of all certificates again, one address after another.
    ///
    /// # Errors
    ///
    /// Those of the addresses that keep their certificates.
    pub fn reload_certificates(&self) -> Vec<anyhow::Error> {
        let all = self.current.network.tls();
        all.filter_map(|tls: &Tls| tls.reload().err()).collect()
    }

    /// Opens the log again by its name, as after a rotation.
    pub fn reopen_log(&self) {
        if let Some(file) = &self.current.parts.log {
            file.log.reopen();
        }
    }

    /// Answers the requests that are there, and ends.
    ///
    /// # Errors
    ///
    /// A loop had failed before.
    pub fn end(self) -> Result<()> {
        let all = self.draining.into_iter().chain([self.current]);
        let mut all: Vec<Generation> = all.collect();
        all.iter_mut().for_each(Generation::end);
        let mut ended = Ok(());
        for generation in all {
            generation.is_first();
            ended = ended.and(generation.join());
        }
        ended
    }
}

fn inet<'a>(ports: impl Iterator<Item = &'a Port>) -> Vec<SocketAddr> {
    let all = ports.flat_map(|port| &port.addresses);
    let inet = all.filter_map(|address| match address {
        Address::Inet(address) => Some(*address),
        Address::Unix(_) | Address::Passed(_) => None,
    });
    inet.collect()
}
