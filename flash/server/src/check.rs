// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a configuration can be served, with all that it names.

use std::path::Path;

use anyhow::Result;

use crate::tls::Tls;
use crate::{config, sites};

/// Opens what the configuration names, and serves nothing.
///
/// # Errors
///
/// What is wrong.
pub fn file(path: &Path) -> Result<()> {
    let (_, hosts) = config::read(path)?;
    let listens = sites::listens(&hosts)?;
    for settings in listens.iter().filter_map(|listen| listen.tls.as_ref()) {
        Tls::load(settings)?;
    }
    sites::open(&hosts, &listens, &sites::Before::default())?;
    Ok(())
}
