// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real programs behind the server, and nginx in the same place for comparison.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use debox_skipped::skipped;

use crate::support::{has, place, wait_for, Flash, Running, PATIENCE};

/// Debian's: it sees Debian's modules, which another one may not.
const PYTHON: &str = "/usr/bin/python3";

/// An application that says what it was asked.
const WSGI: &str = r#"
def application(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)) if \
        "chunked" not in environ.get("HTTP_TRANSFER_ENCODING", "") else environ["wsgi.input"].read()
    path = environ["PATH_INFO"]
    if path == "/empty":
        start_response("204 No Content", [("X-App", "1")])
        return []
    if path == "/same":
        start_response("304 Not Modified", [("ETag", '"a"')])
        return []
    if path == "/stream":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return (b"%d\n" % n for n in range(2000))
    names = ["REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "CONTENT_TYPE", "HTTP_HOST", "HTTP_X_FORWARDED_FOR",
             "HTTP_X_FORWARDED_PROTO", "HTTP_COOKIE", "HTTP_ACCEPT"]
    lines = ["%s=%s" % (name, environ.get(name, "")) for name in names] + ["%d %d" % (len(body), sum(body))]
    text = ("\n".join(lines) + "\n").encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(text))),
                              ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
    return [text]
"#;

const ASGI: &str = r#"
async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return
            await send({"type": "websocket.send", "text": "echo " + (message.get("text") or "")})
    size = 0
    while True:
        message = await receive()
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"%d bytes\n" % size, "more_body": True})
    await send({"type": "http.response.body", "body": scope["path"].encode()})
"#;

const WEBSOCKET_CLIENT: &str = r#"
import asyncio, sys, websockets
async def main():
    async with websockets.connect(sys.argv[1]) as socket:
        for size in (1, 1000, 200000):
            await socket.send("x" * size)
            assert await socket.recv() == "echo " + "x" * size
asyncio.run(main())
"#;

fn free_port() -> SocketAddr {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    taken.local_addr().expect("an address")
}

/// A program with processes of its own, which it ends if it is asked to end.
struct Program(Running);

impl Drop for Program {
    fn drop(&mut self) {
        let child = &mut self.0 .0;
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let deadline = Instant::now() + PATIENCE;
        // If it does not end in time, it is killed.
        while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn start(command: &mut Command, place: &Path) -> Program {
    let log = fs::File::create(place.join("program.log")).expect("room");
    let command = command
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a descriptor"));
    Program(Running(
        command.stderr(log).spawn().expect("it can be executed"),
    ))
}

fn wait_for_port(address: SocketAddr) {
    wait_for("a program that listens", || {
        TcpStream::connect(address).is_ok()
    });
}

/// What `curl` gets, without fields that differ each time or name the server in front.
fn curl(address: SocketAddr, arguments: &[&str], target: &str) -> String {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--include",
            "--noproxy",
            "*",
            "--max-time",
            "30",
        ])
        .args(["-H", "Host: app.test"])
        .args(arguments)
        .arg(format!("http://{address}{target}"))
        .output()
        .expect("it can be executed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (head, body) = text.rsplit_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines: Vec<String> = head.lines().map(str::to_ascii_lowercase).collect();
    let of_server = ["date:", "server:", "connection:", "keep-alive:"];
    lines.retain(|line| !of_server.iter().any(|begin| line.starts_with(begin)));
    lines.sort();
    format!("{}\n\n{body}", lines.join("\n"))
}

fn nginx(place: &Path, upstream: SocketAddr) -> Option<(Program, SocketAddr)> {
    let address = free_port();
    let config = format!(
        "daemon off;\nmaster_process off;\npid {0}/pid;\nerror_log {0}/error.log;\nevents {{}}\nhttp {{\n\
         access_log off;\nclient_body_temp_path {0}/b;\nproxy_temp_path {0}/p;\nfastcgi_temp_path {0}/f;\n\
         uwsgi_temp_path {0}/u;\nscgi_temp_path {0}/s;\nserver {{ listen {address};\nlocation / {{\n\
         proxy_pass http://{upstream};\nproxy_http_version 1.1;\nproxy_set_header Connection \"\";\n\
         proxy_set_header Host $http_host;\nproxy_set_header X-Forwarded-For $remote_addr;\n\
         proxy_set_header X-Forwarded-Proto http;\nproxy_request_buffering off;\n}} }} }}\n",
        place.display()
    );
    fs::write(place.join("nginx.conf"), config).expect("room");
    if !has("nginx") {
        return None;
    }
    let mut command = Command::new("nginx");
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin"));
    command
        .arg("-p")
        .arg(place)
        .arg("-c")
        .arg(place.join("nginx.conf"));
    let running = start(&mut command, place);
    wait_for_port(address);
    Some((running, address))
}

#[test]
fn a_wsgi_application_answers_as_behind_nginx() {
    if !has("gunicorn") || !has("curl") {
        return skipped("a WSGI application: gunicorn or curl is not installed");
    }
    let place = place();
    fs::write(place.path().join("app.py"), WSGI).expect("room");
    let upload: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(place.path().join("upload"), upload).expect("room");
    let address = free_port();
    let mut command = Command::new("gunicorn");
    command.args([
        "--bind",
        &address.to_string(),
        "--threads",
        "4",
        "app:application",
    ]);
    let _gunicorn = start(command.current_dir(place.path()), place.path());
    wait_for_port(address);
    let flash = Flash::with(&format!("proxy = \"http://{address}\""));
    let Some((_nginx, beside)) = nginx(place.path(), address) else {
        return skipped("a WSGI application behind nginx: it is not installed");
    };
    let upload = format!("@{}", place.path().join("upload").display());
    let cases: [(&[&str], &str); 9] = [
        (&[], "/a%20b/c?d=e&f"),
        (&["--head"], "/x"),
        (&[], "/empty"),
        (&[], "/same"),
        (&[], "/stream"),
        (&["--http1.0"], "/stream"),
        (&["-H", "Cookie: a=b", "-H", "Accept: text/*"], "/"),
        (&["--data-binary", &upload, "-H", "Expect:"], "/upload"),
        (
            &["--data-binary", &upload, "-H", "Transfer-Encoding: chunked"],
            "/upload",
        ),
    ];
    for (arguments, target) in cases {
        let ours = curl(flash.address, arguments, target);
        let theirs = curl(beside, arguments, target);
        assert!(ours.contains("http/1.1 "), "{target}: {ours}");
        assert_eq!(ours, theirs, "{arguments:?} {target}");
    }
    assert_eq!(flash.metric("flash_upstream_failures_total"), 0);
}

#[test]
fn an_asgi_application_and_its_websockets() {
    let has_modules = Command::new(PYTHON)
        .args(["-c", "import uvicorn, websockets"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has_modules || !has("curl") {
        return skipped(
            "an ASGI application: uvicorn, python3-websockets or curl is not installed",
        );
    }
    let place = place();
    fs::write(place.path().join("app.py"), ASGI).expect("room");
    let socket = place.path().join("app.sock");
    let mut command = Command::new(PYTHON);
    command.args([
        "-m",
        "uvicorn",
        "--log-level",
        "warning",
        "app:application",
        "--uds",
    ]);
    let _uvicorn = start(command.arg(&socket).current_dir(place.path()), place.path());
    wait_for("a program that listens", || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    let flash = Flash::with(&format!("proxy = \"unix:{}\"", socket.display()));
    for _ in 0..3 {
        let answer = curl(flash.address, &["--data", "12345"], "/some/path");
        assert!(answer.ends_with("\n\n5 bytes\n/some/path"), "{answer}");
    }
    assert!((1..=3).contains(&flash.metric("flash_upstream_connections")));
    let done = Command::new(PYTHON)
        .args([
            "-c",
            WEBSOCKET_CLIENT,
            &format!("ws://{}/echo", flash.address),
        ])
        .output()
        .expect("it can be executed");
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{error}");
    assert_eq!(flash.metric("flash_tunnels_total"), 1);
}

fn php_fpm() -> Option<String> {
    let names = fs::read_dir("/usr/sbin").ok()?.flatten();
    let mut found = names.filter_map(|entry| entry.file_name().into_string().ok());
    found.find(|name| name.starts_with("php-fpm"))
}

const PHP: &str = r#"<?php
header("X-Php: 1", true, isset($_GET["status"]) ? (int)$_GET["status"] : 200);
if (isset($_GET["log"])) { file_put_contents("php://stderr", "said by php\n"); error_log("logged by php"); }
if (isset($_GET["large"])) { for ($n = 0; $n < 20000; $n++) { echo str_repeat("x", 99), "\n"; } exit; }
if (isset($_GET["crash"])) { echo str_repeat("x", 100000); flush(); posix_kill(getmypid(), 9); sleep(9); }
if (isset($_GET["hang"])) { sleep(60); }
foreach (["SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "REQUEST_METHOD", "REMOTE_ADDR", "HTTP_HOST", "OWN"] as $name) {
    echo $name, "=", $_SERVER[$name] ?? "", "\n";
}
echo strlen(file_get_contents("php://input")), " ", $_POST["a"] ?? "", "\n";
"#;

#[test]
fn php_answers_over_fastcgi() {
    let Some(program) = php_fpm().filter(|_| has("curl")) else {
        return skipped("PHP over FastCGI: php-fpm or curl is not installed");
    };
    let place = place();
    let socket = place.path().join("fpm.sock");
    // Its workers are whom it is started by, but never root.
    let user = match nix::unistd::geteuid().is_root() {
        true => "user = nobody\ngroup = nogroup\nlisten.mode = 0666\n",
        false => "",
    };
    let config = format!(
        "[global]\nerror_log = {0}/fpm.log\n[www]\n{user}listen = {1}\npm = static\npm.max_children = 4\n\
         catch_workers_output = no\nphp_admin_value[error_log] =\nphp_admin_flag[log_errors] = on\n",
        place.path().display(),
        socket.display()
    );
    fs::write(place.path().join("fpm.conf"), config).expect("room");
    fs::write(place.path().join("root/index.php"), PHP).expect("room");
    let mut command = Command::new(format!("/usr/sbin/{program}"));
    command
        .args(["--nodaemonize", "--fpm-config"])
        .arg(place.path().join("fpm.conf"));
    let _fpm = start(&mut command, place.path());
    wait_for("a program that listens", || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    let rest = format!(
        "[[server.location]]\npath = \"/\"\nfastcgi = {{ to = \"unix:{}\", params = {{ OWN = \"mine\" }} }}\n\
         upstream = {{ read = \"2s\" }}",
        socket.display()
    );
    let flash = Flash::in_place(place, &rest);
    let get = |arguments: &[&str], target: &str| curl(flash.address, arguments, target);
    let answer = get(&[], "/index.php/more%20of/it?x=y");
    for line in [
        "http/1.1 200 ok",
        "x-php: 1",
        "SCRIPT_NAME=/index.php",
        "PATH_INFO=/more of/it",
        "QUERY_STRING=x=y",
        "REMOTE_ADDR=127.0.0.1",
        "HTTP_HOST=app.test",
        "OWN=mine",
    ] {
        assert!(answer.lines().any(|its| its == line), "{line}: {answer}");
    }
    assert!(get(&[], "/").contains("\nSCRIPT_NAME=/index.php\n"));
    assert!(get(&[], "/file.txt").ends_with("\n\na file\n"));
    assert!(
        get(&[], "/none.php").starts_with("content-type: text/html; charset=utf-8\nhttp/1.1 404 ")
    );
    assert!(get(&["--data", "a=value"], "/").ends_with("\n7 value\n"));
    let large = format!("a={}", "x".repeat(500_000));
    fs::write(flash.place.path().join("large"), &large).expect("room");
    let upload = format!("@{}", flash.place.path().join("large").display());
    let answer = get(&["--data", &upload, "-H", "Expect:"], "/");
    assert!(
        answer.contains(&format!("\n{} xxx", large.len())),
        "{}",
        &answer[..400]
    );
    let chunked = get(&["--data", "a=b", "-H", "Transfer-Encoding: chunked"], "/");
    assert!(chunked.contains("http/1.1 411 "), "{chunked}");
    assert!(get(&[], "/?status=404").contains("http/1.1 404 "));
    assert!(get(&["--head"], "/").ends_with("\n\n"));
    assert_eq!(
        get(&[], "/?large").rsplit("\n\n").next().map(str::len),
        Some(2_000_000)
    );
    // Connections are kept and used again; on a slow machine a POST may have got a new one.
    assert!((1..=3).contains(&flash.metric("flash_upstream_connections")));
    get(&[], "/?log");
    wait_for("a line of PHP", || flash.errors().contains("upstream: "));
    assert!(get(&[], "/?hang").contains("http/1.1 504 "));
    // A worker that dies leaves an answer that does not look whole, or none: a 502.
    let output = Command::new("curl")
        .args([
            "--silent",
            "--fail",
            "--output",
            "/dev/null",
            "--noproxy",
            "*",
        ])
        .arg(format!("http://{}/?crash", flash.address))
        .status();
    assert!(!output.expect("it can be executed").success());
    assert!(get(&[], "/").contains("http/1.1 200 "));
}
