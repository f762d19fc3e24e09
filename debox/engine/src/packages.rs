//! Finds the Debian package of a program's file, and debug symbols that have already been fetched.

use std::fs::File;
use std::path::{Path, PathBuf};

use object::Object;

use crate::report::hints::Sources;

const LISTS: &str = "/var/lib/dpkg/info";

/// This machine's sources of names for code that has none.
pub(crate) fn sources() -> Sources<fn(&str) -> Option<String>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_client = |directory: PathBuf| directory.join("debuginfod-find").is_file();
    Sources {
        package_of,
        has_debuginfod: std::env::split_paths(&path).any(has_client),
    }
}

/// The package that has a file of that name in a directory for programs or libraries, by dpkg's lists.
fn package_of(file: &str) -> Option<String> {
    let end = format!("/{file}");
    let lists = std::fs::read_dir(LISTS).ok()?.flatten();
    let mut lists = lists.map(|entry| entry.path()).filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "list")
    });
    let found = lists.find(|path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let is_it = |line: &str| {
            let is_code = ["/bin/", "/sbin/", "/lib/", "/libexec/"]
                .iter()
                .any(|directory| line.contains(directory));
            is_code && line.ends_with(&end)
        };
        text.lines().any(is_it)
    })?;
    let name = found.file_stem()?.to_string_lossy().into_owned();
    Some(name.split(':').next().unwrap_or_default().to_string())
}

/// The debug information of a file, if debuginfod's client has fetched it before. Nothing is fetched
/// here.
pub(crate) fn fetched_debug_information(file: &Path) -> Option<PathBuf> {
    let caches = caches();
    let mut caches = caches.iter().filter(|cache| cache.is_dir()).peekable();
    caches.peek()?;
    let cache = object::ReadCache::new(File::open(file).ok()?);
    let elf = object::File::parse(&cache).ok()?;
    let id = elf.build_id().ok()??;
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut found = caches.map(|cache| cache.join(&id).join("debuginfo"));
    // The client leaves an empty file if no server has the debug information.
    found.find(|path| path.metadata().is_ok_and(|found| found.len() > 0))
}

/// The directories in which the client keeps what it has fetched.
fn caches() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = variable("HOME").unwrap_or_default();
    let caches = variable("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache"));
    [
        variable("DEBUGINFOD_CACHE_PATH"),
        Some(caches.join("debuginfod_client")),
        Some(home.join(".debuginfod_client_cache")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_no_package_has_none() {
        assert_eq!(package_of("no-such-file-of-any-package"), None);
    }
}
