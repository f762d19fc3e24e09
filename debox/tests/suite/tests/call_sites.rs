// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where in the program a call was made: read() and nanosleep() from three functions each, in
//! optimized programs without frame pointers, counted by caller to the last one.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use debox_tests::brokered::Place;
use debox_tests::brokered::USER;
use debox_tests::skipped;
use debox_tests::wait_for;
use debox_tests::Debox;
use debox_tests::Measured;
use debox_tests::Scratch;
use debox_tests::HIDDEN_SWITCHES_ATTEMPTS;
use serde_json::Value;

const C: &str = include_str!("../../truth/callers/callers.c");
const CPP: &str = include_str!("../../truth/callers/callers.cpp");
const RUST: &str = include_str!("../../truth/callers/callers.rs");
const GO: &str = include_str!("../../truth/callers/callers.go.txt");
const FAULTS: &str = include_str!("../../truth/callers/faults.c");
const PLUGIN: &str = include_str!("../../truth/callers/plugin.c");

const C_FLAGS: &[&str] = &["-O2", "-g", "-fomit-frame-pointer"];

/// A program built for one test, with its source.
struct Program {
    scratch: Scratch,
    path: PathBuf,
    source: &'static str,
    file: &'static str,
}

impl Program {
    /// Writes the source and runs the compiler on it, in a directory that goes with the test.
    fn build(compiler: &str, flags: &[&str], file: &'static str, source: &'static str) -> Program {
        let scratch = Scratch::new();
        let path = scratch.file("callers");
        std::fs::write(scratch.file(file), source).expect("scratch directory is writable");
        let output = Command::new(compiler)
            .args(flags)
            .arg("-o")
            .arg(&path)
            .arg(scratch.file(file))
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "")
            .env("GOTOOLCHAIN", "local")
            .env("GOCACHE", scratch.file("cache"))
            .current_dir(scratch.path())
            .output()
            .unwrap_or_else(|error| panic!("cannot run {compiler}: {error}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler}: {errors}");
        Program {
            scratch,
            path,
            source,
            file,
        }
    }

    fn c() -> Program {
        Self::build("cc", C_FLAGS, "callers.c", C)
    }

    fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Measured {
        Debox::command(&self.path)
            .args(arguments)
            .options(["--detail", "callsites"])
            .report()
    }

    /// `(file:line)` of the line with that comment.
    #[track_caller]
    fn place(&self, comment: &str) -> String {
        let mut lines = self.source.lines();
        let at = lines.position(|line| {
            let comments = [format!("/* {comment} */"), format!("// {comment}")];
            comments.iter().any(|comment| line.ends_with(comment))
        });
        let at = at.unwrap_or_else(|| panic!("no line has the comment `{comment}`"));
        let file = self.file.trim_end_matches(".txt");
        format!("({file}:{})", at + 1)
    }
}

fn frames(site: &Value) -> Vec<&str> {
    let frames = site["frames"].as_array().expect("frames");
    frames.iter().map(|f| f.as_str().expect("text")).collect()
}

/// How many of the calls or sleeps were made in this function, at this place.
fn count(sites: &[Value], field: &str, function: &str, place: &str) -> u64 {
    let is_there = |site: &&Value| {
        frames(site)
            .iter()
            .any(|f| f.contains(function) && f.ends_with(place))
    };
    let there = sites.iter().filter(is_there);
    there
        .map(|site| site[field].as_u64().expect("a count"))
        .sum()
}

/// The call sites of one system call.
fn called(run: &Measured, name: &str) -> Vec<Value> {
    let sites = run.report["call_sites"].as_array().expect("a table");
    sites
        .iter()
        .filter(|site| site["syscall"] == name)
        .cloned()
        .collect()
}

/// The call sites of the sleeps in one system call.
fn slept(run: &Measured, name: &str) -> Vec<Value> {
    let sleeps = run.report["sleeps"].as_array().expect("a table");
    let of_call = sleeps.iter().filter(|sleep| sleep["syscall"] == name);
    of_call
        .flat_map(|sleep| sleep["call_sites"].as_array().expect("a list").clone())
        .collect()
}

/// Whether a frame is one of the program's functions from which calls are made, in any language.
fn is_caller(frame: &str) -> bool {
    let function = frame.split(['+', ' ', '(']).next().unwrap_or_default();
    let name = function.rsplit(['.', ':']).next().unwrap_or_default();
    name.starts_with("call_")
}

/// What callers.c promises, of `rounds` rounds.
#[track_caller]
fn every_caller_is_right(program: &Program, run: &Measured, rounds: u64, sleep: &str) {
    let reads = called(run, "read");
    let direct = program.place("direct read");
    let helper = program.place("inlined read");
    let inlined = program.place("caller of inlined");
    let library = program.place("library read");
    assert_eq!(
        count(&reads, "calls", "call_directly", &direct),
        3 * rounds,
        "{reads:#?}"
    );
    assert_eq!(
        count(&reads, "calls", "inlined_helper", &helper),
        2 * rounds,
        "{reads:#?}"
    );
    assert_eq!(
        count(&reads, "calls", "call_inlined", &inlined),
        2 * rounds,
        "{reads:#?}"
    );
    assert_eq!(
        count(&reads, "calls", "call_library", &library),
        rounds,
        "{reads:#?}"
    );

    let sleeps = slept(run, sleep);
    let direct = program.place("direct sleep");
    let helper = program.place("inlined sleep");
    let inlined = program.place("sleeper of inlined");
    assert_eq!(
        count(&sleeps, "count", "sleep_directly", &direct),
        rounds,
        "{sleeps:#?}"
    );
    assert_eq!(
        count(&sleeps, "count", "inlined_sleep", &helper),
        rounds,
        "{sleeps:#?}"
    );
    assert_eq!(
        count(&sleeps, "count", "sleep_inlined", &inlined),
        rounds,
        "{sleeps:#?}"
    );
    if program.source.contains("library sleep") {
        let library = program.place("library sleep");
        assert_eq!(
            count(&sleeps, "count", "sleep_library", &library),
            rounds,
            "{sleeps:#?}"
        );
    }

    // The wrappers are left out to name the caller.
    for site in &reads {
        if frames(site).iter().any(|f| is_caller(f)) {
            let caller = site["caller"].as_str().unwrap_or_default();
            assert!(
                caller.contains("call_") || caller.contains("inlined_"),
                "{site:#}"
            );
        }
    }

    // Those stacks are whole, and an inlined function is marked and stands above its caller.
    for site in reads.iter().chain(&sleeps) {
        let frames = frames(site);
        let Some(at) = frames.iter().position(|f| f.contains("inlined_")) else {
            continue;
        };
        assert!(frames[at].contains(" (inlined) "), "{frames:#?}");
        assert!(frames[at + 1].contains("_inlined"), "{frames:#?}");
        let last = frames.last().expect("a frame");
        assert!(!last.starts_with('('), "{frames:#?}");
    }
    assert_eq!(run.lost("stacks"), 0);
}

#[test]
fn c_without_frame_pointers() {
    let program = Program::c();
    every_caller_is_right(&program, &program.run(&["40"]), 40, "clock_nanosleep");
}

#[test]
fn cpp_without_frame_pointers() {
    let program = Program::build("c++", C_FLAGS, "callers.cpp", CPP);
    every_caller_is_right(&program, &program.run(&["40"]), 40, "clock_nanosleep");
}

#[test]
fn rust_without_frame_pointers() {
    let flags = [
        "-C",
        "opt-level=3",
        "-C",
        "debuginfo=1",
        "-C",
        "force-frame-pointers=no",
    ];
    let program = Program::build("rustc", &flags, "callers.rs", RUST);
    every_caller_is_right(&program, &program.run(&["40"]), 40, "clock_nanosleep");
}

#[test]
fn go_with_its_goroutines() {
    if Command::new("go").arg("version").output().is_err() {
        return skipped("go_with_its_goroutines", "there is no go");
    }
    // The test's own directory is no module; a file by its name is built as one.
    let program = Program::build("go", &["build"], "callers.go", GO);
    let run = program.run(&["40"]);
    every_caller_is_right(&program, &run, 40, "nanosleep");

    // Threads are made on the runtime's own stack, and its tables do not lead back from there.
    let clones = called(&run, "clone");
    let of_goroutines = clones.iter().map(frames).filter(|frames| {
        let is_switch = |frame: &&str| frame.starts_with("runtime.systemstack+");
        frames.iter().any(is_switch)
    });
    let mut seen = 0;
    for frames in of_goroutines {
        let last = frames.last().expect("a frame");
        assert!(last.contains("on the stack of a goroutine"), "{frames:#?}");
        seen += 1;
    }
    assert!(seen > 0, "{clones:#?}");
}

#[test]
fn a_static_program() {
    let flags: Vec<&str> = C_FLAGS.iter().copied().chain(["-static"]).collect();
    let program = Program::build("cc", &flags, "callers.c", C);
    every_caller_is_right(&program, &program.run(&["40"]), 40, "clock_nanosleep");
}

/// Its mappings cannot be read any more when its stacks are looked at.
#[test]
fn a_program_that_ends_at_once() {
    let program = Program::c();
    for _ in 0..5 {
        every_caller_is_right(&program, &program.run(&["1"]), 1, "clock_nanosleep");
    }
}

/// A user's own `debox run` unwinds the stacks that the broker's probes took.
#[test]
fn through_the_broker() {
    let place = Place::with_broker(&[]);
    let with_arguments = |path: &Path, rounds: u64| {
        place.report_of(USER, || {
            let callers = place.command(path).args([rounds.to_string()]);
            callers.options(["--detail", "callsites"])
        })
    };
    let program = Program::c();
    let copy = place.copy(&program.path);
    for rounds in [40, 1] {
        let run = with_arguments(&copy, rounds);
        every_caller_is_right(&program, &run, rounds, "clock_nanosleep");
    }
    std::fs::remove_file(&copy).expect("own file");
    if Command::new("go").arg("version").output().is_err() {
        return skipped("through_the_broker, Go", "there is no go");
    }
    let program = Program::build("go", &["build"], "callers.go", GO);
    let run = with_arguments(&place.copy(&program.path), 40);
    every_caller_is_right(&program, &run, 40, "nanosleep");
}

/// Processes are known by their numbers in the user's PID namespace, and files by the paths there.
#[test]
fn through_the_broker_in_a_pid_namespace() {
    let place = Place::with_broker(&[]);
    let Some(wrap) = place.words_in_namespace(USER) else {
        return;
    };
    let program = Program::c();
    let copy = place.copy(&program.path);
    for rounds in [40, 1] {
        let run = place.report_under(&wrap, || {
            let callers = place.command(&copy).args([rounds.to_string()]);
            callers.options(["--detail", "callsites"])
        });
        every_caller_is_right(&program, &run, rounds, "clock_nanosleep");
    }
}

/// Sleeps in faults are counted by the function of faults.c that slept, and their stacks are whole.
/// Returns how often each slept; `None`: it cannot be tried here.
fn faults_are_right(how: &str, rounds: u64) -> Option<[u64; 3]> {
    let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/../truth/programs");
    let flags = [C_FLAGS, &["-D_GNU_SOURCE", "-pthread", "-I", programs]].concat();
    let program = Program::build("cc", &flags, "faults.c", FAULTS);
    let run = Debox::command(&program.path)
        .args([how])
        .file_arg("mapped")
        .args([rounds.to_string()])
        .options(["--detail", "callsites"])
        .report();
    if run.fact("possible") == 0 {
        return None;
    }
    let sleeps = slept(&run, "(user)");
    let mut counts = [0; 3];
    for site in &sleeps {
        let frames = frames(site);
        let named = |at: usize, function: &str, comment: &str| {
            let frame = frames.get(at).copied().unwrap_or_default();
            frame.starts_with(function) && frame.ends_with(&program.place(comment))
        };
        let by_function = [
            // The instruction that was interrupted is in the first frame.
            named(0, "touch_directly", "direct touch"),
            named(0, "inlined_touch (inlined)", "inlined touch")
                && named(1, "touch_inlined", "caller of inlined"),
            frames.first().is_some_and(|f| f.contains("memchr"))
                && named(1, "touch_in_library", "library touch"),
        ];
        for (count, is_here) in counts.iter_mut().zip(by_function) {
            if is_here {
                *count += site["count"].as_u64().expect("a count");
                assert!(frames.iter().any(|f| f.starts_with("main")), "{site:#}");
                let caller = site["caller"].as_str().unwrap_or_default();
                assert!(caller.contains("touch"), "{site:#}");
            }
        }
        if by_function.contains(&true) {
            assert!(!frames.last()?.starts_with('('), "{site:#}");
        }
    }
    let names = ["slept_directly", "slept_inlined", "slept_in_library"];
    assert_eq!(counts, names.map(|name| run.fact(name)), "{sleeps:#?}");
    Some(counts)
}

#[test]
fn a_fault_is_where_it_was_taken() {
    match faults_are_right("answered", 12) {
        Some(counts) => assert!(counts.iter().all(|count| *count >= 12), "{counts:?}"),
        None => skipped("a_fault_is_where_it_was_taken", "there is no userfaultfd"),
    }
}

/// Pages that are read from a disk.
#[test]
fn a_major_fault_is_where_it_was_taken() {
    if faults_are_right("cold", 12).is_none_or(|counts| counts.contains(&0)) {
        skipped(
            "a_major_fault_is_where_it_was_taken",
            "the file's pages could not be made cold, or were read at once",
        );
    }
}

fn plugin_and_host() -> (Program, Program) {
    let flags: Vec<&str> = C_FLAGS.iter().copied().chain(["-DHOST", "-ldl"]).collect();
    let host = Program::build("cc", &flags, "plugin.c", PLUGIN);
    let flags: Vec<&str> = C_FLAGS
        .iter()
        .copied()
        .chain(["-shared", "-fPIC"])
        .collect();
    (Program::build("cc", &flags, "plugin.c", PLUGIN), host)
}

#[track_caller]
fn plugin_is_right(plugin: &Program, host: &Program, run: &Measured) {
    let reads = called(run, "read");
    for (program, function, comment) in [
        (plugin, "call_in_plugin", "plugin read"),
        (host, "main", "caller of the plugin"),
    ] {
        let place = program.place(comment);
        assert_eq!(count(&reads, "calls", function, &place), 500, "{reads:#?}");
    }
}

#[test]
fn a_library_that_is_loaded_late() {
    let (plugin, host) = plugin_and_host();
    plugin_is_right(&plugin, &host, &host.run(&[&plugin.path]));
}

/// However late debox comes to look at it: it is stopped until the program has ended.
#[test]
fn a_library_of_a_process_that_is_gone() {
    let (plugin, host) = plugin_and_host();
    let report = host.scratch.file("report.json");
    for attempt in 1.. {
        let running = Debox::command(&host.path)
            .args([plugin.path.as_os_str(), "held".as_ref()])
            .options(["--detail", "callsites", "--format", "json", "--output"])
            .options([&report])
            .spawn();
        let child = running.await_child("callers");
        let has_ended = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
            stat.is_ok_and(|stat| stat.contains(") Z "))
        };
        let ended = wait_for(Duration::from_secs(20), has_ended);
        running.signal(libc::SIGCONT);
        assert!(ended, "the program does not end");
        let finished = running.finish();
        if attempt == HIDDEN_SWITCHES_ATTEMPTS || !finished.proves_little(&report) {
            return plugin_is_right(&plugin, &host, &finished.measured(&report));
        }
    }
}

/// The unwinding tables are there all the same.
#[test]
fn a_stripped_program_shows_module_and_offset() {
    let flags: Vec<&str> = C_FLAGS.iter().copied().chain(["-s"]).collect();
    let program = Program::build("cc", &flags, "callers.c", C);
    let reads = called(&program.run(&["50"]), "read");
    let mut by_caller: BTreeMap<String, u64> = BTreeMap::new();
    for site in &reads {
        let frames = frames(site);
        if let Some(caller) = frames.iter().find(|f| f.starts_with("callers+0x")) {
            let calls = site["calls"].as_u64().expect("a count");
            *by_caller.entry(caller.to_string()).or_default() += calls;
        }
    }
    let mut counts: Vec<u64> = by_caller.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [50, 100, 150], "{reads:#?}");
}

/// debuginfod's client has fetched the debug information of a program without any, as a file of its own.
#[test]
fn fetched_debug_information_names_functions() {
    let program = Program::build(
        "cc",
        &[C_FLAGS, &["-Wl,--build-id"]].concat(),
        "callers.c",
        C,
    );
    let cache = program.scratch.file("cache");
    let id = build_id(&program.path);
    std::fs::create_dir_all(cache.join(&id)).expect("scratch directory is writable");
    let apart = cache.join(&id).join("debuginfo");
    let stripped = program.scratch.file("stripped");
    let of = |words: &[&str], paths: &[&Path]| {
        let done = Command::new(words[0])
            .args(&words[1..])
            .args(paths)
            .status();
        assert!(done.expect("binutils are there").success(), "{words:?}");
    };
    of(&["objcopy", "--only-keep-debug"], &[&program.path, &apart]);
    of(&["objcopy", "--strip-all"], &[&program.path, &stripped]);
    std::fs::rename(&stripped, &program.path).expect("scratch directory is writable");
    let variable = format!("DEBUGINFOD_CACHE_PATH={}", cache.display());
    for attempt in 1..=HIDDEN_SWITCHES_ATTEMPTS {
        let report = program.scratch.file("report.json");
        let finished = Debox::command(&program.path)
            .args(["40"])
            .options(["--detail", "callsites", "--format", "json", "--output"])
            .options([&report])
            .finish_under(&["env", &variable]);
        if attempt == HIDDEN_SWITCHES_ATTEMPTS || !finished.proves_little(&report) {
            let run = finished.measured(&report);
            return every_caller_is_right(&program, &run, 40, "clock_nanosleep");
        }
    }
}

fn build_id(program: &Path) -> String {
    let notes = Command::new("readelf").arg("-n").arg(program).output();
    let notes = notes.expect("binutils are there").stdout;
    let notes = String::from_utf8(notes).expect("text");
    let id = notes.split_once("Build ID: ").expect("a build ID").1;
    id.split_whitespace().next().expect("a number").to_string()
}

/// As in a container: the program's file is on an overlay among mounts of its own, which are gone with
/// it; what it maps may show another device and inode than its path.
#[test]
fn a_program_on_an_overlay_in_mounts_of_its_own() {
    let program = Program::c();
    let (below, merged) = (
        program.scratch.file("below"),
        program.scratch.file("merged"),
    );
    for directory in [&below, &merged] {
        std::fs::create_dir(directory).expect("scratch directory is writable");
    }
    let overlay = |then: &str| {
        let layers = format!(
            "lowerdir={}:{}",
            program.scratch.path().display(),
            below.display()
        );
        let merged = merged.display();
        let script = format!("mount -t overlay overlay -o {layers} {merged} && {then}");
        ["--mount", "sh", "-c", &script].map(str::to_string)
    };
    let tried = Command::new("unshare").args(overlay("true")).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        let name = "a_program_on_an_overlay_in_mounts_of_its_own";
        return skipped(name, "no overlay can be mounted on this file system");
    }
    let run = Debox::command("unshare")
        .args(overlay(&format!("exec {}/callers 40", merged.display())))
        .options(["--detail", "callsites"])
        .report();
    every_caller_is_right(&program, &run, 40, "clock_nanosleep");
}
