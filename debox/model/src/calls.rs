//! Names of system calls.

use std::borrow::Cow;

/// Added to the numbers of 32-bit calls.
pub const CALL_IA32: u32 = 0x10000;
/// The number of the time between calls.
pub const CALL_NONE: u32 = 0xff_ffff;

/// The pseudo-call of a thread's time between calls.
pub const USER: &str = "(user)";

/// The name of a call as the probes number it: `read`, `getpid (ia32)` for the 32-bit table,
/// `syscall_N` when the number is not known, `(user)` for the time between calls.
pub fn name(call: u32) -> String {
    if call == CALL_NONE {
        return USER.to_string();
    }
    if call & CALL_IA32 != 0 {
        let number = call & !CALL_IA32;
        return match syscalls::x86::Sysno::new(number as usize) {
            Some(known) => format!("{} (ia32)", known.name()),
            None => format!("syscall_{number} (ia32)"),
        };
    }
    match syscalls::x86_64::Sysno::new(call as usize) {
        Some(known) => known.name().to_string(),
        None => format!("syscall_{call}"),
    }
}

/// The name of an error, such as `ENOENT`.
pub fn error_name(errno: i32) -> Cow<'static, str> {
    match syscalls::Errno::new(errno).name() {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("errno {errno}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_right_table() {
        assert_eq!(name(0), "read");
        assert_eq!(name(20 | CALL_IA32), "getpid (ia32)");
        assert_eq!(name(9999), "syscall_9999");
        assert_eq!(name(CALL_NONE), "(user)");
        assert_eq!(error_name(2), "ENOENT");
        assert_eq!(error_name(4000), "errno 4000");
    }
}
