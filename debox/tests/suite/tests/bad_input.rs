// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes wrong goes wrong in words, with the right status, and leaves nothing behind. What is
//! the program's own affair - output, signals, status - passes through as with `time`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use debox_tests::debox_binary;
use debox_tests::wait_for;
use debox_tests::Background;
use debox_tests::Debox;
use debox_tests::KernelObject;
use debox_tests::Running;
use debox_tests::Scratch;

const SHORT: Duration = Duration::from_secs(10);

fn exists(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// A script that says that it runs, and then does as told.
fn script(text: &str) -> Debox {
    Debox::command("/bin/sh").args(["-c", text])
}

/// Waits until the program has said a word.
#[track_caller]
fn await_word(running: &Running, word: &str) {
    let said = wait_for(SHORT, || running.stdout().contains(word));
    assert!(
        said,
        "the program never said `{word}` but `{}`",
        running.stdout()
    );
}

#[test]
fn no_such_program() {
    let missing = "/nonexistent/program";
    Debox::command(missing)
        .finish()
        .code(127)
        .says(&["debox:", missing, "no such"]);
    let missing = "no-program-of-this-name";
    Debox::command(missing)
        .finish()
        .code(127)
        .says(&["debox:", missing, "no such"]);
}

#[test]
fn not_executable() {
    let scratch = Scratch::new();
    let plain = scratch.file("plain");
    fs::write(&plain, "not a program\n").expect("scratch is writable");
    Debox::command(&plain)
        .finish()
        .code(126)
        .says(&["plain", "cannot be executed"]);
    Debox::command(scratch.path())
        .finish()
        .code(126)
        .says(&["cannot be executed"]);
    // Executable by its mode, in a format that no kernel knows.
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o755)).expect("own file");
    Debox::command(&plain)
        .finish()
        .code(126)
        .says(&["plain", "cannot be executed"]);
}

#[test]
fn wrong_usage() {
    for arguments in [
        &[][..],
        &["run"],
        &["run", "--"],
        &["run", "--no-such-option", "--", "/bin/true"],
        &["run", "--detail", "everything", "--", "/bin/true"],
        &["run", "--tap", "telepathy", "--", "/bin/true"],
        &["run", "--format", "yaml", "--", "/bin/true"],
        &["attach"],
        &["attach", "-p", "init"],
        &["attach", "-p", "1", "--for", "soon"],
        &["no-such-command"],
    ] {
        Debox::bare(arguments).finish().code(2).says(&["--help"]);
    }
}

#[test]
fn the_process_is_gone() {
    let pid = Background::start("timers", &["nanosleep", "100000", "1"])
        .end()
        .to_string();
    Debox::bare(["attach", "-p", &pid])
        .finish()
        .code(125)
        .says(&["debox:", &pid, "no process"]);
}

#[test]
fn a_kernel_thread_is_refused() {
    Debox::bare(["attach", "-p", "2"])
        .finish()
        .code(125)
        .says(&["debox:", "kernel thread"]);
}

/// Without privileges nothing is run: a report of nothing would be worse than none.
#[test]
fn without_privilege() {
    let public = std::env::temp_dir().join(format!("debox-tests-{}", std::process::id()));
    fs::create_dir(&public).expect("a directory for temporary files");
    fs::set_permissions(&public, fs::Permissions::from_mode(0o755)).expect("own directory");
    let copy = public.join("debox");
    fs::copy(debox_binary(), &copy).expect("debox can be copied");
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let finished = Debox::command("/bin/echo")
        .args(["ran"])
        .binary(&copy)
        .finish_under(&nobody);
    fs::remove_dir_all(&public).expect("own directory");
    let finished = finished.code(125).says(&["debox:", "root"]);
    assert_eq!(finished.stdout, "", "the program must not run unmeasured");

    let no_capabilities = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    let finished = script("echo ran").finish_under(&no_capabilities).code(125);
    assert_eq!(finished.says(&["debox:", "CAP_BPF"]).stdout, "");
}

/// What a kernel without BTF looks like to programs.
#[test]
fn the_kernel_has_no_types() {
    let hide = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
    let hidden = ["unshare", "--mount", "sh", "-c", hide, "sh"];
    let finished = script("echo ran").finish_under(&hidden).code(125);
    let finished = finished.says(&["debox:", "this kernel has no BTF", "CONFIG_DEBUG_INFO_BTF"]);
    assert_eq!(finished.stdout, "", "the program must not run unmeasured");

    let doctor = Debox::bare(["doctor"]).finish_under(&hidden).code(1);
    let verdict = "debox does not work here: kernel types (BTF)";
    assert!(doctor.stdout.contains(verdict), "{doctor}");
    assert!(doctor.stdout.contains("CONFIG_DEBUG_INFO_BTF"), "{doctor}");
}

#[test]
fn the_report_cannot_be_written() {
    for place in ["/nonexistent/directory/report", "/"] {
        let finished = script("echo ran").options(["--output", place]).finish();
        let finished = finished.code(125).says(&["debox:", place]);
        assert_eq!(
            finished.stdout, "",
            "said before the program runs, not after"
        );
    }
}

/// The measurement is not thrown away with the disk: it goes to standard error instead.
#[test]
fn the_disk_is_full() {
    let full = script("echo ran")
        .options(["--format", "json", "--output", "/dev/full"])
        .finish();
    let full = full
        .code(125)
        .says(&["debox:", "/dev/full", "space", "debox.report/1"]);
    assert_eq!(full.stdout, "ran\n");
}

#[test]
fn output_and_status_pass_through() {
    let finished = script("echo out; echo err >&2; exit 42")
        .finish()
        .code(42)
        .says(&["err"]);
    assert_eq!(finished.stdout, "out\n");
    script("exit 0").finish().code(0).says(&["ran "]);
}

#[test]
fn a_program_that_is_killed() {
    for (signal, status) in [("KILL", 137), ("SEGV", 139), ("TERM", 143)] {
        script(&format!("kill -{signal} $$"))
            .finish()
            .code(status)
            .says(&["ran "]);
    }
}

/// The terminal sends SIGINT to both: the program decides, and debox reports.
#[test]
fn ctrl_c_reaches_the_program() {
    let running = script("echo ready; exec sleep 30").spawn();
    await_word(&running, "ready");
    running.signal_group(libc::SIGINT);
    running.finish().code(130).says(&["ran "]);

    let handling =
        script("trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.1; done");
    let running = handling.spawn();
    await_word(&running, "ready");
    running.signal_group(libc::SIGINT);
    let finished = running.finish().code(7).says(&["ran "]);
    assert!(finished.stdout.contains("caught"), "{finished}");
}

#[test]
fn a_signal_to_debox_alone_is_passed_on() {
    let running = script("echo ready; exec sleep 30").spawn();
    await_word(&running, "ready");
    running.signal(libc::SIGTERM);
    running.finish().code(143).says(&["ran "]);
}

/// debox waits for the command, as `time` does, and not for what the command leaves running.
#[test]
fn a_child_left_running_is_not_waited_for() {
    let start = Instant::now();
    script("sleep 8 >/dev/null & exit 3")
        .finish()
        .code(3)
        .says(&["ran "]);
    assert!(
        start.elapsed() < Duration::from_secs(6),
        "took {:?}",
        start.elapsed()
    );
}

/// Nothing of debox can run any more: what the kernel frees by itself must be everything.
#[test]
fn debox_is_killed() {
    let running = script("echo ready; sleep 3; echo done").spawn();
    await_word(&running, "ready");
    let program = running.await_child("sh");
    let objects = KernelObject::held_by(running.pid());
    assert!(
        objects.len() > 3,
        "debox holds BPF programs and maps: {objects:?}"
    );
    assert!(objects.iter().all(|object| object.exists()), "{objects:?}");

    running.signal(libc::SIGKILL);
    let output = running.stdout_path().to_path_buf();
    let finished = running.finish().died_of(libc::SIGKILL);
    assert!(exists(program), "the program goes on");
    let gone = wait_for(SHORT, || objects.iter().all(|object| !object.exists()));
    assert!(
        gone,
        "left behind: {:?}",
        objects.iter().filter(|object| object.exists())
    );
    let finished_too = wait_for(SHORT, || {
        fs::read_to_string(&output).is_ok_and(|text| text.ends_with("done\n"))
    });
    assert!(finished_too, "the program did not come to its end");
    drop(finished);
}

/// A session measures calls; one inside another would measure the other's.
#[test]
fn a_session_inside_a_session_is_refused() {
    let debox = debox_binary();
    let inner = ["run", "--", "/bin/echo", "ran"];
    let finished = Debox::command(&debox).args(inner).finish().code(125);
    let finished = finished.says(&["already", "under debox"]);
    assert_eq!(finished.stdout, "", "the inner program must not run");
    // However deep it lies.
    let words = format!("'{}' run -- /bin/echo ran; echo status $?", debox.display());
    let finished = script(&words)
        .finish()
        .code(0)
        .says(&["already", "under debox"]);
    assert_eq!(finished.stdout, "status 125\n");
}

/// The session ends: nothing may stay in the kernel after an ordinary run either.
#[test]
fn an_ordinary_end_leaves_nothing() {
    let running = script("echo ready; sleep 0.5").spawn();
    await_word(&running, "ready");
    let objects = KernelObject::held_by(running.pid());
    running.finish().code(0);
    let gone = wait_for(SHORT, || objects.iter().all(|object| !object.exists()));
    assert!(
        gone,
        "left behind: {:?}",
        objects.iter().filter(|object| object.exists())
    );
}
