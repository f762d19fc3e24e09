// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output that cannot be written is no crash: every subcommand ends with the status that is documented for
//! it, whether standard output or standard error is a full device, a pipe without a reader, or closed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use debox_tests::{debox_binary, program, require_root, wait_for, Background, Exclusive, Scratch};

/// What debox and latlab end with when they fail themselves.
const FAILED: i32 = 125;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stream {
    Output,
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Trouble {
    Full,
    NoReader,
    Closed,
}

const TROUBLES: [(Stream, Trouble); 6] = [
    (Stream::Output, Trouble::Full),
    (Stream::Output, Trouble::NoReader),
    (Stream::Output, Trouble::Closed),
    (Stream::Error, Trouble::Full),
    (Stream::Error, Trouble::NoReader),
    (Stream::Error, Trouble::Closed),
];

/// Where a command line's product goes, if to one of the two.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Product {
    OnOutput,
    OnError,
    Elsewhere,
}
use Product::{Elsewhere, OnError, OnOutput};

/// A command line, the status that it ends with where output works, and where its product goes.
type Case = (&'static str, i32, Product);

/// The status where output does not work.
fn expected(case: &Case, stream: Stream, trouble: Trouble) -> i32 {
    let (_, status, product) = *case;
    let is_product = match stream {
        Stream::Output => product == OnOutput,
        Stream::Error => product == OnError,
    };
    // A reader who has gone has seen enough, and what is closed is closed on purpose.
    match is_product && trouble == Trouble::Full {
        true => FAILED,
        false => status,
    }
}

fn broken(trouble: Trouble) -> Stdio {
    match trouble {
        Trouble::Full => File::options()
            .write(true)
            .open("/dev/full")
            .expect("/dev/full")
            .into(),
        // The reading end is dropped here.
        Trouble::NoReader => std::io::pipe().expect("a pipe").1.into(),
        Trouble::Closed => Stdio::null(),
    }
}

/// Runs a command line with one of its streams in trouble; returns what it wrote to the other.
fn run(binary: &Path, words: &[String], stream: Stream, trouble: Trouble) -> (ExitStatus, String) {
    let mut command = match trouble {
        Trouble::Closed => {
            let close = if stream == Stream::Output {
                ">&-"
            } else {
                "2>&-"
            };
            let mut shell = Command::new("/bin/sh");
            shell
                .args(["-c", &format!("exec \"$0\" \"$@\" {close}")])
                .arg(binary);
            shell
        }
        _ => Command::new(binary),
    };
    command
        .args(words)
        .env_remove("LD_LIBRARY_PATH")
        .stdin(Stdio::null());
    match stream {
        Stream::Output => command.stdout(broken(trouble)).stderr(Stdio::piped()),
        Stream::Error => command.stdout(Stdio::piped()).stderr(broken(trouble)),
    };
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot start {words:?}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    (output.status, String::from_utf8_lossy(&said).into_owned())
}

/// What is wrong with one case in one trouble; empty if nothing is.
fn wrong_with(
    binary: &Path,
    case: &Case,
    words: &[String],
    (stream, trouble): (Stream, Trouble),
) -> Vec<String> {
    let line = case.0;
    let (status, said) = run(binary, words, stream, trouble);
    let wanted = expected(case, stream, trouble);
    let panicked = said.contains("panicked at");
    let mut wrong = Vec::new();
    if status.code() != Some(wanted) || panicked {
        let (code, signal) = (status.code(), status.signal());
        wrong.push(format!(
            "`{line}` with {stream:?} {trouble:?}: {code:?} (signal {signal:?}) and not {wanted}: {said}"
        ));
    }
    // Where the product is lost, one line says so, if there is where to.
    let is_lost = wanted == FAILED && case.1 != FAILED && stream == Stream::Output;
    if is_lost && !said.lines().any(|line| line.contains("cannot write")) {
        wrong.push(format!(
            "`{line}` does not say what it could not write: {said}"
        ));
    }
    wrong
}

/// Goes through all cases; all that is wrong is said together. Case by case, and where a case writes no file that is
/// the same in each trouble and `at_once` allows it, in all troubles at the same time: most of it is waiting.
#[track_caller]
fn go_through(
    binary: &Path,
    cases: &[Case],
    names: &[(&str, &OsStr)],
    at_once: bool,
    refresh: impl Fn(),
) {
    require_root();
    let _turn = Exclusive::take();
    let mut wrong = Vec::new();
    for case in cases {
        let words: Vec<String> = case
            .0
            .split(' ')
            .filter(|word| !word.is_empty())
            .map(|word| named(word, names))
            .collect();
        let writes = ["NEW", "SET", "PLACE", "disk"];
        if at_once && !case.0.split(' ').any(|word| writes.contains(&word)) {
            let words = &words;
            std::thread::scope(|scope| {
                let tried = TROUBLES
                    .map(|trouble| scope.spawn(move || wrong_with(binary, case, words, trouble)));
                for thread in tried {
                    wrong.extend(thread.join().expect("it does not panic"));
                }
            });
            continue;
        }
        for trouble in TROUBLES {
            refresh();
            wrong.extend(wrong_with(binary, case, &words, trouble));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn named(word: &str, names: &[(&str, &OsStr)]) -> String {
    let found = names.iter().find(|(name, _)| *name == word);
    found.map_or(word.to_string(), |(_, value)| {
        value.to_string_lossy().into_owned()
    })
}

/// The subcommands that the command line's own help names, and those that it hides.
#[track_caller]
fn check_all_are_tried(binary: &Path, cases: &[Case], hidden: &[&str]) {
    let help = Command::new(binary)
        .arg("--help")
        .output()
        .expect("it can be started");
    let help = String::from_utf8(help.stdout).expect("text");
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let first = |line: &str| {
        line.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_string()
    };
    let mut wanted: BTreeSet<String> = listed.map(first).collect();
    assert!(wanted.len() > 5, "{help}");
    wanted.extend(hidden.iter().map(ToString::to_string));
    let tried: BTreeSet<String> = cases.iter().map(|case| first(case.0)).collect();
    let left: Vec<_> = wanted.difference(&tried).collect();
    assert!(left.is_empty(), "no command line here tries {left:?}");
}

const DEBOX: &[Case] = &[
    ("run -- /bin/sh -c EXIT", 7, Elsewhere),
    ("run --format json -- /bin/sh -c EXIT", 7, Elsewhere),
    ("run --tap user -- /bin/sh -c EXIT", 7, Elsewhere),
    ("run -- /nonexistent", 127, Elsewhere),
    ("run -- /etc/passwd", 126, Elsewhere),
    ("run --output /dev/full -- /bin/true", FAILED, Elsewhere),
    ("run --no-such-option", 2, Elsewhere),
    ("run --help", 0, OnOutput),
    ("attach -p PID --for 100ms", 0, OnError),
    ("attach -p PID --for 100ms --format json", 0, OnError),
    ("attach -p PID --for 99999999999999999999s", 2, Elsewhere),
    ("attach -p 999999999 --for 100ms", FAILED, Elsewhere),
    ("record -o NEW --report -- /bin/sh -c EXIT", 7, Elsewhere),
    ("record -o NEW -p PID --for 100ms", 0, Elsewhere),
    ("guard --for 300ms -- /bin/sleep 9", 3, Elsewhere),
    (
        "guard -p PID --for 100ms --thread none --format json",
        3,
        Elsewhere,
    ),
    (
        "guard -p PID --for 100ms --stream --thread none",
        3,
        OnOutput,
    ),
    ("top -p PID --batch -n 1 --interval 100ms", 0, OnOutput),
    ("top -p PID", FAILED, Elsewhere),
    ("report HISTORY", 0, OnOutput),
    ("report HISTORY --json=-", 0, OnOutput),
    ("report /nonexistent", FAILED, Elsewhere),
    ("repair HISTORY", 0, Elsewhere),
    ("repair /nonexistent", FAILED, Elsewhere),
    ("export HISTORY --format folded -o -", 0, OnOutput),
    ("export HISTORY --format ndjson -o -", 0, OnOutput),
    ("export HISTORY --format perfetto -o -", 0, OnOutput),
    ("export HISTORY --format pprof -o NEW", 0, Elsewhere),
    ("broker --socket /etc/passwd/socket", FAILED, Elsewhere),
    ("man", 0, OnOutput),
    ("completions bash", 0, OnOutput),
    ("help", 0, OnOutput),
    ("--help", 0, OnOutput),
    ("--version", 0, OnOutput),
    ("no-such-subcommand", 2, Elsewhere),
];

#[test]
fn of_debox() {
    let (debox, scratch) = (debox_binary(), Scratch::new());
    let (history, new) = (scratch.file("history.parquet"), scratch.file("new"));
    let recorded = Command::new(&debox)
        .args(["record", "-o"])
        .arg(&history)
        .args(["--", "/bin/sh", "-c", "sleep 0.05 | cat"]) // so that there are sleeps to export
        .output()
        .expect("debox can be started");
    assert!(recorded.status.success(), "{recorded:?}");
    let sleeper = Background::start("timers", &["nanosleep", "100000", "100000000"]);
    let pid = sleeper.pid().to_string();
    let names: &[(&str, &OsStr)] = &[
        ("EXIT", OsStr::new("exit 7")),
        ("PID", OsStr::new(&pid)),
        ("HISTORY", history.as_os_str()),
        ("NEW", new.as_os_str()),
    ];
    let remove = || {
        let _ = fs::remove_file(&new);
    };
    go_through(&debox, DEBOX, names, false, remove);
    // What the doctor finds is the machine's affair.
    let healthy = Command::new(&debox)
        .arg("doctor")
        .output()
        .expect("it can be started");
    let status = healthy.status.code().expect("it ends by itself");
    let doctor = [
        ("doctor", status, OnOutput),
        ("doctor --format json", status, OnOutput),
    ];
    go_through(&debox, &doctor, names, false, remove);
    check_all_are_tried(&debox, &[DEBOX, &doctor].concat(), &["man", "completions"]);
}

/// The broker goes on serving when its standard error is full.
#[test]
fn of_a_broker_at_work() {
    require_root();
    let scratch = Scratch::new();
    let socket = scratch.file("socket");
    for trouble in [Trouble::Full, Trouble::NoReader] {
        let mut broker = Command::new(debox_binary())
            .args(["broker", "--socket"])
            .arg(&socket)
            .stdin(Stdio::null())
            .stderr(broken(trouble))
            .spawn()
            .expect("the broker can be started");
        wait_for(Duration::from_secs(20), || socket.exists());
        std::thread::sleep(Duration::from_millis(200));
        // SAFETY: the process is this one's child, which has not been waited for.
        unsafe { libc::kill(broker.id() as i32, libc::SIGTERM) };
        let status = broker.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{trouble:?}");
        let _ = fs::remove_file(&socket);
    }
}

const LATLAB: &[Case] = &[
    ("fileset create SET --size 1M", 0, OnOutput),
    ("run URL -d 200ms -w 0s -c 1 --max-lateness 9s", 0, OnOutput),
    ("run URL -d 200ms -w 0s -c 1 --max-lateness 9s --format json", 0, OnOutput),
    ("run http://127.0.0.1:1/ -d 200ms", 3, OnOutput),
    ("capacity URL -d 200ms -w 0s -c 1 --repeats 1 --max-lateness 9s", 0, OnOutput),
    (
        "profile URL -d 200ms -w 0s -c 1 --repeats 1 --loads 0.5 --capacity 100 --max-lateness 9s -o NEW",
        0,
        OnOutput,
    ),
    (
        "compare URL URL -d 200ms -w 0s -c 1 --repeats 2 --max-lateness 9s",
        0,
        OnOutput,
    ),
    ("conform URL --files /nonexistent", FAILED, Elsewhere),
    ("sweep URL --vary workers=1,2", FAILED, Elsewhere),
    ("recover --place PLACE", 0, OnOutput),
    ("study /nonexistent -o NEW", FAILED, Elsewhere),
    ("hot-cold nosuch -o NEW", FAILED, Elsewhere),
    ("analyze ROWS", 0, OnOutput),
    ("analyze ROWS --format json", 0, OnOutput),
    ("analyze /nonexistent", FAILED, Elsewhere),
    ("disk show", 0, OnOutput),
    ("disk down nosuch", FAILED, Elsewhere),
    ("servers", 0, OnOutput),
    ("server --listen 192.0.2.1:1", FAILED, Elsewhere),
    ("worker", FAILED, Elsewhere),
    ("man", 0, OnOutput),
    ("completions bash", 0, OnOutput),
    ("help", 0, OnOutput),
    ("--help", 0, OnOutput),
    ("run --no-such-option", 2, Elsewhere),
];

/// Ended when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn of_latlab() {
    let latlab: PathBuf = debox_binary().with_file_name("latlab");
    let scratch = Scratch::new();
    let mut server = Command::new(&latlab)
        .args([
            "server",
            "--listen",
            "127.0.0.1:0",
            "--service",
            "fixed:5ms",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("latlab can be started");
    let mut line = String::new();
    let stdout = server.stdout.take().expect("it is piped");
    let _server = Server(server);
    BufReader::new(stdout)
        .read_line(&mut line)
        .expect("it says where it listens");
    let url = format!(
        "http://{}/",
        line.trim().trim_start_matches("listening at ")
    );
    let rows = scratch.file("rows.csv");
    let text: String = (1..50).map(|n| format!("{n},{}\n", n * 100)).collect();
    fs::write(&rows, format!("latency_ms,size\n{text}")).expect("scratch is writable");
    let (set, new, place) = (
        scratch.file("set"),
        scratch.file("new"),
        scratch.file("place"),
    );
    fs::create_dir(&place).expect("scratch is writable");
    let names: &[(&str, &OsStr)] = &[
        ("URL", OsStr::new(&url)),
        ("SET", set.as_os_str()),
        ("NEW", new.as_os_str()),
        ("PLACE", place.as_os_str()),
        ("ROWS", rows.as_os_str()),
    ];
    go_through(&latlab, LATLAB, names, true, || {
        let _ = fs::remove_dir_all(&new);
    });
    check_all_are_tried(&latlab, LATLAB, &["man", "completions", "worker"]);
    let dynamic = latlab.with_file_name("latlab-dynamic");
    for (arguments, status) in [
        (&["--help"][..], 0),
        (&["--files", "/nonexistent", "--listen", "127.0.0.1:0"], 1),
        (&["--nonsense"], 2),
    ] {
        let words: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        for (stream, trouble) in TROUBLES {
            let (ended, said) = run(&dynamic, &words, stream, trouble);
            let lost = status == 0 && (stream, trouble) == (Stream::Output, Trouble::Full);
            let wanted = if lost { 1 } else { status };
            assert_eq!(
                ended.code(),
                Some(wanted),
                "{words:?} {stream:?} {trouble:?}: {said}"
            );
        }
    }
}

const HBENCH: &[Case] = &[
    ("run call.null --rounds 1 --sample 1ms", 0, OnOutput),
    (
        "run call.null --rounds 1 --sample 1ms --format json",
        0,
        OnOutput,
    ),
    ("run call.null --rounds 1 --sample 1ms -o NEW", 0, OnOutput),
    (
        "run call.null --rounds 1 --sample 1ms -o /dev/full",
        FAILED,
        Elsewhere,
    ),
    ("run nosuch", FAILED, Elsewhere),
    ("decompose nosuch", FAILED, Elsewhere),
    ("list", 0, OnOutput),
    ("show RESULT", 0, OnOutput),
    ("show RESULT --format json", 0, OnOutput),
    ("show /nonexistent", FAILED, Elsewhere),
    ("compare RESULT RESULT", 0, OnOutput),
    (
        "compare --live env env call.null --rounds 1 --sample 1ms",
        0,
        OnOutput,
    ),
    ("explain RESULT", 0, OnOutput),
    ("vector RESULT", 0, OnOutput),
    ("vector RESULT -o NEW", 0, OnOutput),
    ("vector RESULT -o /dev/full", FAILED, Elsewhere),
    ("predict RESULT RESULT", FAILED, Elsewhere),
    ("calibrate --on RESULT -o NEW RESULT=1s", FAILED, Elsewhere),
    ("sample nonsense", FAILED, Elsewhere),
    ("calls 1", 0, Elsewhere),
    ("man", 0, OnOutput),
    ("completions bash", 0, OnOutput),
    ("help", 0, OnOutput),
    ("--help", 0, OnOutput),
    ("run --no-such-option", 2, Elsewhere),
];

#[test]
fn of_hbench() {
    let hbench: PathBuf = debox_binary().with_file_name("hbench");
    let scratch = Scratch::new();
    let (result, new) = (scratch.file("result.parquet"), scratch.file("new"));
    let measured = Command::new(&hbench)
        .args([
            "run",
            "process.fork",
            "--rounds",
            "2",
            "--sample",
            "1ms",
            "-o",
        ])
        .arg(&result)
        .output()
        .expect("hbench can be started");
    assert!(measured.status.success(), "{measured:?}");
    let names: &[(&str, &OsStr)] = &[("RESULT", result.as_os_str()), ("NEW", new.as_os_str())];
    go_through(&hbench, HBENCH, names, true, || {
        let _ = fs::remove_file(&new);
    });
    check_all_are_tried(&hbench, HBENCH, &["man", "completions", "sample", "calls"]);
}

/// `debox run 2>&1 | head -0`: the command goes on and its status is the pipeline's own affair.
#[test]
fn the_program_itself_does_not_notice() {
    require_root();
    let _turn = Exclusive::take();
    let mut child = Command::new(debox_binary())
        .args(["run", "--"])
        .arg(program("timers"))
        .args(["nanosleep", "1000", "5"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(broken(Trouble::NoReader))
        .spawn()
        .expect("debox can be started");
    let mut said = String::new();
    let mut stdout = child.stdout.take().expect("it is piped");
    stdout.read_to_string(&mut said).expect("text");
    let status = child.wait().expect("it ends");
    assert!(status.success() && !said.is_empty(), "{status}: {said}");
}
