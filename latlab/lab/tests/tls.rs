//! TLS: against nginx if it is installed, and against a server in this file whose delays are all known.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, Stream};
use support::{errors, free_port, latlab, number, run, Running};

/// An authority, and a certificate for `localhost` that it has signed.
struct Certificates {
    authority: String,
    certificate: rcgen::Certificate,
    key: KeyPair,
}

static AUTHORITIES: AtomicU32 = AtomicU32::new(0);

fn certificates() -> Certificates {
    let key = KeyPair::generate().expect("a key");
    let mut own = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    own.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    // If both had the same name, the certificate would be taken for a self-signed one with a wrong signature.
    let name = rcgen::DnType::CommonName;
    let number = AUTHORITIES.fetch_add(1, Ordering::Relaxed);
    own.distinguished_name
        .push(name, format!("authority {number}"));
    let authority = own.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(own, key);
    let key = KeyPair::generate().expect("a key");
    let its = rcgen::CertificateParams::new(vec!["localhost".to_string()]).expect("a name");
    let certificate = its.signed_by(&key, &issuer).expect("a certificate");
    Certificates {
        authority,
        certificate,
        key,
    }
}

/// A self-signed certificate that is an authority, as `openssl req -x509` makes it.
fn certificates_of_its_own() -> Certificates {
    let key = KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_string()];
    let mut own = rcgen::CertificateParams::new(names).expect("a name");
    own.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = own.self_signed(&key).expect("a certificate");
    Certificates {
        authority: certificate.pem(),
        certificate,
        key,
    }
}

/// The server's behaviour.
#[derive(Clone, Copy, Default)]
struct Behaviour {
    /// Delay before its part of the handshake.
    handshake_ms: u64,
    reply_ms: u64,
    body: usize,
    /// The reply ends with the connection, which is cut after this many bytes of the body.
    cut_at: Option<usize>,
    /// Whether it sends close_notify before the end.
    says_end: bool,
    /// Sends each reply in small records, with pauses in between.
    slowly: bool,
}

fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    behaviour: Behaviour,
) -> std::io::Result<()> {
    std::thread::sleep(Duration::from_millis(behaviour.handshake_ms));
    let mut stream = stream;
    stream.set_nodelay(true)?;
    let mut session = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut tls = Stream::new(&mut session, &mut stream);
    let mut buffer = [0; 4096];
    let mut asked = Vec::new();
    loop {
        match tls.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => asked.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        if !asked.ends_with(b"\r\n\r\n") {
            continue;
        }
        asked.clear();
        std::thread::sleep(Duration::from_millis(behaviour.reply_ms));
        let body: Vec<u8> = (0..behaviour.body).map(|at| (at % 251) as u8).collect();
        if let Some(cut_at) = behaviour.cut_at {
            tls.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            tls.write_all(&body[..cut_at])?;
            if behaviour.says_end {
                tls.conn.send_close_notify();
            }
            return tls.flush();
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        if behaviour.slowly {
            for piece in [head.as_bytes(), &body].concat().chunks(700) {
                tls.write_all(piece)?;
                tls.flush()?;
                std::thread::sleep(Duration::from_millis(1));
            }
        } else {
            tls.write_all(head.as_bytes())?;
            tls.write_all(&body)?;
        }
        tls.flush()?;
    }
}

/// Starts the server, and returns its URL.
fn server(certificates: &Certificates, behaviour: Behaviour) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    let key = PrivateKeyDer::try_from(certificates.key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificates.certificate.der().clone()], key)
        .expect("they belong together");
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, config) = (stream.expect("a connection"), Arc::clone(&config));
            std::thread::spawn(move || drop(serve(stream, config, behaviour)));
        }
    });
    format!("https://localhost:{port}/")
}

struct Trusted {
    certificates: Certificates,
    _place: tempfile::TempDir,
    file: String,
}

fn trusted() -> Trusted {
    let certificates = certificates();
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("authority.pem");
    std::fs::write(&file, &certificates.authority).expect("own directory");
    Trusted {
        certificates,
        file: file.display().to_string(),
        _place: place,
    }
}

#[test]
fn replies_come_whole_through_tls_in_pieces_of_any_size() {
    let trusted = trusted();
    for slowly in [false, true] {
        let behaviour = Behaviour {
            body: 300_000 >> if slowly { 6 } else { 0 },
            slowly,
            ..Behaviour::default()
        };
        let url = server(&trusted.certificates, behaviour);
        let summary = run(&url, &["--cacert", &trusted.file, "-n", "60", "-c", "6"]);
        assert_eq!(number(&summary, "/ok"), 60, "{summary:#}");
        assert_eq!(number(&summary, "/connections_opened"), 6, "{summary:#}");
        let tls = summary["tls"].as_str().expect("there is one");
        assert!(tls.starts_with("TLS 1.3, TLS13_AES"), "{tls}");
    }
}

/// The handshake is part of what a user waits for, but not of the server's time for the request.
#[test]
fn the_handshake_is_told_apart() {
    let trusted = trusted();
    let behaviour = Behaviour {
        handshake_ms: 200,
        reply_ms: 50,
        body: 10,
        ..Behaviour::default()
    };
    let url = server(&trusted.certificates, behaviour);
    let once = ["--per-connection", "1", "-c", "2", "-n", "8"];
    let rows = trusted.file.replace("authority.pem", "rows.parquet");
    let all = [&["--cacert", &trusted.file, "-o", &rows], &once[..]].concat();
    let summary = run(&url, &all);
    assert_eq!(number(&summary, "/ok"), 8, "{summary:#}");
    let ms = |pointer: &str| number(&summary, pointer) as f64 / 1e6;
    let handshake = ms("/tls_handshake/p50_ns");
    assert!((200.0..600.0).contains(&handshake), "{summary:#}");
    assert!(ms("/connecting/p50_ns") < 100.0, "{summary:#}");
    assert!(
        (250.0..900.0).contains(&ms("/latency_from_intended/p50_ns")),
        "{summary:#}"
    );
    assert!(
        (50.0..190.0).contains(&ms("/latency_from_start/p50_ns")),
        "{summary:#}"
    );
    let analyzed = latlab(&["analyze", &rows]);
    assert!(analyzed.status.success());
}

#[test]
fn a_certificate_that_is_not_trusted_is_an_error_with_its_reason() {
    let trusted = trusted();
    let url = server(&trusted.certificates, Behaviour::default());
    let other = self::trusted();
    for (arguments, why) in [
        (&["--cacert", other.file.as_str()][..], "UnknownIssuer"),
        (
            &["--cacert", trusted.file.as_str()][..],
            "not valid for name",
        ),
    ] {
        let url = match why {
            "not valid for name" => url.replace("localhost", "127.0.0.1"),
            _ => url.clone(),
        };
        let summary = run(&url, &[arguments, &["-n", "3", "-c", "1"]].concat());
        assert_eq!(errors(&summary, "tls"), 3, "{summary:#}");
        let wrong = summary["tls_error"].as_str().expect("there is one");
        assert!(wrong.contains(why), "{wrong}");
        let refused = summary["refused"].as_str().expect("it is not valid");
        assert!(refused.contains(wrong), "{refused}");
    }
    // The server's own certificate may be trusted as well, even if it is its own authority; its name is
    // checked.
    let own = certificates_of_its_own();
    let file = trusted.file.replace("authority.pem", "own.pem");
    std::fs::write(&file, own.certificate.pem()).expect("own directory");
    let its_url = server(&own, Behaviour::default());
    let named = run(&its_url, &["--cacert", &file, "-n", "3", "-c", "1"]);
    assert_eq!(number(&named, "/ok"), 3, "{named:#}");
    let other_name = its_url.replace("localhost", "127.0.0.1");
    let named = run(&other_name, &["--cacert", &file, "-n", "3", "-c", "1"]);
    assert_eq!(errors(&named, "tls"), 3, "{named:#}");
    let insecure = run(&url, &["--insecure", "-n", "3", "-c", "1"]);
    assert_eq!(number(&insecure, "/ok"), 3, "{insecure:#}");
}

/// Without close_notify, a reply without a length may be truncated.
#[test]
fn a_reply_that_was_cut_off_is_short() {
    let trusted = trusted();
    for says_end in [true, false] {
        let behaviour = Behaviour {
            body: 5000,
            cut_at: Some(4000),
            says_end,
            ..Behaviour::default()
        };
        let url = server(&trusted.certificates, behaviour);
        let summary = run(&url, &["--cacert", &trusted.file, "-n", "4", "-c", "1"]);
        let short = if says_end { 0 } else { 4 };
        assert_eq!(errors(&summary, "short"), short, "{summary:#}");
    }
}

#[test]
fn a_server_that_speaks_no_tls_is_named_as_that_and_one_that_is_silent_times_out() {
    let (_server, url) = support::server(&[]);
    let url = url.replace("http://", "https://");
    let summary = run(&url, &["-k", "-n", "2", "-c", "1"]);
    assert_eq!(errors(&summary, "tls"), 2, "{summary:#}");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}/", silent.local_addr().expect("it has one"));
    let begun = Instant::now();
    let summary = run(&url, &["-k", "-n", "1", "-c", "1", "--timeout", "500ms"]);
    assert_eq!(errors(&summary, "timeout"), 1, "{summary:#}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

fn installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut places = path.split(':').chain(["/usr/sbin"]);
    places.any(|place| Path::new(place).join(program).is_file())
}

/// nginx answers with the method, the host, the SNI server name, and the body.
#[test]
fn nginx_is_measured_through_tls() {
    if !installed("nginx") {
        debox_skipped::skipped("nginx_is_measured_through_tls: nginx is not installed");
        return;
    }
    let trusted = trusted();
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name).display().to_string();
    std::fs::write(path("c.pem"), trusted.certificates.certificate.pem()).expect("own directory");
    std::fs::write(path("k.pem"), trusted.certificates.key.serialize_pem()).expect("own directory");
    std::fs::write(path("large"), vec![b'x'; 400_000]).expect("own directory");
    let port = free_port();
    for protocol in ["TLSv1.2", "TLSv1.3"] {
        let configuration = format!(
            "daemon off; master_process off; pid {0}/pid; error_log {0}/error.log;\n\
            events {{ }}\n\
            http {{ log_format said \
            '$request_method $ssl_server_name $ssl_session_reused $http_x_a $content_length';\n\
            access_log {0}/access.{protocol} said;\n\
            client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f; \
            uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n\
            server {{ listen 127.0.0.1:{port} ssl http2; root {0}; ssl_protocols {protocol};\n\
            ssl_certificate {0}/c.pem; ssl_certificate_key {0}/k.pem; keepalive_requests 50;\n\
            location /moved {{ return 302 /large; }} location /echo {{ return 200 ok; }} }} }}\n",
            place.path().display()
        );
        std::fs::write(path("nginx.conf"), configuration).expect("own directory");
        let nginx = Command::new("nginx")
            .env(
                "PATH",
                format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()),
            )
            .args([
                "-p",
                &path(""),
                "-c",
                &path("nginx.conf"),
                "-e",
                &path("error.log"),
            ])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let _nginx = Running(nginx.expect("it is installed"));
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "nginx did not start"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let ask = |path: &str, more: &[&str]| {
            let url = format!("https://localhost:{port}{path}");
            let all = [&["--cacert", &trusted.file, "-c", "4", "-n", "200"], more].concat();
            run(&url, &all)
        };
        let large = ask("/large", &[]);
        assert_eq!(number(&large, "/ok"), 200, "{large:#}");
        assert!(number(&large, "/connections_opened") >= 4, "{large:#}");
        let tls = large["tls"].as_str().expect("there is one").to_string();
        assert!(tls.starts_with(&protocol.replace("TLSv", "TLS ")), "{tls}");
        let moved = ask("/moved", &["--rate", "400"]);
        assert_eq!(number(&moved, "/redirects/302"), 200, "{moved:#}");
        let put = ask(
            "/echo",
            &["-X", "PUT", "-H", "X-A: seen", "--body", "12345"],
        );
        assert_eq!(number(&put, "/ok"), 200, "{put:#}");
        // Each connection does a full handshake (`.`: no session was resumed).
        let log =
            std::fs::read_to_string(path(&format!("access.{protocol}"))).expect("nginx writes it");
        let mut puts = log
            .lines()
            .filter(|line| line.starts_with("PUT"))
            .peekable();
        assert!(puts.peek().is_some(), "{log}");
        puts.for_each(|line| assert_eq!(line, "PUT localhost . seen 5"));
    }
}
