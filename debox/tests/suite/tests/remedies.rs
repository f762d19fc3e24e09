// SPDX-License-Identifier: MIT OR Apache-2.0
//! What debox says where it cannot work: the cause that it is, and a remedy that helps.

use std::process::Command;

use debox_tests::debox_binary;
use debox_tests::require_root;
use debox_tests::skipped;

/// What `debox run` says, by way of these words.
fn said(words: &[&str], variables: &[(&str, &str)]) -> String {
    require_root();
    let binary = debox_binary();
    let binary = binary.to_str().expect("a path");
    let all = [words, &[binary, "run", "--", "true"]].concat();
    let done = Command::new(all[0])
        .args(&all[1..])
        .env_remove("DEBOX_BROKER")
        .envs(variables.iter().copied())
        .output()
        .expect("the program runs");
    assert_eq!(done.status.code(), Some(125));
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// Whether this machine lets its root do so.
fn may(words: &[&str]) -> bool {
    let tried = Command::new(words[0])
        .args(&words[1..])
        .arg("true")
        .status();
    let may = tried.is_ok_and(|status| status.success());
    if !may {
        skipped(&words.join(" "), "this machine does not allow it");
    }
    may
}

#[test]
fn a_broker_that_is_not_there_is_named_to_root_by_the_variable_that_names_it() {
    let text = said(&["env"], &[("DEBOX_BROKER", "/nonexistent/broker.sock")]);
    assert!(text.contains("/nonexistent/broker.sock"), "{text}");
    assert!(text.contains("DEBOX_BROKER"), "{text}");
    assert!(!text.contains("sudo"), "it has all rights: {text}");
}

#[test]
fn a_container_is_told_of_the_broker() {
    let inside = ["unshare", "--pid", "--fork", "--mount-proc"];
    if may(&inside) {
        let text = said(&inside, &[]);
        assert!(text.contains("PID namespace"), "{text}");
        assert!(text.contains("debox broker"), "{text}");
        assert!(!text.contains("sudo"), "it is root: {text}");
    }
}

#[test]
fn a_directory_that_is_not_mounted_is_the_cause() {
    if may(&["unshare", "--mount"]) {
        // What lies below may be another machine's: a guest's root is its host's.
        let script = "umount --lazy /sys && mount -t tmpfs none /sys && exec \"$@\"";
        let text = said(&["unshare", "--mount", "sh", "-c", script, "sh"], &[]);
        assert!(text.contains("/sys is not mounted"), "{text}");
    }
}
