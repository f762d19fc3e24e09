// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server in this process, and clients that send it raw bytes.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use flash::server::{Plan, Server};
use flash::sites::{FileOptions, VirtualHost};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

struct Place {
    directory: TempDir,
    server: Option<Server>,
}

impl Place {
    fn new() -> Place {
        Place::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Plan)) -> Place {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("sub/deep")).expect("room");
        fs::write(root.join("index.html"), "the index\n").expect("room");
        fs::write(root.join("hello.txt"), "0123456789").expect("room");
        fs::write(root.join("sub/index.html"), "below\n").expect("room");
        fs::write(root.join("sub/deep/a&b.txt"), "x").expect("room");
        fs::write(root.join(".secret"), "x").expect("room");
        fs::write(root.join("big"), big()).expect("room");
        let listen = vec![([127, 0, 0, 1], 0).into()];
        let host = VirtualHost::of_directory(root, listen, FileOptions::default());
        let mut plan = Plan {
            loops: 2,
            helpers: 4,
            ..Plan::of(vec![host])
        };
        change(&mut plan);
        let server = Server::start(plan).expect("it starts");
        assert!(server.sandbox().seccomp.is_on(), "{}", server.sandbox());
        Place {
            directory,
            server: Some(server),
        }
    }

    fn root(&self) -> std::path::PathBuf {
        self.directory.path().join("root")
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    fn connect(&self) -> TcpStream {
        connect(self.server().addresses()[0])
    }

    /// Sends bytes, and reads until the server ends the connection.
    fn send(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).expect("the server reads");
        stream.shutdown(Shutdown::Write).expect("a connection");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, target: &str, fields: &str) -> Answer {
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
        Answer::of(&self.send(request.as_bytes()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.end().expect("no loop failed");
        }
    }
}

fn files(plan: &mut Plan) -> &mut FileOptions {
    &mut plan.hosts[0].locations[0].files
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

fn big() -> Vec<u8> {
    (0..3_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn of(text: &str) -> Answer {
        let (head, body) = text.split_once("\r\n\r\n").expect(text);
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Answer {
            status: status.expect(head),
            head: head.to_string(),
            body: body.to_string(),
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (its, value) = line.split_once(": ")?;
            its.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

fn statuses(text: &str) -> Vec<u16> {
    let answers = text.split("HTTP/1.1 ").skip(1);
    answers
        .map(|answer| answer[..3].parse().expect("a status"))
        .collect()
}

#[test]
fn files_and_directories() {
    let place = Place::new();
    let found = place.get("/hello.txt", "");
    assert_eq!((found.status, found.body.as_str()), (200, "0123456789"));
    assert_eq!(
        found.field("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(found.field("connection"), Some("close"));
    assert_eq!(place.get("/", "").body, "the index\n");
    assert_eq!(place.get("/sub/?x=y", "").body, "below\n");
    let redirect = place.get("/sub?x=y", "");
    assert_eq!(
        (redirect.status, redirect.field("location")),
        (301, Some("/sub/?x=y"))
    );
    for (target, status) in [
        ("/none", 404),
        ("/hello.txt/", 404),
        ("/hello.txt/x", 404),
        ("/.secret", 404),
        ("/sub/deep/", 403),
        ("/../etc/passwd", 400),
        ("/sub/%2e%2e/%2e%2e/etc/passwd", 400),
    ] {
        assert_eq!(place.get(target, "").status, status, "{target}");
    }
}

#[test]
fn a_directory_is_listed_if_that_is_wanted() {
    let place = Place::with(|plan| files(plan).lists = true);
    let page = place.get("/sub/deep/", "");
    assert_eq!(page.status, 200);
    assert!(
        page.body.contains("href=\"./a%26b.txt\">a&amp;b.txt</a>"),
        "{}",
        page.body
    );
    let root = place.root();
    fs::remove_file(root.join("index.html")).expect("it was there");
    let page = place.get("/", "");
    assert!(
        page.body.contains("sub/") && !page.body.contains("secret"),
        "{}",
        page.body
    );
}

#[test]
fn compressed_forms_are_for_clients_that_take_them() {
    let place = Place::with(|plan| files(plan).precompressed = true);
    let root = place.root();
    fs::write(root.join("hello.txt.gz"), "gzip").expect("room");
    fs::write(root.join("hello.txt.br"), "brotli").expect("room");
    fs::create_dir(root.join("big.gz")).expect("room");
    let get = |fields: &str| place.get("/hello.txt", fields);
    let found = get("Accept-Encoding: gzip\r\n");
    assert_eq!(
        (found.body.as_str(), found.field("content-encoding")),
        ("gzip", Some("gzip"))
    );
    assert_eq!(
        found.field("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(found.field("vary"), Some("Accept-Encoding"));
    let etag = found.field("etag").expect("a tag").to_string();
    let same = format!("Accept-Encoding: gzip\r\nIf-None-Match: {etag}\r\n");
    assert_eq!(
        (get(&same).status, get(&same).field("vary").is_some()),
        (304, true)
    );
    assert_eq!(get(&format!("If-None-Match: {etag}\r\n")).status, 200);
    assert_eq!(get("Accept-Encoding: gzip, br\r\n").body, "brotli");
    assert_eq!(
        get("Accept-Encoding: gzip;q=0.9, br;q=0.1, zstd\r\n").body,
        "gzip"
    );
    let plain = get("Accept-Encoding: zstd, gzip;q=0\r\n");
    assert_eq!(
        (plain.body.as_str(), plain.field("content-encoding")),
        ("0123456789", None)
    );
    assert_eq!(plain.field("vary"), Some("Accept-Encoding"));
    assert_eq!(
        place.get("/", "Accept-Encoding: gzip\r\n").body,
        "the index\n"
    );
    let sized = place.get("/big", "Accept-Encoding: gzip\r\nRange: bytes=0-0\r\n");
    assert_eq!((sized.status, sized.field("content-encoding")), (206, None));
    assert_eq!(place.get("/sub", "Accept-Encoding: gzip\r\n").status, 301);
}

#[test]
fn a_connection_has_many_requests_also_at_once() {
    let place = Place::new();
    let one = "GET /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = "HEAD /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    let text = place.send(format!("{one}{head}{one}").as_bytes());
    assert_eq!(statuses(&text), [200, 200, 200]);
    assert_eq!(text.matches("0123456789").count(), 2);
    // More than one turn of the loop.
    let text = place.send(one.repeat(100).as_bytes());
    assert_eq!(text.matches("0123456789").count(), 100);
    // Behind a request that ends the connection there is none.
    let last = "GET / HTTP/1.0\r\n\r\n";
    assert_eq!(
        statuses(&place.send(format!("{last}{one}").as_bytes())),
        [200]
    );
}

#[test]
fn heads_may_come_byte_by_byte() {
    let place = Place::new();
    let mut stream = place.connect();
    for byte in b"GET /hello.txt HTTP/1.0\r\n\r\n" {
        stream.write_all(&[*byte]).expect("the server reads");
    }
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert!(text.ends_with("\r\n\r\n0123456789"), "{text}");
}

#[test]
fn a_large_file_comes_whole_and_in_parts() {
    let place = Place::new();
    let whole = |fields: &str| {
        let mut stream = place.connect();
        let request = format!("GET /big HTTP/1.0\r\n{fields}\r\n");
        stream
            .write_all(request.as_bytes())
            .expect("the server reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a head");
        answer.split_off(end + 4)
    };
    let big = big();
    assert!(whole("") == big);
    assert!(whole("Range: bytes=1000000-2999999\r\n") == big[1_000_000..]);
    let found = place.get("/hello.txt", "Range: bytes=2-4\r\n");
    assert_eq!((found.status, found.body.as_str()), (206, "234"));
    assert_eq!(found.field("content-range"), Some("bytes 2-4/10"));
    let found = place.get("/hello.txt", "Range: bytes=0-0,-1\r\n");
    assert_eq!(found.status, 206);
    assert_eq!(
        found.field("content-length"),
        Some(found.body.len().to_string().as_str())
    );
    assert!(
        found.body.contains("bytes 0-0/10\r\n\r\n0\r\n--"),
        "{}",
        found.body
    );
    let found = place.get("/hello.txt", "Range: bytes=10-\r\n");
    assert_eq!(
        (found.status, found.field("content-range")),
        (416, Some("bytes */10"))
    );
}

#[test]
fn what_the_client_has_is_not_sent_again() {
    let place = Place::new();
    let found = place.get("/hello.txt", "");
    let etag = found.field("etag").expect("a tag").to_string();
    let date = found.field("last-modified").expect("a date").to_string();
    for fields in [
        format!("If-None-Match: {etag}\r\n"),
        format!("If-Modified-Since: {date}\r\n"),
    ] {
        let again = place.get("/hello.txt", &fields);
        assert_eq!((again.status, again.body.as_str()), (304, ""), "{fields}");
        assert_eq!(again.field("content-length"), None);
    }
    assert_eq!(
        place.get("/hello.txt", "If-Match: \"other\"\r\n").status,
        412
    );
    fs::write(place.root().join("hello.txt"), "new").expect("room");
    let changed = place.get("/hello.txt", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!((changed.status, changed.body.as_str()), (200, "new"));
}

#[test]
fn bodies_of_requests_are_passed_over() {
    let place = Place::new();
    let one = "GET /hello.txt HTTP/1.1\r\nHost: a\r\n";
    let text = place.send(format!("{one}Content-Length: 3\r\n\r\nabc{one}\r\n").as_bytes());
    assert_eq!(statuses(&text), [200, 200]);
    let chunked = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let text = place.send(format!("{one}{chunked}{one}\r\n").as_bytes());
    assert_eq!(statuses(&text), [200, 200]);
    // It is unknown whether the body follows, so the connection ends.
    let text = place.send(
        format!("{one}Expect: 100-continue\r\nContent-Length: 3\r\n\r\n{one}\r\n").as_bytes(),
    );
    assert_eq!(statuses(&text), [200]);
    let text = place.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(statuses(&text), [405]);
    assert!(text.contains("Allow: GET, HEAD, OPTIONS\r\n"), "{text}");
}

#[test]
fn what_is_no_request_ends_the_connection() {
    let place = Place::new();
    for (bytes, status) in [
        (&b"hello\r\n\r\n"[..], 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
        (b"foo / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", 400),
    ] {
        let mut twice = bytes.to_vec();
        twice.extend_from_slice(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(statuses(&place.send(&twice)), [status], "{bytes:?}");
    }
    let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(100_000));
    assert_eq!(statuses(&place.send(long.as_bytes())), [414]);
}

#[test]
fn who_sends_nothing_is_not_kept() {
    let place = Place::with(|plan| {
        plan.options.head_ms = 300;
        plan.options.idle_ms = 300;
    });
    let began = Instant::now();
    let mut stream = place.connect();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n")
        .expect("the server reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert_eq!(statuses(&text), [408]);
    assert!(began.elapsed() >= Duration::from_millis(300));
    let mut stream = place.connect();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("the server reads");
    let mut text = String::new();
    stream
        .read_to_string(&mut text)
        .expect("an answer, and an end");
    assert_eq!(statuses(&text), [200]);
    let mut silent = place.connect();
    assert_eq!(silent.read(&mut [0; 10]).expect("an end"), 0);
}

/// A server that closes its socket at once answers the next bytes with a reset, which may take the answer away.
#[test]
fn a_client_that_still_sends_after_its_answer_sees_no_reset() {
    let place = Place::with(|plan| plan.options.linger_ms = 60_000);
    let last = "GET /hello.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let and_more = format!("{last}{last}");
    for request in [
        &and_more,
        "GET /hello.txt HTTP/1.0\r\n\r\n",
        "no request\r\n",
    ] {
        let mut stream = place.connect();
        stream
            .write_all(request.as_bytes())
            .expect("the server reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        assert!(answer.starts_with(b"HTTP/1.1 "), "{request:?}");
        for _ in 0..20 {
            stream.write_all(last.as_bytes()).expect("no reset");
        }
        assert_eq!(stream.read(&mut [0; 10]).expect("no reset"), 0);
    }
}

/// It has promised to send nothing more (RFC 9112, 9.6), so nothing has to be waited for.
#[test]
fn a_client_that_says_that_it_is_through_is_not_waited_for() {
    let place = Place::with(|plan| plan.options.linger_ms = 60_000);
    for path in ["/hello.txt", "/none"] {
        let mut stream = place.connect();
        let last = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(last.as_bytes()).expect("the server reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        assert!(answer.starts_with(b"HTTP/1.1 "), "{path}");
        let deadline = Instant::now() + PATIENCE;
        // Once the server has closed its socket, the kernel resets.
        while stream.write_all(b"x").is_ok() {
            assert!(Instant::now() < deadline, "the connection is still open");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_client_that_never_closes_is_not_kept() {
    let place = Place::with(|plan| plan.options.linger_ms = 300);
    let mut stream = place.connect();
    stream
        .write_all(b"GET /hello.txt HTTP/1.0\r\n\r\n")
        .expect("the server reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let deadline = Instant::now() + PATIENCE;
    // Once the server has closed its socket, the kernel resets.
    while stream.write_all(b"x").is_ok() {
        assert!(Instant::now() < deadline, "the connection is still open");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_file_that_becomes_shorter_ends_the_connection() {
    const SIZE: u64 = 200 << 20;
    let place = Place::new();
    let path = place.root().join("huge");
    let file = fs::File::create(path).expect("room");
    file.set_len(SIZE).expect("a length");
    let mut stream = place.connect();
    stream
        .write_all(b"GET /huge HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("the server reads");
    let mut first = [0; 1000];
    stream.read_exact(&mut first).expect("an answer");
    // More than the sockets' buffers is still to come.
    file.set_len(1).expect("a length");
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer);
    assert!(ended.is_err() || (answer.len() as u64) < SIZE - 1000);
    assert_eq!(place.get("/hello.txt", "").status, 200);
}

#[test]
fn the_end_waits_for_the_requests_that_are_there() {
    let mut place = Place::new();
    let mut stream = place.connect();
    stream
        .write_all(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("the server reads");
    let mut first = [0; 100];
    stream.read_exact(&mut first).expect("an answer");
    let address = place.server().addresses()[0];
    let idle = connect(address);
    let server = place.server.take().expect("it runs");
    let end = std::thread::spawn(move || server.end());
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the rest");
    let text = String::from_utf8_lossy(&first).into_owned();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    assert!(rest.len() > 2_999_000, "{}", rest.len());
    end.join().expect("no panic").expect("no loop failed");
    drop(idle);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn counters_are_at_an_address_of_their_own() {
    let place = Place::with(|plan| plan.metrics = Some(([127, 0, 0, 1], 0).into()));
    place.get("/hello.txt", "");
    let mut stream = connect(place.server().metrics().expect("an address"));
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .expect("the server reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert!(text.contains("flash_requests_total{loop=\"1\"}"), "{text}");
    assert_eq!(place.get("/metrics", "").status, 404);
}

#[test]
fn requests_are_logged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let mut place = Place::with(|plan| plan.log = Some(path.clone()));
    place.get("/hello.txt", "User-Agent: \"x\"\r\nReferer: http://b/\r\n");
    place.send(b"nonsense\r\n\r\n");
    place
        .server
        .take()
        .expect("it runs")
        .end()
        .expect("no loop failed");
    let text = fs::read_to_string(&path).expect("a log");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("127.0.0.1 - - ["), "{text}");
    let end = "\"GET /hello.txt HTTP/1.1\" 200 10 \"http://b/\" \"\\\"x\\\"\"";
    assert!(lines[0].ends_with(end), "{text}");
    assert!(lines[1].contains("] \"-\" 400 "), "{text}");
}

#[test]
fn many_connections_at_once() {
    let place = Place::new();
    let mut streams: Vec<TcpStream> = (0..200).map(|_| place.connect()).collect();
    for _ in 0..5 {
        for stream in &mut streams {
            stream
                .write_all(b"GET /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("it reads");
        }
        for stream in &mut streams {
            let mut text = String::new();
            let mut buffer = [0; 4096];
            while !text.ends_with("0123456789") {
                let length = stream.read(&mut buffer).expect("an answer");
                assert!(length > 0, "{text}");
                text.push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        }
    }
}

#[test]
fn what_cannot_be_served_is_an_error_with_its_name() {
    let start = |directory: &Path, listen: SocketAddr| {
        let host = VirtualHost::of_directory(
            directory.to_path_buf(),
            vec![listen.into()],
            FileOptions::default(),
        );
        let started = Server::start(Plan {
            loops: 1,
            helpers: 1,
            ..Plan::of(vec![host])
        });
        format!("{:#}", started.err().expect("an error"))
    };
    let missing = start(Path::new("/no/such/place"), ([127, 0, 0, 1], 0).into());
    assert!(
        missing.contains("/no/such/place: No such file"),
        "{missing}"
    );
    let place = Place::new();
    let taken = start(&place.root(), place.server().addresses()[0]);
    assert!(taken.contains("Address already in use"), "{taken}");
    let elsewhere = start(Path::new("/"), ([192, 0, 2, 1], 80).into());
    assert!(
        elsewhere.contains("cannot listen at 192.0.2.1:80"),
        "{elsewhere}"
    );
}
