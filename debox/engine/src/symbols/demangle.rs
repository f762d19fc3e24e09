//! Restores the source names of C++ and Rust functions from their mangled names.
//!
//! A demangler takes nearly any short word for the name of a type: `i` for `int`, `St` for `std`. A C
//! function may have such a name. So only names with a prefix of mangled functions are demangled.

use std::borrow::Cow;

/// The prefixes of mangled names of functions: those of C++ and of older Rust (`_Z`, or `__Z` with the
/// underscore that some compilers put before every name), those of Rust (`_R`), and the functions by
/// which the compiler constructs and destroys a file's globals.
const PREFIXES: &[&str] = &["_Z", "__Z", "_R", "_GLOBAL_"];

/// The name in the program's source; a name that is not mangled is returned unchanged.
pub(crate) fn demangle(name: Cow<'_, str>) -> Cow<'_, str> {
    if !PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return name;
    }
    // Rust first: names of its older mangling are also valid in C++, but would keep the hash at their
    // end.
    let demangled = match rustc_demangle::try_demangle(&name) {
        Ok(rust) => Some(format!("{rust:#}")),
        Err(_) => cpp_demangle::Symbol::new(name.as_bytes())
            .ok()
            .and_then(|symbol| symbol.demangle().ok()),
    };
    demangled.map_or(name, Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demangled(name: &str) -> String {
        demangle(Cow::Borrowed(name)).into_owned()
    }

    #[test]
    fn functions_of_cpp_and_rust_have_their_written_names() {
        for (name, written) in [
            ("_ZN5store4readEi", "store::read(int)"),
            ("_Z4readv", "read()"),
            ("_ZSt9terminatev", "std::terminate()"),
            ("__Z4readv", "read()"),
            ("_ZN5store4read17h0123456789abcdefE", "store::read"),
            (
                "_RNvCskwGfYPst2Cb_3foo16example_function",
                "foo::example_function",
            ),
            // Parts and copies of functions that a compiler makes.
            ("_Z4readv.cold", "read() [clone .cold]"),
            (
                "_ZN5store4read17h0123456789abcdefE.cold",
                "store::read.cold",
            ),
        ] {
            assert_eq!(demangled(name), written);
        }
    }

    #[test]
    fn names_of_c_functions_stay_as_they_are() {
        let types = [
            "f", "i", "v", "b", "w", "x", "z", "St", "Sa", "Ss", "PKc", "Dn", "Ri", "RKi",
        ];
        // Names without the underscore, as on other systems, and names that only look mangled.
        let others = [
            "ZN5store4readEi",
            "RNvC3foo3bar",
            "Z4readv",
            "_Zone",
            "_Read",
            "_ZN",
            "_R",
            "_",
        ];
        for name in types.into_iter().chain(others) {
            assert_eq!(demangled(name), name);
        }
    }
}
