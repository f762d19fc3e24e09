//! Names of calls as C strings that are never freed.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, CStr, CString};
use std::sync::{Mutex, PoisonError};

use engine::record::Record;

/// The limit of names kept: more than both call tables have, so only numbers that are not calls can exceed it.
const NAMES_MAX: usize = 2048;

type Names = Option<HashMap<(c_int, c_int), &'static CStr>>;

pub fn call_name(call: c_int, abi: c_int) -> *const c_char {
    static NAMES: Mutex<Names> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_with(HashMap::new);
    if let Some(known) = names.get(&(call, abi)) {
        return known.as_ptr();
    }
    if names.len() >= NAMES_MAX {
        return c"unknown call".as_ptr();
    }
    let record = Record {
        call,
        abi: abi as u16,
        ..Record::default()
    };
    let name = CString::new(record.call_name()).unwrap_or_default();
    let name: &'static CStr = Box::leak(name.into_boxed_c_str());
    names.insert((call, abi), name);
    name.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_engines() {
        let name = |call, abi| {
            // SAFETY: names are never freed.
            unsafe { CStr::from_ptr(call_name(call, abi)) }
                .to_str()
                .unwrap()
        };
        assert_eq!(name(0, 0), "read");
        assert_eq!(name(1, 0), "write");
        assert_eq!(name(4, 1), "write (ia32)");
        assert_eq!(name(-1, 0), "(user)");
        assert_eq!(name(9999, 0), "syscall_9999");
        assert_eq!(call_name(0, 0), call_name(0, 0));
    }
}
