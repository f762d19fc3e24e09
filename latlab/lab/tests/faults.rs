//! Each fault is reported as what it is and counted, and what was measured before it is kept.

mod support;

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{errors, files, free_port, latlab, number, run, server, LATLAB};

/// A closed loop with one connection, so the server's n-th request is the client's n-th.
fn one_by_one(fault: &str, requests: u64, more: &[&str]) -> serde_json::Value {
    let place = tempfile::tempdir().expect("a directory");
    let files = files(place.path());
    let (_server, url) = server(&["--fault", fault]);
    let requests = requests.to_string();
    let mut all = vec![
        "--files",
        &files,
        "-c",
        "1",
        "-n",
        &requests,
        "--duration",
        "60s",
    ];
    all.extend(["--verify", "100%"]);
    all.extend(more);
    run(&url, &all)
}

#[test]
fn each_fault_is_counted_as_what_it_is() {
    let kinds = [
        ("short/10", "short"),
        ("less/10", "short"),
        ("more/10", "long"),
        ("surplus/10", "long"),
        ("status/10", "status"),
        ("content/10", "content"),
        ("garbage/10", "malformed"),
    ];
    for (fault, kind) in kinds {
        let summary = one_by_one(fault, 100, &[]);
        assert_eq!(errors(&summary, kind), 10, "{fault}: {summary:#}");
        assert_eq!(number(&summary, "/ok"), 90, "{fault}: {summary:#}");
        assert_eq!(number(&summary, "/requests"), 100, "{fault}");
    }
}

/// Whether the connection ends with a FIN or a reset: a server that closes an idle connection while a
/// request is on its way answers that request with a reset.
#[test]
fn a_connection_that_ends_before_a_request_is_begun_anew() {
    for (fault, error, resets) in [("close/10", "closed", 0), ("reset/10", "reset", 11)] {
        let summary = one_by_one(fault, 100, &[]);
        assert_eq!(number(&summary, "/ok"), 100, "{fault}: {summary:#}");
        // The server's 10th, 20th, ... request: 100 requests took 111.
        assert_eq!(number(&summary, "/retried"), 11, "{fault}: {summary:#}");
        assert_eq!(number(&summary, "/retried_after_reset"), resets, "{fault}");
        // On a new connection it is an error.
        let summary = one_by_one(fault, 100, &["--per-connection", "1"]);
        assert_eq!(errors(&summary, error), 10, "{summary:#}");
        assert_eq!(number(&summary, "/retried"), 0, "{summary:#}");
        assert_eq!(number(&summary, "/connections_opened"), 100);
    }
    // It is sent again only once.
    let summary = one_by_one("reset/1", 20, &[]);
    assert_eq!(errors(&summary, "reset"), 20, "{summary:#}");
}

/// Posted forms are not sent again: the server may have processed them.
#[test]
fn a_post_is_not_sent_again() {
    let mix = ["--mix", "full"];
    for (fault, error) in [("close/10", "closed"), ("reset/10", "reset")] {
        let summary = one_by_one(fault, 1000, &mix);
        let (failed, retried) = (errors(&summary, error) as i64, number(&summary, "/retried"));
        // 4.8 % are posted: some 5 of the 100 on which it ends the connection.
        assert!((1..20).contains(&failed), "{summary:#}");
        // Each request that failed, or was sent again, is one of the server's tenth requests.
        assert_eq!(failed + retried, (1000 + retried) / 10, "{summary:#}");
    }
}

/// A reset in the middle of a reply is an error on any connection.
#[test]
fn a_reset_after_the_first_byte_is_an_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("it has one"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve_and_reset(stream.expect("a connection"));
        }
    });
    let summary = run(&url, &["-c", "1", "-n", "20", "--duration", "60s"]);
    // The second on each connection.
    assert_eq!(errors(&summary, "reset"), 10, "{summary:#}");
    assert_eq!(number(&summary, "/retried"), 0, "{summary:#}");
}

/// Answers one request completely and the next by half. Closing with unread data causes a reset.
fn serve_and_reset(mut stream: std::net::TcpStream) {
    let mut buffer = [0; 4096];
    let replies = [
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok\r\n",
        "HTTP/1.1 200 OK\r\nContent-",
    ];
    for reply in replies {
        if stream.read(&mut buffer).is_ok_and(|length| length > 0) {
            stream.write_all(reply.as_bytes()).expect("it is there");
        }
    }
    // The client must see the half before the reset, because a reset discards unread data.
    std::thread::sleep(Duration::from_millis(20));
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the option is such a structure.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
}

#[test]
fn a_server_that_hangs_is_given_up() {
    let summary = one_by_one("hang/20", 40, &["--timeout", "300ms"]);
    assert_eq!(errors(&summary, "timeout"), 2, "{summary:#}");
    assert_eq!(number(&summary, "/ok"), 38);
}

/// One in four hangs: the median is known, but nothing about the slowest quarter is.
#[test]
fn percentiles_beside_timeouts_are_those_of_the_survivors() {
    let (_server, url) = server(&["--service", "fixed:2ms", "--fault", "hang/4"]);
    let rate = ["--rate", "100", "--gaps", "constant", "-c", "512"];
    let times = ["--duration", "1s", "--timeout", "1500ms"];
    let summary = run(&url, &[&rate[..], &times].concat());
    let ok = number(&summary, "/ok");
    assert_eq!(
        (
            number(&summary, "/requests"),
            errors(&summary, "timeout") as i64
        ),
        (100, 100 - ok)
    );
    assert!((70..80).contains(&ok), "{summary:#}");
    let all = &summary["latency_with_failures"];
    // The 50th of 100 is the 50th of those that were answered, above their median.
    let (with, without) = (
        number(all, "/p50_ns"),
        number(&summary, "/latency_from_intended/p50_ns"),
    );
    assert!(with >= without, "{summary:#}");
    for unknown in ["p90_ns", "p95_ns", "p99_ns"] {
        assert!(all[unknown].is_null(), "{all:#}");
    }
    let text = [&["run", &url, "--max-lateness", "1h"], &rate[..], &times].concat();
    let text = String::from_utf8_lossy(&latlab(&text).stdout).into_owned();
    assert!(text.contains("good requests alone. With the 2"), "{text}");
    assert!(text.contains("p95 not known, p99 not known"), "{text}");
    let (_server, url) = server(&[]);
    let summary = run(&url, &["-n", "10", "--duration", "30s"]);
    assert!(summary["latency_with_failures"].is_null());
}

/// A message that a run is not valid names the run and the server.
#[test]
fn messages_of_procedures_name_the_server_and_the_load() {
    let place = tempfile::tempdir().expect("a directory");
    let (_server, url) = server(&[]);
    let output = place.path().join("profile").display().to_string();
    let loads = ["--capacity", "200", "--loads", "0.25,0.5", "--repeats", "1"];
    let all = [
        "profile",
        &url,
        "--max-lateness",
        "0s",
        "--duration",
        "500ms",
        "--warmup",
        "100ms",
    ];
    let output = latlab(&[&all[..], &loads, &["-o", &output]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    for load in ["0.25", "0.5"] {
        let named = format!("NOT VALID: {url}, load {load}: the generator was late");
        assert!(said.contains(&named), "{said}");
    }
}

#[test]
fn a_server_that_dies_is_refused_from_then_on() {
    let summary = one_by_one("die/50", 100, &[]);
    assert_eq!(number(&summary, "/ok"), 49, "{summary:#}");
    assert_eq!(number(&summary, "/requests"), 100);
    let others =
        errors(&summary, "refused") + errors(&summary, "reset") + errors(&summary, "closed");
    assert_eq!(others, 51, "{summary:#}");
    assert!(errors(&summary, "refused") >= 50);
}

#[test]
fn nobody_listening_is_counted() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    let summary = run(&url, &["-c", "2", "-n", "10", "--duration", "30s"]);
    assert_eq!(errors(&summary, "refused"), 10, "{summary:#}");
    let why = summary["refused"].as_str().expect("a reason");
    assert!(
        why.contains("no request was answered well (refused 10)"),
        "{why}"
    );
    let summary = run(&url, &["--rate", "100", "--duration", "500ms"]);
    assert_eq!(
        errors(&summary, "refused") as i64,
        number(&summary, "/requests")
    );
}

#[test]
fn too_few_descriptors_are_said_before_anything_starts() {
    let limited = format!("ulimit -n 64; exec {LATLAB} run http://127.0.0.1:1/ -c 1000");
    let output = Command::new("sh")
        .args(["-c", &limited])
        .output()
        .expect("sh");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("descriptors") && stderr.contains("64"),
        "{stderr}"
    );
}

#[test]
fn a_port_in_use_is_said() {
    let (_server, url) = server(&[]);
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let output = latlab(&["server", "--listen", address]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("cannot listen"), "{stderr}");
}

/// Starts a run of a minute, ends some of its processes, and checks what is left.
fn ended_early(end: impl FnOnce(u32)) -> (Option<i32>, String, u64) {
    let place = tempfile::tempdir().expect("a directory");
    let rows = place.path().join("rows.parquet");
    let (_server, url) = server(&["--service", "fixed:1ms"]);
    let mut child = Command::new(LATLAB)
        .args([
            "run",
            &url,
            "-c",
            "4",
            "--duration",
            "60s",
            "--max-lateness",
            "1h",
            "-o",
        ])
        .arg(&rows)
        .stdout(Stdio::piped())
        .spawn()
        .expect("latlab runs");
    // Waits until rows are in the spool.
    let deadline = Instant::now() + Duration::from_secs(30);
    let spooled = || {
        let entries = std::fs::read_dir(place.path())
            .expect("it is there")
            .flatten();
        let spools = entries.map(|entry| entry.path().join("process-0"));
        spools
            .filter_map(|spool| spool.metadata().ok())
            .any(|spool| spool.len() > 0)
    };
    while !spooled() {
        assert!(Instant::now() < deadline, "nothing was measured");
        std::thread::sleep(Duration::from_millis(20));
    }
    end(child.id());
    let status = child.wait().expect("it ends");
    let mut text = String::new();
    let mut stdout = child.stdout.take().expect("it is a pipe");
    std::io::Read::read_to_string(&mut stdout, &mut text).expect("text");
    let file = std::fs::File::open(&rows).expect("the rows are kept");
    let reader = parquet::file::reader::SerializedFileReader::new(file).expect("Parquet");
    use parquet::file::reader::FileReader;
    let kept = reader.metadata().file_metadata().num_rows();
    assert_eq!(
        std::fs::read_dir(place.path())
            .expect("it is there")
            .count(),
        1
    );
    (status.code(), text, kept as u64)
}

#[test]
fn an_interrupted_run_keeps_what_it_has() {
    let (status, text, rows) = ended_early(|pid| latlab::sys::signal(worker_of(pid), libc::SIGINT));
    assert_eq!(status, Some(3), "{text}");
    assert!(
        text.contains("NOT VALID: the run was interrupted") && rows > 0,
        "{text}"
    );
}

#[test]
fn a_run_that_is_told_to_end_keeps_what_it_has() {
    let (status, text, rows) = ended_early(|pid| latlab::sys::signal(pid, libc::SIGTERM));
    assert_eq!(status, Some(3), "{text}");
    assert!(
        text.contains("NOT VALID: the run was interrupted") && rows > 0,
        "{text}"
    );
}

#[test]
fn a_killed_generator_leaves_its_rows() {
    let (status, text, rows) =
        ended_early(|pid| latlab::sys::signal(worker_of(pid), libc::SIGKILL));
    assert_eq!(status, Some(3), "{text}");
    assert!(
        text.contains("NOT VALID: a generator process was killed"),
        "{text}"
    );
    assert!(rows >= 512);
}

/// Bytes of a row in the spool.
const ROW_BYTES: usize = 85;

/// Kills latlab itself: its generator processes end by themselves, and their spools can be converted to
/// Parquet later.
#[test]
fn a_killed_latlab_leaves_a_spool_that_can_be_recovered() {
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name).display().to_string();
    let (_server, url) = server(&["--service", "fixed:1ms"]);
    let rows = path("rows.parquet");
    let load = [
        "run",
        &url,
        "-c",
        "8",
        "--processes",
        "2",
        "--duration",
        "60s",
        "-o",
        &rows,
    ];
    let mut child = Command::new(LATLAB)
        .args(load)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("latlab runs");
    let deadline = Instant::now() + Duration::from_secs(30);
    let spool = loop {
        let found = spools(place.path()).into_iter().find(|spool| {
            let has = |process: &str| {
                let found = spool.join(process).metadata();
                found.is_ok_and(|found| found.len() > 0)
            };
            has("process-0") && has("process-1")
        });
        if let Some(spool) = found {
            break spool;
        }
        assert!(Instant::now() < deadline, "nothing was measured");
        std::thread::sleep(Duration::from_millis(20));
    };
    let spool_name = spool.display().to_string();
    let again = path("again.parquet");
    let recover = |arguments: &[&str]| {
        let output = latlab(&[&["recover", &spool_name, "-o", &again], arguments].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), stdout, stderr)
    };
    // Not while it is being written.
    let (status, _, said) = recover(&[]);
    assert_eq!(status, Some(125), "{said}");
    assert!(said.contains("still running"), "{said}");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    // Waits until the last generator process has ended.
    let mut said = String::new();
    let mut stderr = child.stderr.take().expect("it is a pipe");
    std::io::Read::read_to_string(&mut stderr, &mut said).expect("text");
    assert!(
        said.contains(&format!("latlab recover {spool_name}")),
        "{said}"
    );
    // The next run reports it.
    let next = latlab(&["run", &url, "-n", "1", "-o", &path("next.parquet")]);
    let said = String::from_utf8_lossy(&next.stderr).into_owned();
    assert!(
        said.contains(&format!("latlab recover {spool_name}")),
        "{said}"
    );

    // Torn and damaged, as after a machine crash.
    let process = spool.join("process-1");
    let whole = std::fs::read(&process).expect("rows");
    std::fs::write(&process, &whole[..whole.len() - 5]).expect("own file");
    let (status, text, said) = recover(&["--keep"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("process-1 ends within a row"), "{said}");
    assert!(
        text.contains("of a run that was to take 60.0 s") || text.contains("60 s"),
        "{text}"
    );
    let mut damaged = whole.clone();
    damaged[ROW_BYTES * 300 + 3] ^= 1;
    std::fs::write(&process, &damaged).expect("own file");
    let (status, _, said) = recover(&[]);
    assert_eq!(status, Some(125), "{said}");
    assert!(
        said.contains("damaged behind 300 rows: --despite-damage"),
        "{said}"
    );
    let (status, _, said) = recover(&["--despite-damage"]);
    assert_eq!((status, spool.exists()), (Some(0), true), "{said}");
    std::fs::write(&process, &whole).expect("own file");

    let (status, text, said) = recover(&[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(!spool.exists(), "{text}");
    let analyzed = latlab(&["analyze", &again, "--format", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&analyzed.stdout).expect("JSON");
    let length = |bytes: &[u8]| (bytes.len() / ROW_BYTES) as u64;
    assert!(
        report["requests"].as_u64() >= Some(length(&whole)),
        "{report:#}"
    );
    let caveat = report["caveats"][0].as_str().expect("a sentence");
    assert!(
        caveat.contains("latlab was killed before the run was over"),
        "{caveat}"
    );
    assert!(
        number(&report, "/percentiles/p50") >= 1_000_000,
        "{report:#}"
    );
}

/// The spools of runs whose output file is in this directory.
fn spools(place: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place).expect("it is there").flatten();
    let names = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with(".latlab-run-")
    });
    names.map(|entry| entry.path()).collect()
}

#[test]
fn what_is_no_spool_is_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let refused = |why: &str| {
        let spool = place.path().display().to_string();
        let rows = place.path().join("rows.parquet").display().to_string();
        let output = latlab(&["recover", &spool, "-o", &rows]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(stderr.contains(why), "{stderr}");
    };
    refused("is not what a run of latlab leaves");
    let description = place.path().join("run.json");
    std::fs::write(&description, "{").expect("own file");
    refused("not what latlab wrote, or damaged");
    std::fs::remove_file(&description).expect("own file");
    std::os::unix::fs::symlink("/dev/zero", &description).expect("a link");
    refused("is no plain file");
}

fn worker_of(pid: u32) -> u32 {
    let children = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(children).expect("it runs");
    text.trim().parse().expect("one child")
}

#[test]
fn a_full_disk_ends_the_run_and_is_said() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().display().to_string();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=128k", "tmpfs", &path])
        .status()
        .expect("mount");
    if !mounted.success() {
        debox_skipped::skipped("a_full_disk_ends_the_run_and_is_said: a tmpfs cannot be mounted");
        return;
    }
    let (_server, url) = server(&[]);
    let rows = place.path().join("rows.parquet").display().to_string();
    let output = latlab(&[
        "run",
        &url,
        "-c",
        "4",
        "--duration",
        "60s",
        "-n",
        "50000",
        "-o",
        &rows,
    ]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    // If there was not enough space for the file beside the rows, the rows are left, and can be recovered
    // elsewhere.
    for spool in spools(place.path()) {
        let spool = spool.display().to_string();
        assert!(
            stderr.contains(&format!("latlab recover {spool}")),
            "{stderr}"
        );
        let elsewhere = tempfile::tempdir().expect("a directory");
        let file = elsewhere.path().join("rows.parquet").display().to_string();
        let recovered = latlab(&["recover", &spool, "-o", &file]);
        let said = String::from_utf8_lossy(&recovered.stderr);
        assert!(recovered.status.success(), "{said}");
        let text = String::from_utf8_lossy(&recovered.stdout);
        assert!(text.contains("requests"), "{text}");
    }
    let unmounted = Command::new("umount").arg(&path).status().expect("umount");
    assert!(unmounted.success());
    let text = format!("{stderr}{}", String::from_utf8_lossy(&output.stdout));
    assert!(matches!(output.status.code(), Some(3 | 125)), "{text}");
    assert!(text.contains("No space left"), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused_in_a_sentence() {
    let refused = |arguments: &[&str], why: &str| {
        let output = latlab(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(2 | 125)), "{stderr}");
        assert!(stderr.contains(why), "{stderr}");
    };
    refused(&["run", "ftp://localhost/"], "expected http://HOST");
    refused(
        &["run", "https://localhost/", "--cacert", "/nowhere"],
        "/nowhere",
    );
    refused(&["run", "localhost", "--mix", "full"], "--files");
    refused(&["run", "localhost", "--files", "/nowhere"], "no file set");
    refused(
        &["run", "localhost", "--warmup", "10s", "--duration", "10s"],
        "warm-up",
    );
    refused(
        &["run", "localhost", "-c", "1", "--processes", "2"],
        "fewer connections",
    );
    refused(&["run", "localhost", "--rate", "0"], "requests per second");
    refused(
        &[
            "compare",
            "nginx",
            "localhost",
            "--log",
            "x",
            "--log-speed",
            "1",
        ],
        "start the server yourself",
    );
    refused(
        &["run", "localhost", "-o", "/nowhere/rows.parquet"],
        "cannot make a directory",
    );
    let place = tempfile::tempdir().expect("a directory");
    let at = |name: &str| place.path().join(name).display().to_string();
    let (fifo, urls) = (at("fifo"), at("urls"));
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo").success());
    std::fs::write(&urls, "/a\n").expect("a file");
    for option in ["--urls", "--log", "--sizes"] {
        refused(&["run", "localhost", option, &fifo], "is a FIFO");
    }
    // Rows do not replace input files, or what is not a regular file.
    refused(
        &["run", "localhost", "--urls", &urls, "-o", &urls],
        "is one of the files that are read",
    );
    refused(&["run", "localhost", "-o", &fifo], "is no regular file");
    assert_eq!(std::fs::read_to_string(&urls).expect("a file"), "/a\n");
}
