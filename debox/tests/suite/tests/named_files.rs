// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that users name: what is read is never written, what is no regular file is refused at once, and
//! no link is followed that another user planted.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use debox_history::tail_of;
use debox_history::History;
use debox_tests::debox_binary;
use debox_tests::require_root;
use debox_tests::Scratch;

/// Runs debox; one that waits for what never comes is ended.
fn debox<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    Command::new("timeout")
        .arg("--kill-after=1")
        .arg("60")
        .arg(debox_binary())
        .args(arguments)
        .output()
        .expect("timeout can be executed")
}

#[track_caller]
fn refused(done: &Output, words: &str) {
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(125), "{said}");
    assert!(said.contains(words), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

fn recorded(scratch: &Scratch, name: &str) -> PathBuf {
    require_root();
    let path = scratch.file(name);
    let done = debox([
        "record".as_ref(),
        "-o".as_ref(),
        path.as_os_str(),
        "--".as_ref(),
        "true".as_ref(),
    ]);
    assert!(done.status.success(), "{done:?}");
    path
}

#[test]
fn what_is_read_is_not_written() {
    let scratch = Scratch::new();
    let path = recorded(&scratch, "x.parquet");
    let other = scratch.file("other.parquet");
    fs::copy(&path, &other).expect("scratch is writable");
    let (hard, soft) = (scratch.file("hard"), scratch.file("soft"));
    fs::hard_link(&path, &hard).expect("a link");
    symlink("x.parquet", &soft).expect("a link");
    let before = fs::read(&path).expect("a file");
    let name = path.to_str().expect("a path");
    let directory = scratch.path().to_str().expect("a path");
    for output in [&path, &hard, &soft] {
        let output = output.to_str().expect("a path");
        let json = format!("--json={output}");
        for arguments in [
            vec!["report", name, "--html", output],
            vec!["report", name, &json],
            vec!["report", directory, &json],
            vec![
                "report",
                other.to_str().expect("a path"),
                "--against",
                name,
                &json,
            ],
            vec!["export", name, "--format", "ndjson", "-o", output],
            vec!["repair", name, "-o", output],
        ] {
            refused(&debox(&arguments), "is one of the files that are read");
            assert!(fs::read(&path).expect("a file") == before, "{arguments:?}");
        }
    }
    let rules = scratch.file("rules.toml");
    fs::write(&rules, "").expect("scratch is writable");
    let rules = rules.to_str().expect("a path");
    let guarded = debox(["guard", "--rules", rules, "-o", rules, "--", "true"]);
    refused(&guarded, "is one of the files that are read");
    let html = scratch.file("page");
    let html = html.to_str().expect("a path");
    let twice = debox(["report", name, "--html", html, &format!("--json={html}")]);
    refused(&twice, "is named for two things");
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let scratch = Scratch::new();
    let path = recorded(&scratch, "x.parquet");
    let name = path.to_str().expect("a path");
    let fifo = scratch.file("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo can be executed").success());
    let socket = scratch.file("socket");
    let _listener = UnixListener::bind(&socket).expect("a socket");
    for (what, said) in [
        (fifo.as_path(), "is a FIFO"),
        (&socket, "is a socket"),
        (Path::new("/dev/zero"), "is a character device"),
    ] {
        let what = what.to_str().expect("a path");
        for arguments in [
            vec!["report", what],
            vec!["report", name, "--against", what],
            vec!["export", what, "--format", "ndjson"],
            vec!["repair", what],
            vec!["record", "-o", what, "--", "true"],
            vec!["guard", "--rules", what, "--", "true"],
        ] {
            println!("{arguments:?}");
            refused(&debox(&arguments), said);
        }
    }
    let directory = scratch.path().to_str().expect("a path");
    refused(&debox(["repair", directory]), "is a directory");
    // And as the tail of a recording, or one of a directory.
    let lake = scratch.file("lake");
    fs::create_dir(&lake).expect("scratch is writable");
    fs::rename(&fifo, lake.join("a.parquet")).expect("scratch is writable");
    refused(&debox(["report".as_ref(), lake.as_os_str()]), "is a FIFO");
}

#[test]
fn a_repaired_file_can_go_to_another_directory() {
    let scratch = Scratch::new();
    let path = recorded(&scratch, "x.parquet");
    let rows = History::open(&[&path]).expect("a history").rows();
    let mut cut = fs::read(&path).expect("a file");
    cut.extend_from_slice(&[7; 1000]);
    fs::write(&path, &cut).expect("scratch is writable");
    let elsewhere = scratch.file("elsewhere");
    fs::create_dir(&elsewhere).expect("scratch is writable");
    let done = debox([
        "repair".as_ref(),
        path.as_os_str(),
        "-o".as_ref(),
        elsewhere.as_os_str(),
    ]);
    assert!(done.status.success(), "{done:?}");
    assert!(fs::read(&path).expect("a file") == cut, "it is as it was");
    let whole = History::open(&[elsewhere.join("x.parquet")]).expect("a history");
    assert_eq!((whole.rows(), whole.files[0].cut_off), (rows, 0));

    // A link is repaired where it leads to, with the tail there.
    let link = elsewhere.join("link.parquet");
    symlink(&path, &link).expect("a link");
    let done = debox(["repair".as_ref(), link.as_os_str()]);
    assert!(done.status.success(), "{done:?}");
    assert!(link.is_symlink());
    assert_eq!(History::open(&[&path]).expect("whole").files[0].cut_off, 0);
    assert!(!tail_of(&path).exists());
}

#[test]
fn links_that_are_planted_are_not_followed() {
    require_root();
    let scratch = Scratch::new();
    let shared = scratch.file("shared");
    fs::create_dir(&shared).expect("scratch is writable");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).expect("root may");
    let victim = scratch.file("victim");
    fs::write(&victim, "root's").expect("scratch is writable");
    let plant = |name: &str| {
        let link = shared.join(name);
        symlink(&victim, &link).expect("a link");
        std::os::unix::fs::lchown(&link, Some(65534), Some(65534)).expect("root may");
        link
    };
    // Files of a rotation and of a flight recorder have the next number that is free.
    plant("a-0000.parquet");
    plant("a-0001.parquet");
    let rotated = shared.join("a.parquet");
    let rotated = rotated.to_str().expect("a path");
    let done = debox(["record", "-o", rotated, "--rotate-time", "1h", "--", "true"]);
    assert!(done.status.success(), "{done:?}");
    assert!(
        History::open(&[shared.join("a-0002.parquet")])
            .expect("a file")
            .rows()
            > 0
    );
    // The name that the user gave is refused, with the kernel's own protection or without.
    let named = plant("b.parquet");
    let named = named.to_str().expect("a path");
    let words = "another user's symbolic link";
    refused(&debox(["record", "-o", named, "--", "true"]), words);
    refused(&debox(["run", "-o", named, "--", "true"]), words);
    let recording = shared.join("a-0002.parquet");
    let recording = recording.to_str().expect("a path");
    refused(
        &debox(["report", recording, &format!("--json={named}")]),
        words,
    );
    refused(
        &debox(["export", recording, "--format", "ndjson", "-o", named]),
        words,
    );
    refused(&debox(["repair", recording, "-o", named]), words);
    assert_eq!(fs::read_to_string(&victim).expect("a file"), "root's");
}
