// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of a directory that has no index.

use std::fmt::Write;
use std::os::fd::{AsFd, OwnedFd};

use html_escape::encode_double_quoted_attribute;
use percent_encoding::{percent_encode, AsciiSet, NON_ALPHANUMERIC};
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

/// Names in one page. There is no use in more, and the page is made in memory.
const MAX_NAMES: usize = 10_000;

/// What may stand in a segment of a path as it is (RFC 3986, 3.3).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Reads the directory, and so may wait for the disk.
pub fn page(directory: &OwnedFd, title: &str) -> Result<Vec<u8>, Errno> {
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
