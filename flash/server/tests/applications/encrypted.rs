// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applications for clients that speak TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};

use super::exchange::is_alive;
use super::program::{read, wait_until, Answer, Program};
use super::support::{config, files};

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A server with its certificate.
struct Encrypted {
    program: Program,
    client: Arc<ClientConfig>,
}

impl Encrypted {
    /// `settings`: of the application.
    fn start(program: &str, settings: &str) -> Encrypted {
        let made = rcgen::generate_simple_self_signed(["a.example".to_string()]);
        let made = made.expect("a certificate");
        let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let config = Encrypted::config(program, settings);
        let all = files();
        let mut all = all.to_vec();
        all.extend([("a.pem", cert.as_str()), ("a.key", key.as_str())]);
        let mut roots = RootCertStore::empty();
        let shown = CertificateDer::from_pem_slice(cert.as_bytes()).expect("a certificate");
        roots.add(shown).expect("it can be trusted");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("they are known")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Encrypted {
            program: Program::start(&config, &all),
            client: Arc::new(client),
        }
    }

    fn config(program: &str, settings: &str) -> String {
        let tls = "[[server]]\ntls = [{ listen = [\"127.0.0.2:0\"], cert = \"a.pem\", key = \"a.key\" }]\n";
        config(program, settings, "loops = 1\n").replacen("[[server]]\n", tls, 1)
    }

    fn connect(&self) -> Stream {
        let host = ServerName::try_from("a.example").expect("a name");
        let client = ClientConnection::new(Arc::clone(&self.client), host).expect("a client");
        StreamOwned::new(client, super::program::connect(self.program.tls_address()))
    }

    fn asking(&self, target: &str) -> Stream {
        let mut stream = self.connect();
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        stream
    }

    /// `Err`: the connection ended without the server having said so.
    fn get(&self, target: &str) -> std::io::Result<String> {
        let mut answer = Vec::new();
        self.asking(target).read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

#[test]
fn answers_are_the_same_with_tls() {
    let server = Encrypted::start("good.py", ", processes = 1");
    let mut stream = server.connect();
    let long = "c".repeat(1_000_000);
    let requests = format!(
        "GET /app/variables HTTP/1.1\r\nHost: a\r\n\r\n\
         POST /app/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
         GET /file HTTP/1.1\r\nHost: a\r\n\r\n\
         POST /app/echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{long}\
         GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
        long.len()
    );
    // The server does not take all of it before its first answers have been read.
    for part in requests.as_bytes().chunks(200_000) {
        stream.write_all(part).expect("it reads");
    }
    let variables = Answer::next(&mut stream);
    assert!(variables.body.contains("\nHTTPS=on\n"), "{variables:?}");
    assert_eq!(Answer::next(&mut stream).body, "hello");
    assert_eq!(Answer::next(&mut stream).body, "a file\n");
    assert_eq!(Answer::next(&mut stream).body, long);
    assert_eq!(Answer::next(&mut stream).body.len(), 1 << 20);
    let large = server.get("/app/large").expect("an answer");
    let (_, body) = large.split_once("\r\n\r\n").expect("a head");
    assert_eq!(body.len(), 64 << 20);
    let streamed = server.get("/app/stream").expect("an answer");
    assert!(streamed.ends_with("\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"));
    let log = || read(&server.program.path("access.log"));
    wait_until("the log", || log().lines().count() == 7);
    let made = log();
    let made: Vec<_> = made
        .lines()
        .filter(|line| line.contains("/app/large"))
        .collect();
    assert!(made[0].contains("\"bytes\":67108864,"), "{made:?}");
    assert_eq!(server.program.count("flash_application_connections"), 0);
    server.program.end();
}

#[test]
fn an_answer_that_cannot_be_finished_is_an_error_or_a_cut_connection() {
    let server = Encrypted::start("good.py", ", silence = \"300ms\"");
    for (target, status) in [("/app/die", " 502 "), ("/app/hang", " 504 ")] {
        let answer = server.get(target).expect("an answer");
        assert!(
            answer
                .split("\r\n")
                .next()
                .expect("a line")
                .contains(status),
            "{answer}"
        );
    }
    for target in ["/app/late-die", "/app/late-hang"] {
        let ended = server.get(target).expect_err("it is not whole");
        let is_cut = matches!(
            ended.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
        );
        assert!(is_cut, "{target}: {ended}");
    }
    assert_eq!(server.program.count("flash_upstream_cut_total"), 2);
    server.program.end();
}

#[test]
fn a_client_that_does_not_read_delays_no_other_and_leaves_nothing() {
    let server = Encrypted::start("good.py", ", processes = 2");
    let mut slow = server.asking("/app/large");
    let mut begin = [0; 12];
    slow.read_exact(&mut begin).expect("a head");
    for _ in 0..50 {
        assert!(server
            .get("/file")
            .expect("an answer")
            .ends_with("a file\n"));
        assert!(server.get("/app/pid").is_ok());
    }
    assert_eq!(server.program.count("flash_application_connections"), 1);
    drop(slow);
    wait_until("the process is back", || {
        server.program.count("flash_application_connections") == 0
    });
    server.program.end();
}

#[test]
fn an_answer_goes_on_under_the_next_configuration() {
    let server = Encrypted::start("good.py", ", processes = 1");
    let pid = server.get("/app/pid").expect("an answer");
    let pid = pid.rsplit('\n').next().expect("a line").to_string();
    let mut streaming = server.asking("/app/stream-wait");
    let mut begin = [0; 12];
    streaming.read_exact(&mut begin).expect("a head");
    server
        .program
        .load(&Encrypted::config("good.py", ", processes = 2"));
    std::fs::write(server.program.path("go"), "").expect("room");
    let mut rest = String::new();
    streaming.read_to_string(&mut rest).expect("an answer");
    assert!(rest.ends_with("\r\n4\r\nlast\r\n0\r\n\r\n"), "{rest}");
    wait_until("the end of the first process", || !is_alive(&pid));
    server.program.end();
}
