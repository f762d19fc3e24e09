//! Errors as codes and texts: `enum debox_error`.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, CStr, CString};

use engine::inband::Error;

/// Codes in the order of their numbers, -1 first, and what each means in general.
const TEXTS: [&CStr; 11] = [
    c"the process may not load probes: it takes root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE",
    c"the kernel lacks what the probes need",
    c"DeBox is enabled already",
    c"DeBox is not enabled",
    c"the thread is not monitored: there are more threads than max_threads",
    c"no such thread is monitored",
    c"an argument is out of its range",
    c"the operating system refused something; debox_last_error_text() says what",
    c"the scope began on another thread: it ends on the thread it began on",
    c"monitoring ended, or was started again, inside the scope",
    c"the program has closed DeBox's file descriptors; debox_enable() begins a new session",
];

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

pub fn code_of(error: &Error) -> c_int {
    match error {
        Error::Privilege(_) => -1,
        Error::Unsupported(_) => -2,
        Error::AlreadyEnabled => -3,
        Error::NotEnabled => -4,
        Error::NotMonitored => -5,
        Error::NoSuchThread(_) => -6,
        Error::Argument(_) | Error::Predicate(_) => -7,
        Error::System(_) => -8,
        Error::OtherThread => -9,
        Error::Interrupted => -10,
        Error::Closed => -11,
    }
}

/// Keeps the error's text for this thread and returns its code.
pub fn keep(error: &Error) -> c_int {
    let text = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
    code_of(error)
}

/// 0, or the code of an error whose text is kept.
pub fn outcome(result: Result<(), Error>) -> c_int {
    result.map_or_else(|error| keep(&error), |()| 0)
}

pub fn last_text() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

pub fn text_of(code: c_int) -> &'static CStr {
    if code >= 0 {
        return c"no error";
    }
    let index = code.unsigned_abs() as usize - 1;
    TEXTS.get(index).copied().unwrap_or(c"unknown error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_match_their_texts() {
        let meaning = |error: Error| text_of(code_of(&error)).to_str().unwrap().to_string();
        assert!(meaning(Error::Privilege(String::new())).contains("root"));
        assert!(meaning(Error::AlreadyEnabled).contains("already"));
        assert!(meaning(Error::NoSuchThread(1)).contains("no such thread"));
        assert!(meaning(Error::System(String::new())).contains("debox_last_error_text"));
        assert_eq!(text_of(0), c"no error");
        assert_eq!(text_of(c_int::MIN), c"unknown error");
    }

    #[test]
    fn the_last_text_is_kept() {
        assert_eq!(keep(&Error::System("no\0room".to_string())), -8);
        // SAFETY: the text lives until this thread's next error.
        assert_eq!(unsafe { CStr::from_ptr(last_text()) }, c"no room");
    }
}
