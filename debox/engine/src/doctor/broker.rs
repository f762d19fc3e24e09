//! Checks whether there is a broker, whether this user may use it, and what it offers.

use std::path::PathBuf;

use super::finding::Finding;
use crate::kernel;

/// Looks for a broker; returns its socket, or why it cannot be used.
pub(super) fn look() -> Result<PathBuf, String> {
    crate::broker::find()
}

pub(super) fn examine(found: &Result<PathBuf, String>) -> Finding {
    let need = "broker";
    let why = match found {
        Ok(path) => {
            let path = path.display();
            return Finding::met(
                need,
                format!(
                    "answers this user at {path}: `debox run` and the library work without \
                     privilege"
                ),
            );
        }
        Err(why) => why,
    };
    let remedy = "start one for all users: sudo debox broker, or systemctl enable --now \
                  debox-broker";
    if kernel::has_bpf_privilege() {
        return Finding::unused(need, why)
            .cost("users without privilege cannot measure their own programs")
            .remedy(remedy);
    }
    Finding::limits(need, why)
        .cost("nothing can be measured without privilege")
        .remedy(remedy)
}
