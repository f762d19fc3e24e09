// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of a directory that has no index.

use std::fmt::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use html_escape::encode_double_quoted_attribute;
use percent_encoding::{percent_encode, AsciiSet, NON_ALPHANUMERIC};
use rustix::fs::{statx, AtFlags, Dir, FileType, StatxFlags};
use rustix::io::Errno;

use crate::files::{File, FileId};

/// Names in one page. There is no use in more, and the page is made in memory.
const MAX_NAMES: usize = 10_000;

/// What may stand in a segment of a path as it is (RFC 3986, 3.3).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The pages that are being sent, by directory and title. However many clients ask for one, and however slowly they read,
/// it is in memory once.
static PAGES: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
/// A directory that has changed so short a time before it was read may have changed again since, with the same time.
const SETTLED: Duration = Duration::from_secs(2);

struct Kept {
    directory: FileId,
    title: String,
    /// Of the directory, in seconds and nanoseconds.
    modified: (i64, u32),
    page: Weak<[u8]>,
}

/// Reads the directory, and so may wait for the disk.
pub fn page(directory: &File, title: &str) -> Result<Arc<[u8]>, Errno> {
    let about = statx(&directory.fd, "", AtFlags::EMPTY_PATH, StatxFlags::MTIME)?;
    let modified = (about.stx_mtime.tv_sec, about.stx_mtime.tv_nsec);
    let is_it = |kept: &Kept| {
        let is_same = kept.directory == directory.id && kept.title == title;
        is_same && kept.modified == modified
    };
    let found = pages()
        .iter()
        .find(|kept| is_it(kept))
        .map(|kept| kept.page.upgrade());
    if let Some(page) = found.flatten() {
        return Ok(page);
    }
    let begun = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let page: Arc<[u8]> = read(&directory.fd, title)?.into();
    let since = Duration::new(modified.0.try_into().unwrap_or(u64::MAX), 0);
    let mut pages = pages();
    pages.retain(|kept| kept.page.strong_count() > 0);
    if since.saturating_add(SETTLED) < begun {
        pages.push(Kept {
            directory: directory.id,
            title: title.to_string(),
            modified,
            page: Arc::downgrade(&page),
        });
    }
    Ok(page)
}

fn pages() -> MutexGuard<'static, Vec<Kept>> {
    PAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(directory: &OwnedFd, title: &str) -> Result<Vec<u8>, Errno> {
    let mut names: Vec<(bool, Vec<u8>)> = Vec::new();
    let mut is_whole = true;
    for entry in Dir::read_from(directory.as_fd())? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name.starts_with(b".") {
            continue;
        }
        if names.len() == MAX_NAMES {
            is_whole = false;
            break;
        }
        names.push((entry.file_type() == FileType::Directory, name.to_vec()));
    }
    names.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    Ok(write_page(&names, is_whole, title).into_bytes())
}

fn write_page(names: &[(bool, Vec<u8>)], is_whole: bool, title: &str) -> String {
    let title = encode_double_quoted_attribute(title);
    let mut page = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Index of {title}</title>\n\
         <h1>Index of {title}</h1>\n<ul>\n<li><a href=\"../\">../</a>\n"
    );
    for (is_directory, name) in names {
        let slash = if *is_directory { "/" } else { "" };
        let link = percent_encode(name, SEGMENT);
        let text = String::from_utf8_lossy(name);
        let text = encode_double_quoted_attribute(&text);
        // A name with a colon must not look like a scheme.
        let _ = writeln!(page, "<li><a href=\"./{link}{slash}\">{text}{slash}</a>");
    }
    page.push_str("</ul>\n");
    if !is_whole {
        let _ = writeln!(
            page,
            "<p>Only {MAX_NAMES} names are shown; there are more.</p>"
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Lookup, Root};

    #[test]
    fn a_page_is_in_memory_once_as_long_as_its_directory_is_the_same() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::write(place.path().join("a"), "").expect("room");
        let root = Root::open(place.path()).expect("it is there");
        let Lookup::Found(directory) = root.open_waiting(b"") else {
            panic!("it is there");
        };
        let age = |seconds| {
            let directory = std::fs::File::open(place.path()).expect("it is there");
            let modified = SystemTime::now() - Duration::from_secs(seconds);
            let times = std::fs::FileTimes::new().set_modified(modified);
            directory.set_times(times).expect("it is ours");
        };
        let of = |title| page(&directory, title).expect("a directory");
        age(1000);
        let first = of("/");
        assert!(Arc::ptr_eq(&first, &of("/")));
        assert!(!Arc::ptr_eq(&first, &of("/x/")));
        std::fs::write(place.path().join("b"), "").expect("room");
        let second = of("/");
        assert!(second.len() > first.len());
        // It may change again without another time.
        assert!(!Arc::ptr_eq(&second, &of("/")));
        age(500);
        drop(first);
        let third = of("/");
        assert!(Arc::ptr_eq(&third, &of("/")));
        let kept = pages();
        assert!(
            kept.iter()
                .filter(|kept| kept.directory == directory.id)
                .count()
                <= 2
        );
    }

    #[test]
    fn names_cannot_become_part_of_the_page() {
        let names = [
            (true, b"a b".to_vec()),
            (false, b"<i>\"javascript:x\"".to_vec()),
        ];
        let page = write_page(&names, true, "/<b>/");
        assert!(page.contains("href=\"./a%20b/\">a b/</a>"), "{page}");
        assert!(
            page.contains("href=\"./%3Ci%3E%22javascript%3Ax%22\">&lt;i&gt;&quot;"),
            "{page}"
        );
        assert!(page.contains("Index of /&lt;b&gt;/"), "{page}");
        assert!(!page.contains("there are more"));
    }
}
