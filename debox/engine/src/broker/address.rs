// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a program looks for a broker.

use std::path::PathBuf;

/// The default path of the broker's socket.
pub const SOCKET: &str = "/run/debox/broker.sock";

/// The default file that lists which users have which subordinate user ids.
pub const SUBORDINATES: &str = "/etc/subuid";

/// The environment variable that names another socket; if it is empty, no broker is used.
pub const VARIABLE: &str = "DEBOX_BROKER";

/// The path of the broker's socket; `None` if the environment disables the broker. Programs that run with
/// more rights than their caller ignore the caller's environment.
pub fn socket_path() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE) {
        Some(path) if !has_other_rights() => (!path.is_empty()).then(|| path.into()),
        _ => Some(SOCKET.into()),
    }
}

/// Whether this program runs with more rights than its caller, who made its environment.
pub(crate) fn has_other_rights() -> bool {
    // SAFETY: reads a word that the kernel passed at the start of the program.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether the environment names a broker. Then it is used even by a process with enough privilege to do
/// without.
pub(crate) fn is_named() -> bool {
    !has_other_rights() && std::env::var_os(VARIABLE).is_some_and(|path| !path.is_empty())
}
