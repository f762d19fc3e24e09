//! Finds the Debian package of a program's file, and debug symbols that have already been fetched.

use std::fs::File;
use std::path::{Path, PathBuf};

use object::Object;

use crate::report::hints::Sources;

const LISTS: &str = "/var/lib/dpkg/info";

/// This machine's sources of names for code that has none. `path_of`: the path of such a file, of which the report
/// has only the last component.
pub(crate) fn sources(
    path_of: impl Fn(&str) -> Option<PathBuf>,
) -> Sources<impl Fn(&str) -> Option<String>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_client = |directory: PathBuf| directory.join("debuginfod-find").is_file();
    Sources {
        package_of: move |file: &str| package_of(&path_of(file)?, Path::new(LISTS)),
        has_debuginfod: std::env::split_paths(&path).any(has_client),
    }
}

/// The package that has this file, by dpkg's lists.
fn package_of(file: &Path, lists: &Path) -> Option<String> {
    let file = file.to_str()?;
    // Packages may name a file by the path that it had before /lib and others became links to /usr/lib.
    let is_it = |line: &str| line == file || file.strip_prefix("/usr") == Some(line);
    let lists = std::fs::read_dir(lists).ok()?.flatten();
    let mut lists = lists.map(|entry| entry.path()).filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "list")
    });
    let found = lists.find(|path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
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
    fn a_package_has_files_by_their_whole_paths() {
        let lists = tempfile::tempdir().expect("a directory");
        let list = |name: &str, text: &str| {
            std::fs::write(lists.path().join(name), text).expect("room");
        };
        list("tools.list", "/usr\n/usr/lib/tools/bin/worker\n");
        list("libx1:amd64.list", "/lib/x86_64-linux-gnu/libx.so.1\n");
        list("other.md5sums", "/opt/worker\n");
        let of = |file: &str| package_of(Path::new(file), lists.path());
        assert_eq!(of("/usr/lib/tools/bin/worker").as_deref(), Some("tools"));
        let library = "/usr/lib/x86_64-linux-gnu/libx.so.1";
        assert_eq!(of(library).as_deref(), Some("libx1"));
        // A program of one's own with the same name.
        assert_eq!(of("/home/me/bin/worker"), None);
        assert_eq!(of("/opt/worker"), None);
    }
}
