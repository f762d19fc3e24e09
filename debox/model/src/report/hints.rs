//! Hints on what would provide function names for code in a report that has none.

use std::collections::BTreeSet;

use crate::frame::Frame;

/// The most hints in a report.
const MOST: usize = 3;

/// Sources of function names on this machine.
pub struct Sources<P> {
    /// The Debian package that a file is from; `None`: the file is from no package, or the package is not
    /// known.
    pub package_of: P,
    /// debuginfod's client is installed.
    pub has_debuginfod: bool,
}

/// A hint for each file of these callers that has no names for its functions, and for each Python whose own
/// functions are not among them.
pub fn of_callers<'a>(
    callers: impl IntoIterator<Item = &'a Frame>,
    sources: &Sources<impl Fn(&str) -> Option<String>>,
) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let files = callers.into_iter().filter_map(|caller| {
        let file = python(caller).or_else(|| nameless(caller))?;
        seen.insert(file).then_some(file)
    });
    let hints = files.map(|file| match version_of_python(file) {
        Some(version) => for_python(file, version),
        None => for_names(file, (sources.package_of)(file), sources.has_debuginfod),
    });
    hints.take(MOST).collect()
}

/// The file of a caller that is known only by its offset in the file, not in other memory.
fn nameless(caller: &Frame) -> Option<&str> {
    let file = caller.nameless_in()?;
    let is_file = !file.starts_with(['[', '(', '/']) && !file.contains(' ');
    is_file.then_some(file)
}

/// The file of a caller that is a function of Python's interpreter.
fn python(caller: &Frame) -> Option<&str> {
    let file = match &caller.place {
        Some(place) => place,
        None => nameless(caller)?,
    };
    version_of_python(file).map(|_| file)
}

/// `(3, 11)` of `python3.11` or `libpython3.11.so.1.0`.
fn version_of_python(file: &str) -> Option<(u32, u32)> {
    let version = file.strip_prefix("lib").unwrap_or(file);
    let version = version.strip_prefix("python")?;
    let (major, rest) = version.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn for_python(file: &str, version: (u32, u32)) -> String {
    if version >= (3, 12) {
        return format!(
            "{file} tells which Python functions run if it is started as `python3 -X perf` (or with \
             PYTHONPERFSUPPORT=1); `debox run` and `attach` show them with --detail callsites."
        );
    }
    format!(
        "{file} cannot tell which Python functions run: Python 3.12 and later can, started as \
         `python3 -X perf`."
    )
}

fn for_names(file: &str, package: Option<String>, has_debuginfod: bool) -> String {
    let mut hint = match package {
        None => format!(
            "{file} has no function names: build it with -g, and do not strip it; or install its \
             debug symbols"
        ),
        Some(package) => format!(
            "{file} has no function names: those of the Debian package {package} are in a package of \
             debug symbols, probably {package}-dbgsym (`find-dbgsym-packages` of debian-goodies names \
             it)"
        ),
    };
    if has_debuginfod {
        hint.push_str(&format!(
            "; `debuginfod-find debuginfo PATH/{file}` fetches them, if DEBUGINFOD_URLS names a server \
             that has them"
        ));
    }
    hint + "."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_names_have_one_hint_each() {
        let callers = [
            "libsqlite3.so.0.8.6+0xaa1b5",
            "libsqlite3.so.0.8.6+0xbb",
            "worker+0x12",
            "main+0xaf (server.c:22)",
            "JS:^answer /app/server.js:2:23+0x333 (jit)",
            "[heap]+0x12",
            "0x7f0012",
        ]
        .map(Frame::from);
        let package = |file: &str| file.starts_with("lib").then(|| "libsqlite3-0".to_string());
        let mut sources = Sources {
            package_of: package,
            has_debuginfod: false,
        };
        let hints = of_callers(&callers, &sources);
        assert_eq!(hints.len(), 2, "{hints:#?}");
        assert!(!hints.concat().contains("debuginfod"), "{hints:#?}");
        assert!(hints[0].starts_with("libsqlite3.so.0.8.6 has no function names"));
        assert!(hints[0].contains("libsqlite3-0-dbgsym"), "{}", hints[0]);
        assert!(hints[1].starts_with("worker has no function names: build it with -g"));
        sources.has_debuginfod = true;
        let hints = of_callers(&callers, &sources);
        assert!(hints.iter().all(|hint| hint.contains("debuginfod-find")));
    }

    #[test]
    fn pythons_say_what_shows_their_functions() {
        let sources = Sources {
            package_of: |_: &str| None,
            has_debuginfod: true,
        };
        let hint = |caller: &str| of_callers([&Frame::from(caller)], &sources).pop();
        for old in ["python3.11+0x1fe546", "_Py_read+0xbf (python3.11)"] {
            let hint = hint(old).unwrap();
            assert!(hint.starts_with("python3.11 cannot tell"), "{hint}");
        }
        let new = hint("_Py_read+0xbf (libpython3.13.so.1.0)").unwrap();
        assert!(new.contains("-X perf"), "{new}");
        assert_eq!(hint("py::handle:/app/main.py+0xb (jit)"), None);
        assert_eq!(hint("main+0x1 (python.c:7)"), None);
    }
}
