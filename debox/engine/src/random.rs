// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers from the kernel.

use anyhow::Result;

/// A random number that cannot be guessed.
pub(crate) fn random() -> Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer has room for the requested bytes.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    anyhow::ensure!(got == 8, "the kernel returned no random numbers");
    Ok(u64::from_ne_bytes(bytes))
}
