// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is answered in place of files, with which fields, and what becomes of the connection.

use std::collections::VecDeque;

use super::client::{status, Client};
use super::*;

/// Where nothing listens.
const NOWHERE: &str = "127.0.0.1:1";

#[test]
fn an_escaped_slash_leads_past_no_rules() {
    let mut client = Client::with(&format!(
        "proxy = \"http://{NOWHERE}\"\n\
         [[server.location]]\npath = \"/admin\"\ndeny = [\"127.0.0.1\"]\n\
         [[server.location]]\npath = \"/old\"\nredirect = {{ to = \"/new\" }}\n"
    ));
    for (target, expected) in [
        ("/admin/users", 403),
        ("/admin%2Fusers", 404),
        ("/admin%2fusers?x", 404),
        ("/x/..//admin%2Fusers", 404),
        ("/y%2Fx/../admin/a", 403),
        ("/y%2Fx/../b", 502),
        ("/old%2Fx", 404),
        // Both readings have the same rules: it is the upstream's.
        ("/x%2Fy", 502),
        ("/x%2Fadmin", 502),
    ] {
        assert_eq!(status(&client.ask("GET", target)), expected, "{target}");
    }
    assert!(status(&client.ask("POST", "/admin%2Fusers")) == 404 && !client.has_ended);
    // The rules of the location by whose name it came hold, too.
    assert_eq!(status(&client.ask("GET", "/admin/x%2Fy")), 403);
}

#[test]
fn a_name_that_no_file_has_is_answered_by_the_rules_of_its_location() {
    let mut client = Client::of(
        "headers = { X-Own = \"1\" }\nerror_pages = { 404 = \"/sorry.html\" }\n\
         [[server.location]]\npath = \"/closed\"\ndeny = [\"127.0.0.1\"]\n\
         [[server.location]]\npath = \"/old\"\nredirect = { to = \"/new\", status = 308 }\n",
    );
    let missing = client.ask("GET", "/a%2Fb");
    assert!(status(&missing) == 404 && missing.ends_with("\r\n\r\nsorry"));
    assert!(missing.contains("\r\nX-Own: 1\r\n"), "{missing}");
    assert!(!missing.contains("\r\nConnection:"), "{missing}");
    let head = client.ask("HEAD", "/a%2Fb");
    assert!(status(&head) == 404 && head.ends_with("\r\n\r\n"), "{head}");
    assert_eq!(status(&client.ask("GET", "/closed/a%2Fb")), 403);
    assert_eq!(status(&client.ask("BREW", "/closed/x")), 403);
    assert_eq!(status(&client.ask("GET", "/old/a%2Fb")), 308);
    assert_eq!(status(&client.ask("BREW", "/")), 501);
    let with_body = "PUT /a%2Fb HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(status(&client.send(with_body)), 404);
    // Each of two requests that came together has an answer of its own kind.
    let both =
        client.send("GET /a%2Fb HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (first, second) = both.split_once("\r\n\r\nsorry").expect("a body");
    assert!(status(first) == 404 && status(second) == 200, "{both}");
    assert!(second.ends_with("\r\n\r\n"), "{both}");
}

#[test]
fn an_answer_to_head_has_no_body_whatever_is_wrong_with_the_request() {
    for fields in [
        "Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        "Content-Length: x\r\n\r\n",
    ] {
        let mut client = Client::of("");
        let answer = client.send(&format!("HEAD / HTTP/1.1\r\nHost: a\r\n{fields}"));
        let (head, rest) = answer.split_once("\r\n\r\n").expect("a head");
        assert_eq!(status(head), 400, "{answer}");
        assert!(head.contains("\r\nConnection: close"), "{answer}");
        assert_eq!(rest, "", "{answer}");
    }
}

#[test]
fn no_hidden_script_is_run() {
    let script = format!("fastcgi = {{ to = \"{NOWHERE}\" }}");
    let hidden = ["/.private/x.php", "/.x.php", "/a/.b/c.php/d", "/.private/"];
    let mut client = Client::with(&script);
    for target in hidden {
        assert_eq!(status(&client.ask("GET", target)), 404, "{target}");
        assert_eq!(status(&client.ask("POST", target)), 404, "{target}");
    }
    assert_eq!(status(&client.ask("GET", "/x.php")), 502);
    assert_eq!(status(&client.ask("GET", "/.well-known/x.php")), 502);
    let mut client = Client::with(&format!("{script}\nfallback = \"/index.php\""));
    for target in hidden {
        assert_eq!(status(&client.ask("GET", target)), 404, "{target}");
    }
    // What is no script is the front's, as what does not exist.
    assert_eq!(status(&client.ask("GET", "/.private/x")), 502);
    let mut client = Client::with(&format!("{script}\ndotfiles = true"));
    assert_eq!(status(&client.ask("GET", "/.private/x.php")), 502);
    let mut client = Client::with(&format!("proxy = \"http://{NOWHERE}\""));
    assert_eq!(status(&client.ask("GET", "/.private/x.php")), 502);
}

#[test]
fn a_url_with_https_is_for_tls() {
    for settings in ["", "proxy = \"http://127.0.0.1:1\""] {
        let mut client = Client::with(settings);
        assert_eq!(status(&client.ask("GET", "https://a/")), 421);
        assert_eq!(status(&client.ask("OPTIONS", "HTTPS://a")), 421);
        assert_ne!(status(&client.ask("GET", "http://a/")), 421);
    }
}

#[test]
fn a_redirect_names_a_host() {
    let redirect =
        "[[server.location]]\npath = \"/\"\nredirect = { to = \"https://{host}{target}\" }";
    let location = |server: &str, request: &str| {
        let answer = Client::of(&format!("{server}{redirect}")).send(request);
        let mut lines = answer.lines();
        let found = lines.find_map(|line| line.strip_prefix("Location: "));
        found.map(str::to_string).ok_or(status(&answer))
    };
    let named = "names = [\"*.example.org\", \"Www.example.org\", \"example.org\"]\n";
    let old = "GET /x HTTP/1.0\r\n\r\n";
    let found = location(named, old);
    assert_eq!(found, Ok("https://www.example.org/x".to_string()));
    let found = location(named, "GET /x HTTP/1.0\r\nHost: b\r\n\r\n");
    assert_eq!(found, Ok("https://b/x".to_string()));
    assert_eq!(location("", old), Err(400));
    assert_eq!(location("names = [\"*.example.org\"]\n", old), Err(400));
}

#[test]
fn a_range_beyond_the_end_has_its_own_page() {
    let mut client = Client::of("error_pages = { 416 = \"/sorry.html\" }");
    let answer = client.send("GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=100-\r\n\r\n");
    assert_eq!(status(&answer), 416);
    assert!(
        answer.contains("\r\nContent-Range: bytes */9\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n\r\nsorry"), "{answer}");
}

/// As long as nothing of an answer has been sent, there can be another.
#[test]
fn a_file_that_cannot_be_read_is_an_error_of_the_server() {
    let mut client = Client::of("");
    for (has_begun, expected) in [(false, "HTTP/1.1 500 "), (true, "")] {
        let request = b"GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n";
        let Parsed::Request(request, _) = Reader::default().read(request, 1000) else {
            panic!("a request");
        };
        let reply = Reply {
            status: 200,
            head: b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_vec(),
            body: VecDeque::new(),
        };
        let (connection, context) = (&mut client.connection, &mut client.context);
        let mut sending = match has_begun {
            true => Sending::rest(Some(request), 200, reply.head, 5, false),
            false => Sending::new(Some(request), reply, false),
        };
        // The helper that reads its begin.
        sending.waits = true;
        connection.state = State::Sending(Box::new(sending));
        let ticket = Ticket {
            connection: 0,
            number: connection.number,
        };
        let failed = helpers::Result::Failed(Errno::IO);
        connection.answered(ticket, failed, context);
        client.go_on();
        let answer = client.received();
        assert!(answer.starts_with(expected), "{answer}");
        assert_eq!(client.has_ended, has_begun, "{answer}");
    }
}
