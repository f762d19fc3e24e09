// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names that would steer a terminal are shown and never sent to it, wherever they come from: processes,
//! files, directories, arguments, recordings, lists, replies.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use debox_tests::{debox_binary, program, require_root, wait_for, Exclusive, Scratch};

/// A terminal's title, a line of its own, and text from right to left.
const NAME: &str = "\u{1b}]0;pwned\u{7}\r\nFORGED\u{202e}\u{9b}2J";

/// A place with such a name, and a program with such a name in it.
struct Place {
    _scratch: Scratch,
    directory: PathBuf,
    program: PathBuf,
}

impl Place {
    fn new() -> Place {
        let scratch = Scratch::new();
        let directory = scratch.file(NAME);
        fs::create_dir(&directory).expect("a name may have any characters");
        let copy = directory.join(NAME);
        fs::copy(program("hostile"), &copy).expect("scratch is writable");
        Place {
            program: copy,
            directory,
            _scratch: scratch,
        }
    }

    /// A file whose name is hostile before its end.
    fn file(&self, end: &str) -> PathBuf {
        self.directory.join(format!("{NAME}{end}"))
    }

    /// The program and what it is given, to run for so long.
    fn command(&self, ms: u32) -> Vec<OsString> {
        let locked = self.file(".lock").into();
        vec![self.program.clone().into(), locked, ms.to_string().into()]
    }

    fn start(&self) -> Running {
        let words = self.command(600_000);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        Running(command.spawn().expect("the program can be run"))
    }
}

/// Killed in the end; its child goes with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn latlab() -> PathBuf {
    debox_binary().with_file_name("latlab")
}

fn words<S: AsRef<OsStr>>(words: &[S]) -> Vec<OsString> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}

/// Words of a command line, of which `FILE`, `PID` and the like stand for others.
fn line(text: &str, names: &[(&str, &OsStr)]) -> Vec<OsString> {
    let named = |word: &str| names.iter().find(|(name, _)| *name == word);
    text.split(' ')
        .map(|word| named(word).map_or(word.into(), |(_, value)| value.to_os_string()))
        .collect()
}

#[track_caller]
fn run(binary: &Path, arguments: &[OsString]) -> Output {
    require_root();
    let _turn = Exclusive::take();
    Command::new(binary)
        .args(arguments)
        .env_remove("LD_LIBRARY_PATH")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot start {binary:?}: {error}"))
}

/// What may not come out of anything.
fn is_hostile(character: char) -> bool {
    let is_bidi = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    is_bidi || character.is_control() && character != '\n'
}

/// Nothing in the text steers a terminal, and no line is one that a name has made.
#[track_caller]
fn check(what: &str, text: &[u8]) {
    let text = String::from_utf8(text.to_vec())
        .unwrap_or_else(|error| panic!("{what}: what is written is no text: {error}"));
    if let Some(found) = text.chars().find(|character| is_hostile(*character)) {
        panic!("{what} writes {found:?}: {text:?}");
    }
    for line in text.lines() {
        assert!(
            !line.starts_with("FORG"),
            "{what}: a name made a line: {text}"
        );
    }
}

/// Runs a command line; all its output is harmless, and its names are there to be read.
#[track_caller]
fn harmless(binary: &Path, arguments: &[OsString], status: i32, names: bool) -> Output {
    let output = run(binary, arguments);
    let what = format!("{arguments:?}");
    check(&format!("{what} stdout"), &output.stdout);
    check(&format!("{what} stderr"), &output.stderr);
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert_eq!(output.status.code(), Some(status), "{what}: {said}");
    let shown = ["\\x1b]0;p", "\\u001b]0;p", "\\x1b]0:p"]
        .iter()
        .any(|shown| said.contains(shown));
    assert!(!names || shown, "{what} does not show the name: {said}");
    output
}

#[test]
fn of_processes_and_files_in_reports() {
    let (place, debox) = (Place::new(), debox_binary());
    let with_command = |text: &str| {
        [
            words(&text.split(' ').collect::<Vec<_>>()),
            place.command(200),
        ]
        .concat()
    };
    for (text, status) in [
        ("run --all-rows --detail basic,sleeps,callsites,io --", 0),
        ("run --format json --", 0),
        ("run --tap user --", 0),
        ("guard --", 3),
        ("guard --format json --", 3),
        ("guard --format junit --", 3),
    ] {
        harmless(&debox, &with_command(text), status, true);
    }
    let running = place.start();
    let pid = OsString::from(running.0.id().to_string());
    let report = place.file(".json");
    let names: &[(&str, &OsStr)] = &[("PID", &pid), ("FILE", report.as_os_str())];
    for (text, status) in [
        ("attach -p PID --for 300ms --all", 0),
        ("attach -p PID --for 300ms --format json", 0),
        ("guard -p PID --for 300ms", 3),
        ("guard -p PID --for 300ms --format json", 3),
    ] {
        harmless(&debox, &line(text, names), status, true);
    }
    // The names are in the file.
    let text = "guard -p PID --for 300ms --format junit --output FILE";
    harmless(&debox, &line(text, names), 3, false);
    // Control characters have no place in XML at all.
    let xml = fs::read(&report).expect("the guard has written it");
    check("the file of --format junit", &xml);
}

#[test]
fn of_recordings() {
    let (place, debox) = (Place::new(), debox_binary());
    let (history, page) = (place.file(".parquet"), place.file(".html"));
    let (trace, profile) = (place.file(".pftrace"), place.file(".pb.gz"));
    let missing = place.file(".missing");
    let names: &[(&str, &OsStr)] = &[
        ("FILE", history.as_os_str()),
        ("PAGE", page.as_os_str()),
        ("TRACE", trace.as_os_str()),
        ("PROFILE", profile.as_os_str()),
        ("MISSING", missing.as_os_str()),
        ("PROGRAM", place.program.as_os_str()),
    ];
    let record = [
        line("record --report -o FILE --", names),
        place.command(300),
    ]
    .concat();
    harmless(&debox, &record, 0, true);
    for (text, status, shows) in [
        ("report FILE", 0, true),
        ("report --all FILE", 0, true),
        ("report FILE --json=-", 0, true),
        ("report FILE --against FILE", 0, true),
        ("report MISSING", 125, true),
        ("report PROGRAM", 125, true),
        ("repair FILE", 0, true),
        ("repair MISSING", 125, true),
        ("export FILE --format folded -o -", 0, true),
        ("export FILE --format ndjson -o -", 0, true),
        ("export FILE -o TRACE", 0, true),
        ("export FILE -o PROFILE", 0, true),
        ("export MISSING --format folded -o -", 125, true),
    ] {
        harmless(&debox, &line(text, names), status, shows);
    }
    let drawn = run(&debox, &line("report FILE --html PAGE", names));
    let said = String::from_utf8_lossy(&drawn.stderr).into_owned();
    if said.contains("--html cannot draw a page") {
        debox_tests::skipped(
            "the page of a recording",
            "this debox was built without pages",
        );
        return;
    }
    assert!(drawn.status.success(), "{said}");
    let page = fs::read_to_string(&page).expect("the page was written");
    let data = page
        .split("id=\"data\"")
        .nth(1)
        .expect("the page has its data");
    let data = data.split("</script>").next().expect("it ends");
    check("the page's data", data.as_bytes());
    assert!(data.contains("\\\\u{202e}") && !data.contains("\\u001b"));
}

#[test]
fn in_what_debox_refuses() {
    let (place, debox) = (Place::new(), debox_binary());
    let option = format!("--{NAME}");
    let missing = place.file(".missing");
    let names: &[(&str, &OsStr)] = &[
        ("NAME", OsStr::new(NAME)),
        ("OPTION", OsStr::new(&option)),
        ("MISSING", missing.as_os_str()),
        ("DIRECTORY", place.directory.as_os_str()),
    ];
    for (text, status) in [
        ("run -- MISSING", 127),
        ("run -- NAME", 127),
        ("run -- DIRECTORY", 126),
        ("run --output DIRECTORY -- /bin/true", 125),
        ("record -o DIRECTORY -- /bin/true", 125),
        ("guard --output DIRECTORY -- /bin/true", 125),
        ("broker --socket DIRECTORY", 125),
    ] {
        harmless(&debox, &line(text, names), status, true);
    }
    // A usage error may have the argument's own lines; none of its characters that steer.
    for text in [
        "run OPTION",
        "NAME",
        "run --format NAME -- /bin/true",
        "run --trigger NAME -- /bin/true",
    ] {
        let output = run(&debox, &line(text, names));
        assert_eq!(output.status.code(), Some(2), "{text}");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(!said.contains(is_hostile), "{text}: {said:?}");
    }
}

/// A server whose replies are hostile in every field, to as many connections as come.
fn hostile_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let bidi = "\u{202e}\u{9b}2J";
            let reply = match number % 4 {
                0 => format!("HTTP/1.1 200 {bidi}\r\nServer: \x1b]0;pwned\x07{bidi}\r\nContent-Length: 2\r\n\r\n\x1bc"),
                1 => format!("HTTP/1.1 200 OK\r\nServer: {bidi}\r\nX{bidi}: y\r\nContent-Length: 2\r\n\r\n\x1bc"),
                2 => format!("HTTP/1.1 200 OK\r\nContent-Length: \x1b[2J{bidi}\r\n\r\n"),
                _ => format!("\x1b]0;pwned\x07\r\n{bidi}"),
            };
            let _ = stream.write_all(reply.as_bytes());
        }
    });
    format!("http://{address}/")
}

#[test]
fn in_latlab() {
    let (place, latlab) = (Place::new(), latlab());
    let url = hostile_server();
    let mixed = format!("{url}{NAME}");
    let (rows, csv, toml) = (
        place.file(".parquet"),
        place.file(".csv"),
        place.file(".toml"),
    );
    let (set, missing, page) = (
        place.file(".set"),
        place.file(".missing"),
        place.file(".html"),
    );
    fs::write(
        &csv,
        "latency_ms,size,\u{202e}\u{1b}[2J\n1,10,x\n2,20,y\n3,30,z\n",
    )
    .expect("scratch");
    let name: String = NAME
        .chars()
        .map(|character| format!("\\U{:08x}", u32::from(character)))
        .collect();
    let server =
        format!("[[server]]\nname = \"{name}\"\nabout = \"{name}\"\nstart = [\"/{name}\"]\n");
    fs::write(&toml, server).expect("scratch");
    let names: &[(&str, &OsStr)] = &[
        ("NAME", OsStr::new(NAME)),
        ("URL", OsStr::new(&url)),
        ("MIXED", OsStr::new(&mixed)),
        ("ROWS", rows.as_os_str()),
        ("CSV", csv.as_os_str()),
        ("TOML", toml.as_os_str()),
        ("SET", set.as_os_str()),
        ("MISSING", missing.as_os_str()),
        ("PAGE", page.as_os_str()),
    ];
    for text in [
        "run URL -d 300ms -w 0s -c 2 -o ROWS",
        "run URL -d 300ms -w 0s -c 2 --format json",
        "capacity URL -d 300ms -w 0s -c 2 --repeats 1",
        "run MIXED -d 300ms -w 0s -c 2",
        "run NAME -d 300ms -w 0s",
        "run URL --urls MISSING -d 300ms",
        "run URL --log CSV -d 300ms",
        "compare NAME MISSING -d 300ms",
        "sweep NAME --vary workers=1,2",
        "fileset create SET --size 1M",
        "fileset create CSV --size 1M",
        "servers --servers TOML",
        "servers --servers CSV",
        "analyze CSV",
        "analyze CSV --format json",
        "analyze CSV --html PAGE",
        "analyze ROWS",
        "analyze MISSING",
        "analyze TOML",
        "recover MISSING --output ROWS",
        "recover --place MISSING",
        "disk down NAME",
        "disk up NAME --from MISSING --mount MISSING",
        "study -o CSV NAME",
        "NAME",
    ] {
        let output = run(&latlab, &line(text, names));
        let code = output.status.code();
        assert!(code.is_some_and(|code| code != 101), "{text}: {output:?}");
        for written in [&output.stdout, &output.stderr] {
            let written = String::from_utf8(written.clone()).expect("text");
            assert!(!written.contains(is_hostile), "{text}: {written:?}");
        }
    }
    let shown = run(&latlab, &line("analyze CSV", names));
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("\\x1b]0;pwned"), "{shown}");
}

/// The broker says where it listens.
#[test]
fn of_the_brokers_socket() {
    require_root();
    let place = Scratch::new();
    // Not the whole name: a socket's path has at most 107 bytes.
    let socket = place.file("\u{1b}[2J\u{202e}s");
    let mut broker = Command::new(debox_binary())
        .arg("broker")
        .arg("--socket")
        .arg(&socket)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the broker can be started");
    let listens = wait_for(Duration::from_secs(20), || socket.exists());
    // SAFETY: the process is this one's child, which has not been waited for.
    unsafe { libc::kill(broker.id() as i32, libc::SIGTERM) };
    let mut said = Vec::new();
    let mut stderr = broker.stderr.take().expect("it is piped");
    stderr.read_to_end(&mut said).expect("it can be read");
    broker.wait().expect("it ends");
    check("the broker", &said);
    assert!(listens && !said.is_empty());
}
