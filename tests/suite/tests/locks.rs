// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks of the kernel that no file and no process owns, and locks that were waited for before
//! anybody looked.

use debox_tests::skipped;
use debox_tests::Debox;
use debox_tests::Measured;
use serde_json::Value;

/// Whether the kernel's type information has a field of this name.
fn kernel_has(field: &str) -> bool {
    let types = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let name = [b"\0", field.as_bytes(), b"\0"].concat();
    types.windows(name.len()).any(|window| window == name)
}

/// Everything of a column of the sleeps of a call.
#[track_caller]
fn column<'a>(run: &'a Measured, call: &str, column: &str) -> Vec<&'a Value> {
    let sleeps = run.report["sleeps"].as_array().expect("a report");
    let rows = sleeps.iter().filter(|row| row["syscall"] == call);
    rows.flat_map(|row| row[column].as_array().expect("an array"))
        .collect()
}

fn count(shares: &[&Value]) -> u64 {
    shares.iter().filter_map(|s| s["count"].as_u64()).sum()
}

/// The kernel announces a wait for a semaphore without saying that it is one, and nothing but its
/// address tells which. It knows who took it last since 6.16.
#[test]
fn a_semaphore_of_the_kernels_own_is_named() {
    let name = "a_semaphore_of_the_kernels_own_is_named";
    let files = ["/dev/vcs1", "/sys/class/vtconsole/vtcon0/bind"];
    let Some(file) = files.iter().find(|file| std::fs::File::open(file).is_ok()) else {
        return skipped(name, "this machine has no virtual terminals");
    };
    let mut slept = false;
    for _ in 0..5 {
        let run = Debox::run("semaphore").args([file, "60", "1000"]).report();
        let sleeps = run.fact("sleeps");
        if sleeps < 40 {
            continue; // all of the time on one CPU
        }
        slept = true;
        let resources = column(&run, "pread64", "resources");
        let seen = count(&resources);
        assert!(seen * 10 >= sleeps * 9 && seen <= sleeps, "{seen} {sleeps}");
        for resource in resources {
            assert_eq!(resource["kind"], "semaphore", "{resource:#}");
            let is_named = matches!(
                resource["name"].as_str(),
                Some(name) if name == "console_sem" || name.starts_with("_stext+0x")
            );
            assert!(is_named, "{resource:#}");
        }
        let mut owners = column(&run, "pread64", "owners");
        assert_eq!(count(&owners), seen);
        owners.retain(|owner| owner["certainty"] != "none");
        for owner in &owners {
            assert_eq!(owner["certainty"], "last holder", "{owner:#}");
            let is_one = owner["comm"] == "reader" || owner["tid"] == run.fact("holder_tid");
            assert!(is_one, "{owner:#}");
        }
        run.call("pread64")
            .all_sleeps()
            .class("lock")
            .waiters("all", 1, 3);
        if !kernel_has("last_holder") {
            assert!(owners.is_empty(), "{owners:#?}");
            return;
        }
        if !owners.is_empty() {
            return;
        }
    }
    if !slept {
        return skipped(name, "its threads never met at the semaphore");
    }
    panic!("the kernel knows who took the semaphore, and no owner was ever named");
}
