// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guard looks at the loops of two web servers while files are asked for that a slow disk has to bring.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use debox_real::free_port;
use debox_skipped::skipped;
use debox_tests::wait_for;
use house_together::{program, Guarded, SlowDisk};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
/// Each request to the disk takes as long.
const SERVICE: Duration = Duration::from_millis(20);
const DIRECTORIES: usize = 6;
const FILES: usize = 5;

/// Larger than what the loop copies, and not a multiple of a page. Those of the first directory are larger than what
/// a helper brings as it opens a file, so that the rest has to be brought for the loop later.
fn length(directory: usize, file: usize) -> usize {
    let base = if directory == 0 { 1_300_000 } else { 100_000 };
    base + file
}

fn disk() -> SlowDisk {
    let mut files = vec![("hot.html".to_string(), vec![b'h'; 5000])];
    for directory in 0..DIRECTORIES {
        for file in 0..FILES {
            let content = vec![b'c'; length(directory, file)];
            files.push((format!("cold{directory}/{file}.bin"), content));
        }
    }
    let service = format!("{}ms", SERVICE.as_millis());
    SlowDisk::up(&service, &files)
}

/// One request on a connection of its own: the status, the length of the body, and how long it took.
fn get(address: SocketAddr, target: &str) -> (u16, usize, Duration) {
    ask_for(address, "GET", target)
}

fn ask_for(address: SocketAddr, method: &str, target: &str) -> (u16, usize, Duration) {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let request = format!("{method} {target} HTTP/1.0\r\nHost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let body = answer.len() - end.expect("a head") - 4;
    let status = String::from_utf8_lossy(&answer[9..12]).into_owned();
    (status.parse().expect("a status"), body, began.elapsed())
}

/// The same by a client of TLS.
fn get_by_tls(address: SocketAddr, target: &str) -> (u16, usize, Duration) {
    let began = Instant::now();
    let seconds = PATIENCE.as_secs().to_string();
    let output = Command::new("curl")
        .args([
            "--silent",
            "--insecure",
            "--noproxy",
            "*",
            "--max-time",
            &seconds,
        ])
        .args([
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code} %{size_download}",
        ])
        .arg(format!("https://{address}{target}"))
        .output()
        .expect("curl can be executed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (status, body) = text.split_once(' ').expect("an answer");
    let (status, body) = (
        status.parse().expect("a status"),
        body.parse().expect("a length"),
    );
    (status, body, began.elapsed())
}

/// Cold files and names that do not exist, and a hot file in between. `get` asks for one.
fn ask(address: SocketAddr, get: fn(SocketAddr, &str) -> (u16, usize, Duration)) {
    assert_eq!(get(address, "/hot.html").0, 200);
    let mut asked = 0;
    let waited = std::thread::scope(|scope| {
        let cold = scope.spawn(move || {
            let mut waited = Duration::ZERO;
            for file in 0..FILES {
                for directory in 0..DIRECTORIES {
                    let target = format!("/cold{directory}/{file}.bin");
                    let (status, body, took) = get(address, &target);
                    assert_eq!((status, body), (200, length(directory, file)));
                    let missing = format!("/cold{directory}/none{file}");
                    assert_eq!(get(address, &missing).0, 404);
                    waited += took;
                }
            }
            waited
        });
        while !cold.is_finished() {
            let (status, body, _) = get(address, "/hot.html");
            assert_eq!((status, body), (200, 5000));
            asked += 1;
        }
        cold.join().expect("each was answered")
    });
    // The disk was as slow as that, or there was nothing to wait for.
    let cold = (DIRECTORIES * FILES) as u32;
    assert!(waited >= SERVICE * cold, "{cold} cold files in {waited:?}");
    assert!(asked > cold, "{asked} requests for what is in memory");
}

#[test]
fn the_loops_of_flash_wait_for_events_only() {
    let counters = guard_flash(&["--listen", "127.0.0.1:0"], get);
    let stalls = counters
        .iter()
        .filter(|(of, _)| of == "flash_loop_stalls_total");
    // What else runs may take the CPU during a send. The guard knows that from waiting; this counter does not.
    let stalls: u64 = stalls.map(|(_, n)| n).sum();
    assert!(stalls <= 5, "{stalls} sends took more than a millisecond");
}

#[test]
fn the_loops_of_flash_wait_for_events_only_also_with_tls() {
    if Command::new("openssl").arg("version").output().is_err() {
        return skipped("the loops of flash with TLS: openssl is not installed");
    }
    let place = tempfile::tempdir().expect("a directory");
    let (cert, key) = (place.path().join("cert"), place.path().join("key"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .expect("openssl can be executed");
    assert!(made.status.success(), "{made:?}");
    let names = ["--tls-cert", text(&cert), "--tls-key", text(&key)];
    let listen = [&["--tls-listen", "127.0.0.1:0"][..], &names].concat();
    let counters = guard_flash(&listen, get_by_tls);
    let handshakes = counters
        .iter()
        .filter(|(of, _)| of == "flash_tls_handshakes_total");
    assert!(handshakes.map(|(_, n)| n).sum::<u64>() > 60);
}

/// Asks flash for cold files under the guard, whose verdict has to be good. Returns the counters of flash.
fn guard_flash(
    listen: &[&str],
    get: fn(SocketAddr, &str) -> (u16, usize, Duration),
) -> Vec<(String, u64)> {
    let disk = disk();
    disk.cool();
    let flash = program("flash");
    let (flash, root) = (text(&flash).to_string(), disk.root());
    let serve = [flash.as_str(), "serve", text(&root)];
    let others = ["--metrics", "127.0.0.1:0", "--loops", "2"];
    let command = [&serve[..], listen, &others].concat();
    let mut guarded = Guarded::start(&disk.scratch().join("result.json"), &command);
    let mut lines = BufReader::new(guarded.guard.stdout.take().expect("a pipe")).lines();
    let (files, metrics) = (address_in(&mut lines), address_in(&mut lines));
    ask(files, get);
    let counters = counters(metrics);
    let (status, verdict) = guarded.end();
    assert!(status.success(), "{status}: {verdict:#}");
    assert_eq!(verdict["ok"], true, "{verdict:#}");
    let threads = verdict["threads"].as_array().expect("a list");
    assert_eq!(threads.len(), 2, "{threads:#?}");
    // The loops left to helpers what the disk had to bring.
    for (name, least) in [
        ("flash_cold_names_total", (DIRECTORIES * FILES) as u64),
        ("flash_cold_reads_total", FILES as u64),
    ] {
        let sum: u64 = counters
            .iter()
            .filter(|(of, _)| of == name)
            .map(|(_, n)| n)
            .sum();
        assert!(sum >= least, "{name} {sum}: {counters:?}");
    }
    counters
}

/// Answers by the library, sets what it must not, dies, and sends what no process may say.
const APPLICATION: &str = r#"
import fcntl, os, signal, socket, struct
import flash_application

def answer(request):
    path = request.variables["PATH_INFO"]
    if path == "/large":
        request.answer(200, [], b"x" * 3_000_000)
    elif path == "/rude":
        kept = request._client.dup()
        fcntl.fcntl(kept, fcntl.F_SETFL, 0)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30))
        answer.kept = kept
        request.answer(200, [], b"rude")
    elif path == "/garbage":
        request._channel._socket.send(b"garbage")
    elif path == "/die":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        request.answer(200, [], b"hello")

flash_application.serve(answer)
"#;

#[test]
fn the_loops_of_flash_do_not_wait_for_applications() {
    let files = vec![
        ("hot.html".to_string(), vec![b'h'; 5000]),
        // The disk is checked with a file of more than a page.
        ("large.bin".to_string(), vec![b'l'; 100_000]),
    ];
    let disk = SlowDisk::up("1ms", &files);
    let place = tempfile::tempdir().expect("a directory");
    fs::write(place.path().join("app.py"), APPLICATION).expect("room");
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../flash/application/python");
    let config = format!(
        "loops = 2\nmetrics = \"127.0.0.1:0\"\n[[server]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"{}\"\n\
         [[server.location]]\npath = \"/app\"\n\
         application = {{ command = [\"python3\", \"app.py\"], processes = 3, \
         environment = {{ PYTHONPATH = \"{}\", PYTHONDONTWRITEBYTECODE = \"1\" }} }}\n",
        text(&disk.root()),
        text(&library),
    );
    let file = place.path().join("flash.toml");
    fs::write(&file, config).expect("room");
    let flash = program("flash");
    let mut guarded = Guarded::start(
        &place.path().join("result.json"),
        &[text(&flash), "run", text(&file)],
    );
    let mut lines = BufReader::new(guarded.guard.stdout.take().expect("a pipe")).lines();
    let (address, metrics) = (address_in(&mut lines), address_in(&mut lines));
    for round in 0..3 {
        for _ in 0..20 {
            assert_eq!(get(address, "/app/hello").0, 200);
        }
        assert_eq!(get(address, "/app/large").1, 3_000_000);
        // The file is sent on the connection that the process has set to wait, to a client that does not read yet.
        let mut rude = TcpStream::connect(address).expect("it listens");
        let hot = "GET /hot.html HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2000);
        let asked = format!("GET /app/rude HTTP/1.1\r\nHost: a\r\n\r\n{hot}");
        rude.write_all(asked.as_bytes()).expect("it reads");
        assert_eq!(get(address, "/hot.html").1, 5000);
        drop(rude);
        for bad in ["/app/garbage", "/app/die"] {
            let mut stream = TcpStream::connect(address).expect("it listens");
            let request = format!("GET {bad} HTTP/1.0\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("it reads");
            let _ = stream.read_to_end(&mut Vec::new());
        }
        assert_eq!(get(address, "/app/hello").0, 200, "round {round}");
    }
    let counters = counters(metrics);
    let failures = counters
        .iter()
        .filter(|(of, _)| of == "flash_upstream_failures_total");
    assert_eq!(failures.map(|(_, n)| n).sum::<u64>(), 6);
    let (_, verdict) = guarded.end();
    // The processes of the application, and those that start them, wait for other things than events.
    let of_loops = |list: &str| -> Vec<Value> {
        let all = verdict[list].as_array().expect("a list").iter();
        let is_loop = |one: &&Value| {
            let name = one["comm"].as_str().unwrap_or_default();
            name.starts_with("flash-loop")
        };
        all.filter(is_loop).cloned().collect()
    };
    assert_eq!(of_loops("threads").len(), 2, "{verdict:#}");
    assert_eq!(of_loops("violations"), Vec::<Value>::new(), "{verdict:#}");
    assert_eq!(verdict["violations_left_out"], 0, "{verdict:#}");
}

/// The same requests, so that the verdict above is known to mean something.
#[test]
fn the_loops_of_nginx_wait_for_the_disk() {
    let disk = disk();
    disk.cool();
    let port = free_port();
    let configuration = disk.scratch().join("nginx.conf");
    let scratch = text(disk.scratch()).to_string();
    let root = disk.root();
    let written = format!(
        "worker_processes 2; daemon off; pid {scratch}/pid; error_log {scratch}/error;\n\
         events {{}}\n\
         http {{ access_log off; sendfile on; aio threads;\n\
         server {{ listen 127.0.0.1:{port}; root {}; }} }}\n",
        text(&root)
    );
    fs::write(&configuration, written).expect("room");
    let guarded = Guarded::start(
        &disk.scratch().join("result.json"),
        &["nginx", "-c", text(&configuration)],
    );
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    assert!(wait_for(PATIENCE, || TcpStream::connect(address).is_ok()));
    ask(address, get);
    let (status, verdict) = guarded.end();
    assert_eq!(status.code(), Some(3), "{verdict:#}");
    let violations = verdict["violations"].to_string();
    assert!(violations.contains("openat"), "{verdict:#}");
}

/// A server without the guard, ended with the test.
struct Plain(Child);

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the disk has to bring the name or the bytes.
#[test]
fn a_disk_that_takes_too_long_is_an_answer() {
    let files = ["wanted", "known"].map(|name| (name.to_string(), vec![b'x'; 20_000]));
    let disk = SlowDisk::up("600ms", &files);
    disk.cool();
    let mut server = Command::new(program("flash"))
        .arg("serve")
        .arg(disk.root())
        .args(["--listen", "127.0.0.1:0", "--loops", "1", "--disk", "300ms"])
        .stdout(Stdio::piped())
        .spawn()
        .map(Plain)
        .expect("flash can be executed");
    let mut lines = BufReader::new(server.0.stdout.take().expect("a pipe")).lines();
    let address = address_in(&mut lines);
    let ask = |method: &str, target: &str| ask_for(address, method, target);
    // Both are brought all the same, in one job.
    assert_eq!(ask("GET", "/wanted").0, 503);
    assert!(wait_for(PATIENCE, || ask("GET", "/wanted").1 == 20_000));
    // HEAD needs no bytes, so it does not bring them.
    assert!(wait_for(PATIENCE, || ask("HEAD", "/known").0 == 200));
    assert_eq!(ask("GET", "/known").0, 503);
    assert!(wait_for(PATIENCE, || ask("GET", "/known").1 == 20_000));
}

/// What Prometheus would read: names without their labels, and values.
fn counters(address: SocketAddr) -> Vec<(String, u64)> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let rows = text.lines().filter(|line| line.starts_with("flash_"));
    let rows = rows.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let name = name.split('{').next()?;
        Some((name.to_string(), value.parse().ok()?))
    });
    rows.collect()
}

/// The address in the next line that flash prints.
fn address_in(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> SocketAddr {
    let line = lines.next().expect("a line").expect("text");
    let url = line.split("://").nth(1).expect("an address");
    let address = url.split('/').next().unwrap_or_default();
    address.parse().expect("an address")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}
