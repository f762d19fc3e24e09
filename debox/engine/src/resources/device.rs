// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of devices.

/// The kernel's own form: 20 bits of minor number.
pub(super) fn device(number: u32) -> String {
    format!("{}:{}", number >> 20, number & 0xf_ffff)
}
