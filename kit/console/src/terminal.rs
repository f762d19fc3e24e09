// SPDX-License-Identifier: MIT OR Apache-2.0
//! How wide a terminal is.

use std::mem::MaybeUninit;

/// Columns of the terminal behind a descriptor; `None` if it is no terminal. A serial console is a terminal that does
/// not know its width; it counts as none.
pub fn terminal_width(descriptor: i32) -> Option<usize> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: the kernel writes no more than a winsize.
    let got = unsafe { libc::ioctl(descriptor, libc::TIOCGWINSZ, size.as_mut_ptr()) };
    // SAFETY: all zeroes are a winsize.
    let columns = unsafe { size.assume_init() }.ws_col;
    (got == 0 && columns > 0).then_some(usize::from(columns))
}
