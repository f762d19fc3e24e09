// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers that ask the path server answer as they do without it. tests/together has the same on a disk that is slow.

#[allow(dead_code, reason = "conformance.rs uses all of it")]
#[path = "conformance/answers.rs"]
mod answers;
#[allow(dead_code, reason = "conformance.rs uses all of it")]
#[path = "conformance/corpus.rs"]
mod corpus;
#[path = "path_server/running.rs"]
mod running;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

use debox_skipped::skipped;
use flash::path_server::protocol::Answer;
use nix::sys::signal::Signal;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use running::build_adapters::build;
use running::{place, PathServer, PATIENCE};

const MESSAGES: usize = 20_000;

/// The parser in C reads all answers as the one in Rust, also changed ones, and never beyond their end.
#[test]
fn both_parsers_read_answers_alike() {
    let place = place();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (client, program) = (here.join("../adapters/client"), place.path().join("read"));
    let built = Command::new("cc")
        .args([
            "-g",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
            "-I",
        ])
        .arg(&client)
        .arg(here.join("tests/path_server/read_answers.c"))
        .arg(client.join("flash_paths.c"))
        .arg("-o")
        .arg(&program)
        .output();
    if !built.as_ref().is_ok_and(|built| built.status.success()) {
        return skipped("the parser in C: there is no cc with sanitizers");
    }
    let mut runner = TestRunner::deterministic();
    let strategy = (
        proptest::num::u32::ANY,
        0..200i32,
        proptest::collection::vec((0..96usize, proptest::num::u8::ANY), 0..4),
        proptest::collection::vec(proptest::num::u8::ANY, 0..130),
        0..8u8,
    );
    let (mut input, mut expected) = (Vec::new(), String::new());
    for _ in 0..MESSAGES {
        let tree = strategy.new_tree(&mut runner).expect("a value");
        let (id, error, changes, other, what) = tree.current();
        let mut message = Answer::refusal(id, error).bytes().to_vec();
        for (at, byte) in changes {
            message[at] = byte;
        }
        match what {
            0 => message = other,
            1 => message.truncate(other.len()),
            2 => message.extend(other),
            _ => {}
        }
        input.extend((message.len() as u16).to_le_bytes());
        input.extend(&message);
        expected += &match Answer::read(&message) {
            Ok(answer) => format!(
                "{} {} {} {}:{} {}\n",
                answer.id,
                answer.error,
                answer.root_length,
                answer.root_device_major,
                answer.root_device_minor,
                answer.root_inode
            ),
            Err(_) => "wrong\n".to_string(),
        };
    }
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it was built");
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("a child");
    writer.join().expect("no panic").expect("it reads");
    assert!(output.status.success(), "{output:?}");
    assert!(expected.lines().filter(|line| *line != "wrong").count() > MESSAGES / 4);
    assert!(String::from_utf8(output.stdout).expect("text") == expected);
}

struct Apache {
    child: Child,
    address: SocketAddr,
}

impl Apache {
    fn start(place: &Path, mpm: &str, lines: &str, environment: &[(&str, &Path)]) -> Apache {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let directory = place.join(format!("apache-{}", address.port()));
        fs::create_dir(&directory).expect("room");
        let (here, root) = (directory.display(), place.join("root"));
        let root = root.display();
        let modules: String = [
            "authz_core",
            "dir",
            "mime",
            "autoindex",
            "alias",
            "negotiation",
        ]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
        let user = match nix::unistd::geteuid().is_root() {
            true => "User www-data\nGroup www-data\n",
            false => "",
        };
        let configuration = format!(
            "ServerRoot {here}\nServerName localhost\nPidFile {here}/pid\nErrorLog {here}/error.log\n\
             DefaultRuntimeDir {here}\nListen {address}\n{user}\
             LoadModule mpm_{mpm}_module /usr/lib/apache2/modules/mod_mpm_{mpm}.so\n{modules}{lines}\n\
             TypesConfig /etc/mime.types\nStartServers 2\nMaxRequestWorkers 64\nDocumentRoot {root}\n\
             DirectoryIndex index.html\n<Directory {root}>\nOptions Indexes FollowSymLinks MultiViews\nAllowOverride All\n\
             </Directory>\n"
        );
        let file = directory.join("apache.conf");
        fs::write(&file, configuration).expect("room");
        let child = Command::new("apache2")
            .arg("-f")
            .arg(&file)
            .arg("-DFOREGROUND")
            // At its end it sends SIGTERM to its whole group.
            .process_group(0)
            .envs(environment.iter().copied())
            .spawn()
            .expect("Apache can be executed");
        let apache = Apache { child, address };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            let errors = || fs::read_to_string(directory.join("error.log")).unwrap_or_default();
            assert!(began.elapsed() < PATIENCE, "{}", errors());
            std::thread::sleep(Duration::from_millis(20));
        }
        apache
    }

    /// What it answers, without the time.
    fn ask(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        // It may have answered and closed the connection already.
        let _ = stream.write_all(request);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        self.without_chance(&answer)
    }

    /// The answer without the time, without the number that Apache draws for the boundary of parts, with its methods in
    /// order (Apache's is of a hash table), and without the port, which it names in its pages.
    fn without_chance(&self, answer: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        let mut boundary: Option<Vec<u8>> = None;
        let has_parts = memchr::memmem::find(answer, b"multipart/byteranges").is_some();
        for line in answer.split_inclusive(|byte| *byte == b'\n') {
            if let Some(at) = memchr::memmem::find(line, b"boundary=") {
                boundary = Some(line[at + 9..].trim_ascii_end().to_vec());
            }
            match line.strip_prefix(b"Allow: ") {
                Some(methods) => {
                    let mut methods: Vec<&[u8]> = methods
                        .trim_ascii_end()
                        .split(|byte| *byte == b',')
                        .collect();
                    methods.sort_unstable();
                    text.extend([&b"Allow: "[..], &methods.join(&b',')].concat());
                }
                None if line.starts_with(b"Date: ") => {}
                // It depends on the boundary, whose leading zeros are left out. It comes before the boundary.
                None if has_parts && line.starts_with(b"Content-Length: ") => {}
                None => text.extend_from_slice(line),
            }
        }
        let port = self.address.port().to_string();
        let names = [Some(port.as_bytes()), boundary.as_deref()];
        for name in names.into_iter().flatten() {
            text = replace(&text, name, b"*");
        }
        text
    }
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::new();
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, from) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    [&replaced, rest].concat()
}

impl Drop for Apache {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        let _ = nix::sys::signal::kill(pid, Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

/// As Apache's tags are weak for files that have just changed, these have not.
fn write(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("room");
    let file = fs::File::options().write(true).open(path).expect("a file");
    let times = fs::FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(784_111_777));
    file.set_times(times).expect("a file");
}

fn fill(root: &Path) {
    fs::create_dir_all(root.join("sub/deep")).expect("room");
    for (name, content) in [
        ("index.html", "the index\n"),
        ("hello.txt", "0123456789"),
        ("coded.txt", "plain"),
        ("coded.txt.gz", "gzip!"),
        ("empty", ""),
        ("a b.txt", "space"),
        ("sub/index.html", "below\n"),
        ("sub/deep/page.html", "deep\n"),
        (".hidden", "secret"),
        ("probe", "probe"),
    ] {
        write(&root.join(name), content.as_bytes());
    }
    write(&root.join("large"), &vec![b'x'; 3_000_000]);
    std::os::unix::fs::symlink("/etc/passwd", root.join("out")).expect("room");
    std::os::unix::fs::symlink("hello.txt", root.join("in")).expect("room");
}

fn requests() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/requests");
    let etag = "\"1-2\"";
    let entries = corpus::read(&folder);
    let mut requests: Vec<(String, Vec<u8>)> = entries
        .iter()
        .map(|entry| (entry.name.clone(), entry.bytes(etag)))
        .collect();
    for path in [
        "/large",
        "/sub",
        "/sub/",
        "/sub/deep/",
        "/in",
        "/out",
        "/hello",
        "/none",
        "/none/x",
        "/hello.txt/info",
        "/large?x",
        "/%2e%2e/secret",
        "/sub/../hello.txt",
        "//hello.txt",
        "/.htaccess",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        requests.push((path.to_string(), request.into_bytes()));
    }
    requests
}

fn user_options() -> &'static [&'static str] {
    match nix::unistd::geteuid().is_root() {
        true => &["--user", "www-data"],
        false => &[],
    }
}

fn compare(plain: &Apache, with: &[(&str, &Apache)], server: &PathServer) {
    let mut wrong = Vec::new();
    for (name, request) in requests() {
        let expected = plain.ask(&request);
        for (how, apache) in with {
            let found = apache.ask(&request);
            if found != expected {
                let text = |bytes: &[u8]| {
                    String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned()
                };
                wrong.push(format!(
                    "{name}, {how}:\n{}\n--\n{}",
                    text(&expected),
                    text(&found)
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n====\n")
    );
    assert_eq!(server.counter("malformed_total"), 0);
    assert_eq!(server.counter("refused_peers_total"), 0);
}

fn compare_module(mpm: &str) {
    let place = place();
    fill(&place.path().join("root"));
    let Some(module) = build("apache", place.path()) else {
        return skipped(&format!(
            "mod_flashpache with mpm_{mpm}: there is no apxs (apache2-dev)"
        ));
    };
    let server = PathServer::start(place.path(), user_options());
    let plain = Apache::start(place.path(), mpm, "", &[]);
    let line = |socket: &Path| {
        let (module, socket) = (module.display(), socket.display());
        format!("LoadModule flashpache_module {module}\nFlashPathServer {socket}\nFlashPathDeadline 300\n")
    };
    let with = Apache::start(place.path(), mpm, &line(&server.socket), &[]);
    let gone = Apache::start(place.path(), mpm, &line(&place.path().join("gone")), &[]);
    compare(
        &plain,
        &[("with the module", &with), ("without its backend", &gone)],
        &server,
    );
    assert!(server.counter("questions_total") > 0);
    // A backend that does not answer any more delays each request by no more than the deadline.
    server.signal(Signal::SIGSTOP);
    let missing = b"GET /none2 HTTP/1.0\r\n\r\n";
    let (expected, found) = (plain.ask(missing), with.ask(missing));
    server.signal(Signal::SIGCONT);
    assert_eq!(expected, found);
    assert!(server.end());
    let missing = b"GET /none3 HTTP/1.0\r\n\r\n";
    assert_eq!(plain.ask(missing), with.ask(missing));
}

#[test]
fn apache_prefork_answers_the_same_with_the_module() {
    compare_module("prefork");
}

#[test]
fn apache_event_answers_the_same_with_the_module() {
    compare_module("event");
}

#[test]
fn apache_answers_the_same_with_the_shim() {
    let place = place();
    fill(&place.path().join("root"));
    let Some(shim) = build("preload", place.path()) else {
        return skipped("Apache with the preload shim: there is no make or cc");
    };
    if Command::new("apache2").arg("-v").output().is_err() {
        return skipped("Apache with the preload shim: apache2 is not installed");
    }
    let server = PathServer::start(place.path(), user_options());
    let root: PathBuf = place.path().join("root");
    let environment = [
        ("LD_PRELOAD", shim.as_path()),
        ("FLASH_PATHS_SOCKET", &server.socket),
        ("FLASH_PATHS_ROOTS", &root),
    ];
    let plain = Apache::start(place.path(), "prefork", "", &[]);
    let prefork = Apache::start(place.path(), "prefork", "", &environment);
    let event = Apache::start(place.path(), "event", "", &environment);
    compare(&plain, &[("prefork", &prefork), ("event", &event)], &server);
    let questions = server.counter("questions_total");
    assert!(questions > 0);
    // All that these look for is in memory now, also what is not there: .htaccess below each directory and each file.
    for _ in 0..5 {
        prefork.ask(b"GET /index.html HTTP/1.0\r\n\r\n");
    }
    assert_eq!(server.counter("questions_total"), questions);
    assert!(server.end());
}

/// A server that does not keep to the protocol: the caller finds what it would find without it.
#[test]
fn nonsense_from_a_path_server_is_not_believed() {
    let place = place();
    let Some(shim) = build("preload", place.path()) else {
        return skipped("the preload shim and nonsense: there is no make or cc");
    };
    use rustix::net::{
        bind, listen, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType,
    };
    let listener = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .expect("a socket");
    let path = place.path().join("bad");
    bind(&listener, &SocketAddrUnix::new(&path).expect("short")).expect("a socket");
    listen(&listener, 10).expect("a socket");
    let refusal = Answer::refusal(0, 5);
    let mut messages: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0],
        vec![0xff; 4000],
        refusal.bytes().to_vec(),
    ];
    // With a descriptor, but for another question.
    messages.push(Answer::refusal(7, 1).bytes().to_vec());
    let secret = fs::File::open("/dev/null").expect("a device");
    let answers = std::thread::spawn(move || {
        for message in messages {
            let client = rustix::net::accept(&listener).expect("a client");
            let _ = rustix::net::recv(
                &client,
                &mut [0u8; 5000][..],
                rustix::net::RecvFlags::empty(),
            );
            let parts = [std::io::IoSlice::new(&message)];
            let fds = [secret.as_raw_fd(), secret.as_raw_fd()];
            let passed = [nix::sys::socket::ControlMessage::ScmRights(&fds)];
            let flags = nix::sys::socket::MsgFlags::MSG_NOSIGNAL;
            let _ =
                nix::sys::socket::sendmsg::<()>(client.as_raw_fd(), &parts, &passed, flags, None);
        }
    });
    let script = "import os, sys\n\
        for n in range(5):\n    try:\n        os.open(f'{sys.argv[1]}/none{n}', os.O_RDONLY)\n    \
        except FileNotFoundError: pass\nprint(sorted(os.listdir('/proc/self/fd')))";
    let root = place.path().join("root");
    let run = |shim: &Path| {
        let output = Command::new("python3")
            .args(["-S", "-c", script])
            .arg(&root)
            .env("LD_PRELOAD", shim)
            .env("FLASH_PATHS_SOCKET", &path)
            .env("FLASH_PATHS_ROOTS", &root)
            .output()
            .expect("Python can be executed");
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    // No descriptor is left over.
    let with = run(&shim);
    answers.join().expect("each was asked");
    assert_eq!(with, run(Path::new("")));
}
