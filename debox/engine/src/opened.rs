// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session with this process's own probes or with the broker's.

use anyhow::{bail, Result};

use crate::broker::{self, RemoteSession};
use crate::kernel;
use crate::options::Options;
use crate::session::Session;

pub(crate) enum Opened {
    Own(Box<Session>),
    Brokered(Box<RemoteSession>),
}

/// Loads the probes. The broker does so instead if this process may not, or if [`broker::VARIABLE`] names a broker.
pub(crate) fn open(options: Options) -> Result<Opened> {
    if kernel::may_load_probes() && !broker::is_named() {
        return Ok(Opened::Own(Box::new(Session::open(options)?)));
    }
    let Some(path) = broker::socket_path() else {
        bail!(
            "loading probes {}: {}",
            kernel::what_it_takes(),
            kernel::remedy()
        );
    };
    match RemoteSession::open(&path, options) {
        Ok(remote) => Ok(Opened::Brokered(Box::new(remote))),
        Err(error) if broker::is_absent(&error) && kernel::may_load_probes() => bail!(
            "no broker answers at {}, which {} names: unset it, and the probes are loaded by debox itself",
            path.display(),
            broker::VARIABLE
        ),
        Err(error) if broker::is_absent(&error) => bail!(
            "loading probes {}, and no broker answers: {}",
            kernel::what_it_takes(),
            kernel::remedy()
        ),
        Err(error) if broker::is_silent(&error) => {
            Err(error.context(format!("no session at {}", path.display())))
        }
        Err(error) => Err(error),
    }
}
