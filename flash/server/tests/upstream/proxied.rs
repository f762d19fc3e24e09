// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a proxy does with good and bad answers.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use crate::support::{place, wait_for, Fake, Flash};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Up: 1\r\n\r\nok";

fn proxy(fake: &Fake) -> Flash {
    Flash::with(&format!("proxy = \"{}\"", fake.url()))
}

fn proxy_with(fake: &Fake, limits: &str) -> Flash {
    Flash::with(&format!(
        "proxy = \"{}\"\nupstream = {{ {limits} }}",
        fake.url()
    ))
}

#[test]
fn a_location_is_answered_by_its_upstream_over_one_connection() {
    let fake = Fake::saying(OK);
    let flash = Flash::run(&format!(
        "headers = {{ X-Frame-Options = \"DENY\" }}\n[[server.location]]\npath = \"/app\"\nproxy = \"{}\"\n",
        fake.url()
    ));
    assert!(flash.get("/file.txt").ends_with("\r\n\r\na file\n"));
    let mut client = flash.connect();
    for number in 0..3 {
        let request = format!("GET /app/{number}?q HTTP/1.1\r\nHost: a.test\r\n\r\n");
        client.write_all(request.as_bytes()).expect("it reads");
        let mut answer = [0; 1024];
        let mut length = 0;
        while !answer[..length].ends_with(b"\r\n\r\nok") {
            length += client.read(&mut answer[length..]).expect("an answer");
        }
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\r\nX-Frame-Options: DENY\r\n"), "{answer}");
        assert!(answer.contains("\r\nX-Up: 1\r\n"), "{answer}");
    }
    assert_eq!(fake.connections(), 1);
    let heads = fake.heads();
    assert!(
        heads[1].starts_with("GET /app/1?q HTTP/1.1\r\nHost: a.test\r\n"),
        "{heads:?}"
    );
    assert!(
        heads[1].contains("\r\nX-Forwarded-For: 127.0.0.1\r\n"),
        "{heads:?}"
    );
    assert_eq!(flash.metric("flash_upstream_connections"), 1);
}

/// An upstream that takes `%2F` for a slash would serve what another location protects.
#[test]
fn an_escaped_slash_leads_into_no_other_location() {
    let fake = Fake::saying(OK);
    let flash = Flash::run(&format!(
        "[[server.location]]\npath = \"/\"\nproxy = \"{0}\"\n\
         [[server.location]]\npath = \"/admin\"\nproxy = \"{0}\"\ndeny = [\"127.0.0.0/8\"]\n",
        fake.url()
    ));
    for (target, status) in [
        ("/admin/users", 403),
        ("/admin%2Fusers", 404),
        ("/x%2F..%2Fadmin", 404),
        ("/x%2Fadmin", 200),
    ] {
        let answer = flash.get(target);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{target}: {answer}"
        );
    }
    let heads = fake.heads();
    assert_eq!(heads.len(), 1);
    assert!(
        heads[0].starts_with("GET /x%2Fadmin HTTP/1.1\r\n"),
        "{heads:?}"
    );
}

/// The second of two requests that came together is not a part of the first.
#[test]
fn each_request_is_one_for_the_upstream() {
    let fake = Fake::saying(OK);
    let flash = proxy(&fake);
    let answers = flash.send(
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n\
          GET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 2, "{answers}");
    assert_eq!(fake.heads().len(), 2);
    for wrong in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "X: a\nTransfer-Encoding: chunked\r\n",
    ] {
        let text =
            format!("POST /c HTTP/1.1\r\nHost: a\r\n{wrong}\r\n0\r\n\r\nGET /d HTTP/1.1\r\n");
        assert!(
            flash.send(text.as_bytes()).starts_with("HTTP/1.1 400 "),
            "{wrong}"
        );
    }
    assert_eq!(fake.heads().len(), 2);
}

#[test]
fn bodies_are_passed_on_while_they_come() {
    let fake = Fake::start(|call| {
        let head = call.head().expect("a request");
        let framed = if head.contains("chunked") {
            3 + 5 + 2
        } else {
            5
        };
        let first = call.read(framed);
        // The client sends the rest only when the first part has arrived.
        call.say("HTTP/1.1 103 Early Hints\r\nLink: first\r\n\r\n");
        let rest = call.read(if head.contains("chunked") {
            3 + 1 + 2 + 5
        } else {
            1
        });
        let all = [first, rest].concat();
        let text = String::from_utf8_lossy(&all).into_owned();
        call.say(&format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        ));
    });
    let flash = proxy(&fake);
    for (field, first, rest, expected) in [
        ("Content-Length: 6", "hello", "!", "hello!"),
        (
            "Transfer-Encoding: chunked",
            "5;a=b\r\nhello\r\n",
            "001\r\n!\r\n0\r\nX: y\r\n\r\n",
            "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n",
        ),
    ] {
        let mut client = flash.connect();
        let begin =
            format!("PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{field}\r\n\r\n{first}");
        client.write_all(begin.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        let mut part = [0; 512];
        while !String::from_utf8_lossy(&answer).contains("Link: first\r\n\r\n") {
            let length = client.read(&mut part).expect("an answer");
            assert!(length > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&part[..length]);
        }
        client.write_all(rest.as_bytes()).expect("it reads");
        client.read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.ends_with(&format!("\r\n\r\n{expected}")), "{answer}");
    }
}

#[test]
fn a_client_that_waits_for_a_100_gets_one() {
    let fake = Fake::start(|call| {
        let head = call.head().expect("a request");
        assert!(!head.contains("Expect"), "{head}");
        if call.read(2) == b"hi" {
            call.say(OK);
        }
    });
    let flash = proxy(&fake);
    let mut client = flash.connect();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    client.write_all(head.as_bytes()).expect("it reads");
    let mut first = [0; 25];
    client.read_exact(&mut first).expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hi").expect("it reads");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[test]
fn answers_keep_their_meaning_and_get_their_own_framing() {
    let fake = Fake::start(|call| {
        while let Some(head) = call.head() {
            let path = head.split(' ').nth(1).unwrap_or_default().to_string();
            let answer = match path.as_str() {
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n",
                "/chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
                "/hops" => {
                    "HTTP/1.1 200 Fine\r\nConnection: X-Own, keep-alive\r\nX-Own: 1\r\nKeep-Alive: 5\r\n\
                     Proxy-Authenticate: x\r\nServer: up\r\nContent-Length: 0\r\n\r\n"
                }
                "/head" => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\n\r\nto the end",
            };
            call.say(answer);
            if path == "/open" {
                return call.end();
            }
        }
    });
    let flash = proxy(&fake);
    assert!(flash.get("/204").ends_with("Connection: close\r\n\r\n"));
    let unmodified = flash.get("/304");
    assert!(unmodified.contains("\r\nETag: \"a\"\r\n") && unmodified.ends_with("\r\n\r\n"));
    assert!(flash
        .get("/chunked")
        .ends_with("\r\n\r\n2\r\nab\r\n0\r\n\r\n"));
    let hops = flash.get("/hops");
    assert!(
        hops.starts_with("HTTP/1.1 200 Fine\r\n") && hops.contains("\r\nServer: up\r\n"),
        "{hops}"
    );
    for gone in ["X-Own", "Keep-Alive", "Proxy-Auth"] {
        assert!(!hops.contains(gone), "{hops}");
    }
    let head = flash.send(b"HEAD /head HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(
        head.contains("\r\nContent-Length: 7\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let open = flash.get("/open");
    assert!(
        open.contains("chunked") && open.ends_with("\r\n\r\na\r\nto the end\r\n0\r\n\r\n"),
        "{open}"
    );
    let old = flash.send(b"GET /open HTTP/1.0\r\n\r\n");
    assert!(
        !old.contains("chunked") && old.ends_with("\r\n\r\nto the end"),
        "{old}"
    );
    let old = flash.send(b"GET /chunked HTTP/1.0\r\n\r\n");
    assert!(
        !old.contains("chunked") && old.ends_with("\r\n\r\nab"),
        "{old}"
    );
}

#[test]
fn an_answer_that_is_none_is_a_502() {
    for answer in [
        "garbage\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 20",
        "",
    ] {
        let fake = Fake::start(move |call| {
            call.head();
            call.say(answer);
            call.end();
        });
        let flash = proxy(&fake);
        let found = flash.get("/");
        assert!(
            found.starts_with("HTTP/1.1 502 Bad Gateway\r\n"),
            "{answer:?}: {found}"
        );
        assert!(found.ends_with("</h1>\n"), "{found}");
    }
}

/// A second answer behind the first is nobody's.
#[test]
fn what_follows_an_answer_is_not_the_next_ones() {
    let fake = Fake::start(|call| {
        if call.head().is_some() {
            call.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
            call.wait_for_end();
        }
    });
    let flash = proxy(&fake);
    for _ in 0..3 {
        assert!(flash.get("/").ends_with("\r\n\r\nok"));
    }
    assert_eq!(fake.connections(), 3);
}

#[test]
fn an_upstream_that_does_not_come_or_hangs() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = gone.local_addr().expect("an address");
    drop(gone);
    let flash = Flash::with(&format!("proxy = \"http://{address}\""));
    assert!(flash.get("/").starts_with("HTTP/1.1 502 "));
    let fake = Fake::start(|call| call.wait_for_end());
    let flash = proxy_with(&fake, "read = \"100ms\"");
    assert!(flash.get("/").starts_with("HTTP/1.1 504 "));
    assert_eq!(flash.metric("flash_upstream_timeouts_total"), 1);
    // The time of a request is not spent before it is there.
    let mut client = flash.connect();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\n";
    client.write_all(head.as_bytes()).expect("it reads");
    client
        .set_read_timeout(Some(std::time::Duration::from_millis(500)))
        .expect("a socket");
    assert!(client.read(&mut [0; 1]).is_err());
    client
        .set_read_timeout(Some(crate::support::PATIENCE))
        .expect("a socket");
    client.write_all(b"x").expect("it reads");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
}

/// The kernel of the upstream answers no more as its queue is full.
#[test]
fn a_connection_that_is_not_accepted_in_time() {
    use rustix::net::{bind, getsockname, listen, socket, AddressFamily, SocketType};
    let full = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    bind(&full, &any).expect("a port");
    listen(&full, 0).expect("it can listen");
    let address = std::net::SocketAddr::try_from(getsockname(&full).expect("an address"));
    let address = address.expect("of IP");
    let _taken: Vec<_> = (0..4)
        .map(|_| {
            std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_millis(300))
        })
        .collect();
    let flash = Flash::with(&format!(
        "proxy = \"http://{address}\"\nupstream = {{ connect = \"200ms\" }}"
    ));
    assert!(flash.get("/").starts_with("HTTP/1.1 504 "));
}

#[test]
fn no_free_connection_is_a_503() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let fake = Fake::start(move |call| {
        call.head();
        let _ = wait.lock().expect("no panic").recv();
        call.say(OK);
    });
    let flash = proxy_with(&fake, "connections = 1");
    let mut first = flash.connect();
    first
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("it reads");
    wait_for("the first request", || fake.heads().len() == 1);
    let second = flash.get("/");
    assert!(
        second.starts_with("HTTP/1.1 503 ") && second.contains("\r\nRetry-After: "),
        "{second}"
    );
    release.send(()).expect("it waits");
    let mut answer = String::new();
    first.read_to_string(&mut answer).expect("an answer");
    assert!(answer.ends_with("ok"), "{answer}");
}

#[test]
fn an_answer_that_breaks_off_does_not_look_whole() {
    for (fields, content) in [
        ("Content-Length: 9\r\n", "half"),
        ("Transfer-Encoding: chunked\r\n", "9\r\nhalf"),
        ("Transfer-Encoding: chunked\r\n", "4\r\nhalf\r\n"),
    ] {
        let (ends, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let fake = Fake::start(move |call| {
            call.head();
            call.say(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n{content}"));
            let _ = wait.lock().expect("no panic").recv();
            call.end();
        });
        let flash = proxy(&fake);
        for version in ["1.1", "1.0"] {
            let mut client = flash.connect();
            let request = format!("GET / HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).expect("it reads");
            let mut all = vec![0; 9];
            client.read_exact(&mut all).expect("a begin");
            ends.send(()).expect("it waits");
            let end = client.read_to_end(&mut all);
            let answer = String::from_utf8_lossy(&all);
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            let is_promised = answer.contains("Content-Length: 9") || answer.contains("chunked");
            // A client that knows no chunks sees a reset, and not a regular end.
            assert!(
                end.is_err() || is_promised && !answer.ends_with("0\r\n\r\n"),
                "{answer}"
            );
        }
        assert_eq!(flash.metric("flash_upstream_cut_total"), 2);
    }
    // Nothing has been sent yet: there is still another answer.
    let fake = Fake::start(|call| {
        call.head();
        call.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n");
        call.end();
    });
    assert!(proxy(&fake).get("/").starts_with("HTTP/1.1 502 "));
}

/// The upstream closes a kept connection just when a request comes over it.
#[test]
fn only_what_can_be_repeated_is() {
    let fake = Fake::start(|call| {
        call.head();
        call.say(OK);
        // The second request of the connection is read and not answered.
        call.head();
        call.end();
    });
    let flash = proxy(&fake);
    let get = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(flash.send(get).ends_with("ok"));
    assert!(flash.send(get).ends_with("ok"));
    assert_eq!(flash.metric("flash_upstream_retries_total"), 1);
    assert_eq!(fake.heads().len(), 3);
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    // If the kept connection is older than a second, the request gets a new one.
    let answer = flash.send(post);
    let is_one = ["HTTP/1.1 502 ", "HTTP/1.1 200 "]
        .iter()
        .any(|begin| answer.starts_with(begin));
    assert!(is_one, "{answer}");
    assert_eq!(fake.heads().len(), 4);
}

#[test]
fn upstreams_take_turns_and_a_dead_one_is_left_out() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let dead = gone.local_addr().expect("an address");
    drop(gone);
    let fakes = [Fake::saying(OK), Fake::saying(OK)];
    let flash = Flash::with(&format!(
        "proxy = [\"{}\", \"http://{dead}\", \"{}\"]\nupstream = {{ failures = 2, down = \"1h\" }}",
        fakes[0].url(),
        fakes[1].url()
    ));
    for _ in 0..20 {
        assert!(flash.get("/").ends_with("ok"));
    }
    assert_eq!(flash.metric("flash_upstream_failures_total"), 2);
    let counts = fakes.map(|fake| fake.heads().len());
    assert!(counts[0] >= 8 && counts[1] >= 8, "{counts:?}");
}

#[test]
fn a_socket_of_the_file_system_is_an_upstream_too() {
    let place = place();
    let path = place.path().join("app.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(OK.as_bytes());
        }
    });
    let proxy = format!(
        "[[server.location]]\npath = \"/\"\nproxy = \"unix:{}\"",
        path.display()
    );
    let flash = Flash::in_place(place, &proxy);
    assert!(flash.get("/").ends_with("ok"));
}

#[test]
fn another_protocol_goes_both_ways() {
    let fake = Fake::start(|call| {
        let head = call.head().expect("a request");
        assert!(
            head.contains("\r\nConnection: upgrade\r\nUpgrade: echo\r\n"),
            "{head}"
        );
        call.say(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello",
        );
        let mut stream = call.stream.try_clone().expect("a descriptor");
        loop {
            let byte = call.read(1);
            if byte.is_empty() || stream.write_all(&byte.to_ascii_uppercase()).is_err() {
                break;
            }
        }
        let _ = stream.write_all(b"bye");
        call.end();
    });
    let flash = proxy(&fake);
    let mut client = flash.connect();
    let head = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    client.write_all(head.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("an answer");
        answer.push(byte[0]);
    }
    assert!(
        answer.starts_with(b"HTTP/1.1 101 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    client.write_all(b"abc").expect("it reads");
    let mut echo = [0; 3];
    client.read_exact(&mut echo).expect("an echo");
    assert_eq!(&echo, b"ABC");
    client
        .shutdown(std::net::Shutdown::Write)
        .expect("a socket");
    let mut rest = String::new();
    client.read_to_string(&mut rest).expect("an end");
    assert_eq!(rest, "bye");
    assert_eq!(flash.metric("flash_tunnels_total"), 1);
    wait_for("the tunnel's end", || {
        flash.metric("flash_upstream_connections") == 0
    });
}

#[test]
fn an_answer_before_the_body_is_passed_on() {
    let fake = Fake::start(|call| {
        call.head();
        call.say("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
        call.wait_for_end();
    });
    let flash = proxy(&fake);
    let mut client = flash.connect();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nbegin";
    client.write_all(head.as_bytes()).expect("it reads");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    assert!(
        answer.starts_with("HTTP/1.1 413 ") && answer.contains("\r\nConnection: close\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("big"), "{answer}");
}

#[test]
fn an_upstream_is_free_when_its_answer_fits_into_the_buffer() {
    let fake = Fake::start(|call| {
        while call.head().is_some() {
            let content = "x".repeat(8 << 20);
            if !call.say(&format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                content.len()
            )) || !call.say(&content)
            {
                return;
            }
        }
    });
    let flash = proxy_with(&fake, "buffer = \"16M\", idle = \"50ms\"");
    let mut client = flash.connect();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("it reads");
    // The client reads nothing, and the upstream's connection is idle nevertheless, and then closed.
    wait_for("a request", || fake.heads().len() == 1);
    wait_for("a free upstream", || {
        flash.metric("flash_upstream_connections") == 0
    });
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("an answer");
    assert!(all.len() > 8 << 20);
}
