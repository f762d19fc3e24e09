// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sandbox of a configuration, as far as it is the same for all its threads.

use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::Arc;

use crate::address::Address;
use crate::plan::{Caller, Plan};
use crate::sandbox::{self, Paths, Reach, Role};

#[derive(Clone)]
pub struct Limits {
    /// `None`: there is no sandbox.
    paths: Option<Arc<Paths>>,
}

impl Limits {
    pub fn of(plan: &Plan) -> Limits {
        let tls = plan.hosts.iter().flat_map(|host| &host.tls);
        let pairs = tls.flat_map(|listen| &listen.settings.pairs);
        let pairs = pairs.flat_map(|pair| [pair.cert.clone(), pair.key.clone()]);
        let locations = plan.hosts.iter().flat_map(|host| &host.locations);
        let users = locations
            .clone()
            .filter_map(|location| location.auth.as_ref());
        let paths = Paths {
            roots: locations
                .filter_map(|location| location.directory.clone())
                .collect(),
            loaded: pairs.chain(users.map(|auth| auth.file.clone())).collect(),
            log: plan.log.clone(),
            sockets: sockets(plan),
            may_change: plan.caller == Caller::Reloads,
            upstreams: Reach::of(&plan.hosts),
            of_loops: plan.options.stages.stage.own_calls(),
            is_inherited: plan.caller != Caller::Library,
        };
        Limits {
            paths: plan.is_sandboxed.then(|| Arc::new(paths)),
        }
    }

    pub fn enter(&self, role: Role) -> sandbox::Status {
        match &self.paths {
            Some(paths) => sandbox::enter(role, paths),
            None => sandbox::Status::off(),
        }
    }

    /// What a new thread does first.
    pub fn prepare(&self, role: Role, status: &Sender<sandbox::Status>) -> impl FnOnce() + Send {
        let (limits, status) = (self.clone(), status.clone());
        move || {
            // Somebody waits for it, unless the start has failed.
            let _ = status.send(limits.enter(role));
        }
    }
}

/// The names of Unix sockets that the plan opens.
fn sockets(plan: &Plan) -> Vec<PathBuf> {
    let hosts = plan.hosts.iter();
    let served = hosts.flat_map(|host| {
        let tls = host.tls.iter().map(|listen| &listen.address);
        host.listen.iter().chain(tls)
    });
    let all = served.chain(&plan.metrics);
    let unix = all.filter_map(|address| match address {
        Address::Unix(path) => Some(path.clone()),
        Address::Inet(_) | Address::Passed(_) => None,
    });
    unix.collect()
}
