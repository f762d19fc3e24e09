// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs beside the loops of all configurations: processes that start programs, and threads that write logs.

use std::path::Path;
use std::sync::mpsc;
use std::sync::Arc;

use anyhow::{bail, Context as _, Result};

use crate::limits::Limits;
use crate::log::{Log, LogFile};
use crate::plan::Plan;
use crate::sandbox::Role;
use crate::sites::VirtualHost;
use crate::stages::Starting;
use crate::upstream::application::host::{self, Host};
use crate::upstream::scripts::Scripts;
use crate::upstream::{script_host, Protocol};

/// The process that starts scripts, if a location has some.
pub fn start_scripts(plan: &Plan) -> Result<Option<Arc<Scripts>>> {
    let most = scripts_at_once(&plan.hosts);
    if most == 0 {
        return Ok(None);
    }
    check_forks(plan)?;
    let scripts = match plan.options.stages.stage.starting {
        Starting::Helper => script_host::start(most, plan.user.as_ref(), plan.is_sandboxed)?,
        Starting::Forks => script_host::forking(most)?,
    };
    Ok(Some(Arc::new(scripts)))
}

/// A loop that forks needs more rights than the sandbox leaves it.
pub fn check_forks(plan: &Plan) -> Result<()> {
    let stage = plan.options.stages.stage;
    let forks = stage.starting == Starting::Forks && scripts_at_once(&plan.hosts) > 0;
    if forks && plan.is_sandboxed {
        bail!(
            "in the stage `{}` loops fork to start scripts (`cgi`), which the sandbox does not allow: set \
             `sandbox = false`, or take a stage from `fork-helper` on",
            stage.name
        );
    }
    Ok(())
}

/// The process that starts applications, if a location has one.
pub fn start_applications(plan: &Plan) -> Result<Option<Arc<Host>>> {
    let starts = || host::start(plan.user.as_ref(), plan.is_sandboxed);
    has_applications(plan).then(starts).transpose()
}

pub fn has_applications(plan: &Plan) -> bool {
    let locations = plan.hosts.iter().flat_map(|host| &host.locations);
    let mut upstreams = locations.filter_map(|location| location.upstream.as_ref());
    upstreams.any(|it| matches!(it.protocol, Protocol::Application(_)))
}

/// How many scripts the locations may have at the same time.
pub fn scripts_at_once(hosts: &[VirtualHost]) -> usize {
    let locations = hosts.iter().flat_map(|host| &host.locations);
    let upstreams = locations.filter_map(|location| location.upstream.as_ref());
    let of_scripts = upstreams.filter(|it| matches!(it.protocol, Protocol::Cgi(_)));
    of_scripts.map(|it| it.settings.connections).sum()
}

/// What programs say to who runs the server, if a location has such programs.
pub fn start_messages(plan: &Plan, limits: &Limits) -> Result<Option<Arc<LogFile>>> {
    let locations = plan.hosts.iter().flat_map(|host| &host.locations);
    let mut upstreams = locations.filter_map(|location| location.upstream.as_ref());
    let has_messages = upstreams.any(|upstream| upstream.protocol.has_messages());
    has_messages.then(|| start_log(None, limits)).transpose()
}

/// `None`: the standard error stream.
pub fn start_log(path: Option<&Path>, limits: &Limits) -> Result<Arc<LogFile>> {
    let (status, statuses) = mpsc::channel();
    let (log, thread) = match path {
        Some(path) => Log::start(path, limits.prepare(Role::Log, &status))?,
        None => Log::start_messages(limits.prepare(Role::Messages, &status))?,
    };
    Ok(Arc::new(LogFile {
        path: path.map(Path::to_path_buf),
        log,
        thread,
        sandbox: statuses.recv().context("the log's thread has failed")?,
    }))
}
