// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients of several makes speak TLS with a server.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use debox_skipped::skipped;
use flash::server::{Plan, Server};
use flash::sites::{FileOptions, TlsListen, VirtualHost};
use flash::tls::{Pair, Settings};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, ProtocolVersion,
    SignatureScheme, StreamOwned, SupportedProtocolVersion,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);
const BIG: usize = 3_000_000;

type Stream = StreamOwned<ClientConnection, TcpStream>;

struct Place {
    directory: TempDir,
    server: Option<Server>,
}

impl Place {
    fn new() -> Place {
        Place::with(|_, _| {})
    }

    fn with(change: impl FnOnce(&mut Plan, &Path)) -> Place {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root");
        fs::create_dir(&root).expect("room");
        fs::write(root.join("hello.txt"), "0123456789").expect("room");
        fs::write(root.join("big"), big()).expect("room");
        let mut plan = plan(directory.path());
        change(&mut plan, directory.path());
        let server = Server::start(plan).expect("it starts");
        Place {
            directory,
            server: Some(server),
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    fn address(&self) -> SocketAddr {
        self.server().tls_addresses()[0]
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream
    }

    fn client(&self, config: &Arc<ClientConfig>, host: &str) -> Stream {
        let host = ServerName::try_from(host.to_string()).expect("a name");
        let client = ClientConnection::new(Arc::clone(config), host).expect("a client");
        StreamOwned::new(client, self.connect())
    }

    fn get(&self, config: &Arc<ClientConfig>, target: &str) -> (Stream, Vec<u8>) {
        let mut stream = self.client(config, "a.example");
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        // An end without close_notify would be an error.
        stream.read_to_end(&mut answer).expect("an answer");
        (stream, answer)
    }

    /// The certificate that a client is shown.
    fn certificate(&self, host: &str) -> CertificateDer<'static> {
        let mut stream = self.client(&config(rustls::ALL_VERSIONS), host);
        while stream.conn.is_handshaking() {
            stream
                .conn
                .complete_io(&mut stream.sock)
                .expect("a handshake");
        }
        let shown = stream.conn.peer_certificates().expect("certificates");
        shown[0].clone().into_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.end().expect("no loop failed");
        }
    }
}

/// With a new certificate.
fn plan(directory: &Path) -> Plan {
    let pairs = vec![make_pair(directory, "a", &["a.example"])];
    let root = directory.join("root");
    let host = VirtualHost {
        tls: vec![TlsListen {
            address: ([127, 0, 0, 1], 0).into(),
            settings: Settings { pairs },
        }],
        ..VirtualHost::of_directory(root, vec![], FileOptions::default())
    };
    Plan {
        loops: 2,
        helpers: 4,
        ..Plan::of(vec![host])
    }
}

fn big() -> Vec<u8> {
    (0..BIG as u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn make_pair(place: &Path, name: &str, hosts: &[&str]) -> Pair {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_string()).collect();
    let made = rcgen::generate_simple_self_signed(hosts).expect("a certificate");
    let pair = Pair {
        cert: place.join(format!("{name}.pem")),
        key: place.join(format!("{name}.key")),
    };
    fs::write(&pair.cert, made.cert.pem()).expect("room");
    fs::write(&pair.key, made.signing_key.serialize_pem()).expect("room");
    pair
}

fn der(pair: &Pair) -> CertificateDer<'static> {
    use rustls_pki_types::pem::PemObject;
    CertificateDer::from_pem_file(&pair.cert).expect("a certificate")
}

/// Takes any certificate: the tests look at it themselves.
#[derive(Debug)]
struct AnyCertificate(rustls::crypto::CryptoProvider);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn config(versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
    config_for(versions, &["http/1.1"])
}

fn config_for(
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&str],
) -> Arc<ClientConfig> {
    let provider = rustls::crypto::ring::default_provider();
    let verifier = Arc::new(AnyCertificate(provider.clone()));
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let mut config = builder
        .with_protocol_versions(versions)
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
    config.alpn_protocols = protocols.collect();
    Arc::new(config)
}

fn body(answer: &[u8]) -> &[u8] {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    &answer[end.expect("a head") + 4..]
}

#[test]
fn files_come_whole_with_both_versions() {
    let place = Place::new();
    for (version, number) in [
        (&rustls::version::TLS12, ProtocolVersion::TLSv1_2),
        (&rustls::version::TLS13, ProtocolVersion::TLSv1_3),
    ] {
        let config = config(&[version]);
        let (stream, answer) = place.get(&config, "/hello.txt");
        assert_eq!(body(&answer), b"0123456789");
        assert_eq!(stream.conn.protocol_version(), Some(number));
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        let (_, answer) = place.get(&config, "/big");
        assert!(body(&answer) == big());
        let (_, answer) = place.get(&config, "/none");
        assert!(answer.starts_with(b"HTTP/1.1 404 "));
    }
}

#[test]
fn a_url_with_https_is_a_target() {
    let place = Place::new();
    let (_, answer) = place.get(&config(rustls::ALL_VERSIONS), "https://a/none");
    assert!(answer.starts_with(b"HTTP/1.1 404 "));
}

#[test]
fn a_client_that_speaks_only_other_protocols_is_refused() {
    let place = Place::new();
    let mut stream = place.client(&config_for(rustls::ALL_VERSIONS, &["h2"]), "a.example");
    let error = stream
        .write_all(b"x")
        .and_then(|()| stream.read(&mut [0; 9]).map(drop));
    let error = error.expect_err("an alert").to_string();
    assert!(error.contains("NoApplicationProtocol"), "{error}");
    // Who names none speaks HTTP/1.1.
    let (_, answer) = place.get(&config_for(rustls::ALL_VERSIONS, &[]), "/hello.txt");
    assert_eq!(body(&answer), b"0123456789");
}

#[test]
fn sessions_are_resumed_in_any_loop() {
    let place = Place::new();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = config(&[version]);
        let (first, _) = place.get(&config, "/hello.txt");
        assert_eq!(first.conn.handshake_kind(), Some(HandshakeKind::Full));
        for _ in 0..10 {
            let (next, _) = place.get(&config, "/hello.txt");
            assert_eq!(next.conn.handshake_kind(), Some(HandshakeKind::Resumed));
        }
    }
}

#[test]
fn many_requests_and_the_end_of_the_clients_side() {
    let place = Place::new();
    let mut stream = place.client(&config(rustls::ALL_VERSIONS), "a.example");
    let one = "GET /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    stream
        .write_all(one.repeat(100).as_bytes())
        .expect("it reads");
    stream.conn.send_close_notify();
    stream.flush().expect("it reads");
    stream.sock.shutdown(Shutdown::Write).expect("a connection");
    let mut text = String::new();
    stream
        .read_to_string(&mut text)
        .expect("answers, and an end that is said");
    assert_eq!(text.matches("0123456789").count(), 100);
}

#[test]
fn a_request_without_tls_is_told_so() {
    let place = Place::new();
    let mut stream = place.connect();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    assert!(text.contains("This port speaks HTTPS"), "{text}");
}

#[test]
fn each_host_has_its_certificate_and_new_ones_are_loaded() {
    let mut pair = None;
    let place = Place::with(|plan, place| {
        let other = make_pair(place, "b", &["*.b.example"]);
        plan.hosts[0].tls[0].settings.pairs.push(other.clone());
        pair = Some(other);
    });
    let pair = pair.expect("it was made");
    let first = der(&pair);
    assert_eq!(place.certificate("x.b.example"), first);
    assert_ne!(place.certificate("a.example"), first);
    assert_eq!(
        place.certificate("a.example"),
        place.certificate("other.example")
    );
    fs::write(&pair.cert, "nonsense").expect("room");
    let errors = place.server().reload_certificates();
    let text = format!("{:#}", errors.first().expect("an error"));
    assert!(text.contains("b.pem"), "{text}");
    assert_eq!(place.certificate("x.b.example"), first);
    make_pair(place.directory.path(), "b", &["*.b.example"]);
    assert!(place.server().reload_certificates().is_empty());
    assert_eq!(place.certificate("x.b.example"), der(&pair));
    assert_ne!(place.certificate("x.b.example"), first);
}

#[test]
fn handshakes_have_a_deadline_and_a_limit() {
    let place = Place::with(|plan, _| {
        plan.loops = 1;
        plan.options.handshake_ms = 2_000;
        plan.options.max_handshakes = 2;
        plan.metrics = Some(([127, 0, 0, 1], 0).into());
    });
    let began = Instant::now();
    let mut silent = [place.connect(), place.connect()];
    // The begin of a record.
    silent[0].write_all(&[22, 3, 1, 2, 0, 1]).expect("it reads");
    let mut third = place.connect();
    assert!(matches!(third.read(&mut [0; 9]), Ok(0) | Err(_)));
    for stream in &mut silent {
        assert!(matches!(stream.read(&mut [0; 9]), Ok(0)));
    }
    assert!(began.elapsed() >= Duration::from_millis(2_000));
    let (_, answer) = place.get(&config(rustls::ALL_VERSIONS), "/hello.txt");
    assert_eq!(body(&answer), b"0123456789");
    let metrics = place.server().metrics().expect("an address");
    let mut stream = TcpStream::connect(metrics).expect("it listens");
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    for row in [
        "flash_tls_handshakes_total{loop=\"0\"} 1",
        "flash_tls_failed_total{loop=\"0\"} 2",
        "flash_tls_refused_total{loop=\"0\"} 1",
        "flash_tls_handshakes_open{loop=\"0\"} 0",
    ] {
        assert!(text.lines().any(|line| line == row), "{row}: {text}");
    }
}

/// Who is sent less than was promised must be able to tell it from the end.
#[test]
fn a_file_that_becomes_shorter_has_no_proper_end() {
    let place = Place::new();
    let file = fs::File::create(place.directory.path().join("root/huge")).expect("room");
    file.set_len(200 << 20).expect("a length");
    let mut stream = place.client(&config(rustls::ALL_VERSIONS), "a.example");
    stream
        .write_all(b"GET /huge HTTP/1.0\r\n\r\n")
        .expect("it reads");
    stream.read_exact(&mut [0; 1000]).expect("an answer");
    file.set_len(1).expect("a length");
    let ended = stream.read_to_end(&mut Vec::new()).expect_err("no end");
    let kinds = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
    assert!(kinds.contains(&ended.kind()), "{ended}");
}

#[test]
fn a_client_that_reads_slowly_gets_all() {
    let place = Place::new();
    let mut slow = place.client(&config(rustls::ALL_VERSIONS), "a.example");
    slow.write_all(b"GET /big HTTP/1.0\r\n\r\n")
        .expect("it reads");
    // Others are served while its answer waits for it.
    for _ in 0..5 {
        place.get(&config(rustls::ALL_VERSIONS), "/hello.txt");
    }
    let (mut answer, mut piece) = (Vec::new(), [0; 1000]);
    loop {
        match slow.read(&mut piece).expect("an answer") {
            0 => break,
            length => answer.extend_from_slice(&piece[..length]),
        }
    }
    assert!(body(&answer) == big());
}

/// What is encrypted and not sent is sent when the client makes room, though the upstream sends nothing meanwhile. Of these
/// lengths, some end where the socket takes no more for the first time.
#[test]
fn the_part_of_an_answer_that_has_come_is_sent_whole() {
    let lengths = || (4..30).map(|number| number * 8_000);
    let upstream = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = upstream.local_addr().expect("an address").port();
    let (has_come, goes_on) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        for (length, stream) in lengths().zip(upstream.incoming().flatten()) {
            let mut stream = stream;
            let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
            while lines
                .next()
                .is_some_and(|line| !line.expect("text").is_empty())
            {}
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", length + 3);
            stream.write_all(head.as_bytes()).expect("it reads");
            let part = vec![b'p'; length];
            let (most, last) = part.split_at(length - 10_000);
            stream.write_all(most).expect("it reads");
            // The server has taken it by then, and no event but its own comes after the last.
            std::thread::sleep(Duration::from_millis(10));
            stream.write_all(last).expect("it reads");
            if goes_on.recv().is_err() {
                return;
            }
            stream.write_all(b"end").expect("it reads");
        }
    });
    let place = Place::with(|plan, directory| {
        let config = format!(
            "[[server]]\nroot = \"root\"\n\
             tls = [{{ listen = [\"127.0.0.1:0\"], cert = \"a.pem\", key = \"a.key\" }}]\n\
             [[server.location]]\npath = \"/\"\nproxy = \"http://127.0.0.1:{port}\"\n"
        );
        let path = directory.join("flash.toml");
        fs::write(&path, config).expect("room");
        plan.hosts = flash::config::read(&path).expect("it is right").1;
    });
    for length in lengths() {
        let host = ServerName::try_from("a.example").expect("a name");
        let config = config(&[&rustls::version::TLS13]);
        let client = ClientConnection::new(config, host).expect("a client");
        let mut stream = StreamOwned::new(client, connect_narrowly(place.address()));
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        // Until the server cannot send any more.
        std::thread::sleep(Duration::from_millis(50));
        let (mut answer, mut piece) = (Vec::new(), [0; 16 << 10]);
        while answer.len() < 1000 || body(&answer).len() < length {
            let read = stream.read(&mut piece).expect("the part that has come");
            assert!(read > 0, "the connection has ended");
            answer.extend_from_slice(&piece[..read]);
        }
        has_come.send(()).expect("the upstream waits");
        stream.read_to_end(&mut answer).expect("the rest");
        assert!(answer.ends_with(b"pend") && body(&answer).len() == length + 3);
    }
}

/// With room for few bytes that have not been read.
fn connect_narrowly(address: SocketAddr) -> TcpStream {
    use nix::sys::socket::{setsockopt, sockopt};
    use rustix::net::{connect, socket, AddressFamily, SocketType};

    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    setsockopt(&socket, sockopt::RcvBuf, &4096).expect("a socket");
    // The server's socket holds some full segments: without this, three million bytes.
    setsockopt(&socket, sockopt::TcpMaxSeg, &1000).expect("a socket");
    connect(&socket, &address).expect("it listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// Whether a program is there.
fn has(program: &str) -> bool {
    let done = Command::new(program).arg("--version").output();
    done.is_ok()
}

#[test]
fn curl_and_openssl_are_served() {
    if !has("curl") || !has("openssl") {
        return skipped("TLS with other clients: curl or openssl is not installed");
    }
    let mut rsa = None;
    let place = Place::with(|plan, place| {
        let (cert, key) = (place.join("rsa.pem"), place.join("rsa.key"));
        let made = Command::new("openssl")
            .args([
                "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            ])
            .args([
                "-subj",
                "/CN=r.example",
                "-addext",
                "subjectAltName=DNS:r.example",
            ])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&cert)
            .output()
            .expect("it can be executed");
        assert!(made.status.success(), "{made:?}");
        rsa = Some(cert.clone());
        plan.hosts[0].tls[0].settings.pairs.push(Pair { cert, key });
    });
    let port = place.address().port();
    let certs: [(&str, PathBuf); 2] = [
        ("a.example", place.directory.path().join("a.pem")),
        ("r.example", rsa.expect("it was made")),
    ];
    for (host, cert) in certs {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--noproxy", "*"])
            .args(["--resolve", &format!("{host}:{port}:127.0.0.1")])
            .arg("--cacert")
            .arg(&cert)
            .args(vec![format!("https://{host}:{port}/big"); 2])
            .output()
            .expect("it can be executed");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{host}: {error}");
        assert!(output.stdout == [big(), big()].concat(), "{host}");
        for version in ["-tls1_2", "-tls1_3"] {
            let mut client = Command::new("openssl")
                .args([
                    "s_client",
                    "-quiet",
                    "-verify_return_error",
                    "-alpn",
                    "http/1.1",
                ])
                .args([
                    "-connect",
                    &format!("127.0.0.1:{port}"),
                    "-servername",
                    host,
                ])
                .args([version, "-CAfile"])
                .arg(&cert)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("it can be executed");
            let mut input = client.stdin.take().expect("a pipe");
            input
                .write_all(b"GET /hello.txt HTTP/1.0\r\n\r\n")
                .expect("it reads");
            let output = client.wait_with_output().expect("it ends");
            drop(input);
            assert_eq!(body(&output.stdout), b"0123456789", "{host} {version}");
        }
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_signal_loads_the_certificates_again() {
    let place = Place::new();
    let pair = make_pair(place.directory.path(), "c", &["c.example"]);
    let command = Command::new(env!("CARGO_BIN_EXE_flash"))
        .arg("serve")
        .arg(place.directory.path().join("root"))
        .args(["--tls-listen", "127.0.0.1:0", "--loops", "1", "--tls-cert"])
        .arg(&pair.cert)
        .arg("--tls-key")
        .arg(&pair.key)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut flash = Running(command.expect("it can be executed"));
    let out = flash.0.stdout.take().expect("a pipe");
    let mut lines = BufReader::new(out).lines();
    let line = lines.next().expect("a line").expect("text");
    let address = line
        .strip_prefix("serving at https://")
        .expect("an address");
    let address: SocketAddr = address.trim_end_matches('/').parse().expect("an address");
    let shown = || {
        let host = ServerName::try_from("c.example").expect("a name");
        let mut client =
            ClientConnection::new(config(rustls::ALL_VERSIONS), host).expect("a client");
        let mut stream = TcpStream::connect(address).expect("it listens");
        while client.is_handshaking() {
            client.complete_io(&mut stream).expect("a handshake");
        }
        client.peer_certificates().expect("certificates")[0]
            .clone()
            .into_owned()
    };
    let hang_up = || {
        let pid = flash.0.id().to_string();
        let done = Command::new("kill").args(["-HUP", &pid]).status();
        assert!(done.expect("kill can be executed").success());
    };
    let first = der(&pair);
    assert_eq!(shown(), first);
    make_pair(place.directory.path(), "c", &["c.example"]);
    hang_up();
    let began = Instant::now();
    while shown() == first {
        assert!(
            began.elapsed() < PATIENCE,
            "the old certificate is still shown"
        );
    }
    fs::write(&pair.key, "nonsense").expect("room");
    hang_up();
    let errors = flash.0.stderr.take().expect("a pipe");
    let mut errors = BufReader::new(errors).lines();
    let found = errors.find(|line| {
        let line = line.as_deref().unwrap_or_default();
        line.contains("the certificates in use stay: ") && line.contains("c.key")
    });
    assert!(found.is_some());
    assert_eq!(shown(), der(&pair));
}

/// Asks on a connection that is kept.
fn ask(stream: &mut Stream) -> String {
    let request = b"GET /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request).expect("it reads");
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n0123456789") {
        let mut piece = [0; 1024];
        let length = stream.read(&mut piece).expect("an answer");
        assert!(length > 0, "the connection has ended: {answer}");
        answer.push_str(std::str::from_utf8(&piece[..length]).expect("text"));
    }
    answer
}

#[test]
fn connections_and_sessions_outlive_a_new_configuration() {
    let mut place = Place::new();
    let config = config(&[&rustls::version::TLS13]);
    let mut kept = place.client(&config, "a.example");
    ask(&mut kept);
    // It is in the middle of its handshake.
    let mut slow = place.connect();
    slow.write_all(&[22, 3]).expect("it reads");
    place.get(&config, "/hello.txt");
    let shown = place.certificate("a.example");
    let changed = plan(place.directory.path());
    let server = place.server.as_mut().expect("it runs");
    let address = server.tls_addresses()[0];
    server.reload(Ok(changed)).expect("it is right");
    assert_eq!(server.tls_addresses()[0], address);
    ask(&mut kept);
    assert_ne!(place.certificate("a.example"), shown);
    let (next, _) = place.get(&config, "/hello.txt");
    assert_eq!(next.conn.handshake_kind(), Some(HandshakeKind::Resumed));
    slow.write_all(b"nonsense").expect("it reads");
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    assert_eq!(rest.first(), Some(&21), "an alert");
}

#[test]
fn the_log_has_the_version_and_the_host() {
    let place = Place::with(|plan, directory| {
        plan.log = Some(directory.join("log"));
        plan.options.log_format = flash::log::Format::Json;
    });
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        place.get(&config(&[version]), "/hello.txt");
    }
    let began = Instant::now();
    let text = loop {
        let text = fs::read_to_string(place.directory.path().join("log")).expect("it is there");
        if text.lines().count() == 2 {
            break text;
        }
        assert!(began.elapsed() < PATIENCE, "{text}");
        std::thread::yield_now();
    };
    for version in ["TLSv1.2", "TLSv1.3"] {
        let has = |line: &str| line.contains(&format!("\"tls\":\"{version}\""));
        assert_eq!(text.lines().filter(|line| has(line)).count(), 1, "{text}");
    }
    assert!(
        text.lines().all(|line| line.contains("\"host\":\"a\"")),
        "{text}"
    );
}
