// SPDX-License-Identifier: MIT OR Apache-2.0
use std::time::Duration;

use super::*;
use crate::sites::Location;
use proptest::prelude::*;

const SERVER: &str = "[[server]]\nlisten = [\"127.0.0.1:80\"]\nroot = \"/\"\n";

#[track_caller]
fn wrong(text: &str) -> String {
    let wrong = parse(text, Path::new("/")).expect_err("it is wrong");
    match wrong.at {
        Some(at) => {
            let (line, column) = place(text, at.start);
            format!("{line}:{column}: {}", wrong.what)
        }
        None => wrong.what,
    }
}

#[test]
fn errors_name_the_place_and_the_remedy() {
    for (text, begin, remedy) in [
        ("loop = 1\n".to_string(), "1:1: ", "did you mean `loops`?"),
        ("\nloops = 0\n".to_string(), "2:9: ", "from 1 to 256"),
        ("head_size = \"many\"\n".to_string(), "1:13: ", "as in 100M"),
        ("[timeouts]\nidle = \"5 years\"\n".to_string(), "2:8: ", "ns, us, ms, s, m or h"),
        ("loops = 1\n".to_string(), "there is no server", "add [[server]]"),
        (SERVER.replace("127.0.0.1:80", "here"), "2:10: ", "127.0.0.1:8080"),
        (SERVER.replace("127.0.0.1:80", "systemd:"), "2:10: ", "FileDescriptorName="),
        (SERVER.replace("127.0.0.1:80", "unix:"), "2:10: ", "unix:/run/flash/http.sock"),
        ("[unix]\nmode = \"8\"\n".to_string(), "2:8: ", "as 660"),
        ("[unix]\nowner = \"no-such-user\"\n".to_string(), "2:9: ", "there is no user no-such-user"),
        ("log_format = \"xml\"\n".to_string(), "1:14: ", "`combined` or `json`"),
        ("stage = \"new\"\n".to_string(), "1:9: ", "original, sendfile, fd-passing"),
        ("open_files = { most = -1 }\n".to_string(), "1:", "from 0 to 1000000"),
        ("assumed_memory = \"all\"\n".to_string(), "1:18: ", "as in 100M"),
        (SERVER.replace("\"/\"", "\"/none/such\""), "3:8: ", "create it"),
        (format!("{SERVER}indx = \"a\"\n"), "4:1: ", "`index`?"),
        (format!("{SERVER}names = [\"a\"]\n{SERVER}names = [\"A\"]\n"), "8:10: ", "remove one"),
        (format!("{SERVER}{SERVER}"), "4:1: ", "needs `names`"),
        (format!("{SERVER}names = [\"*a\"]\n"), "4:10: ", "*.example.org"),
        (format!("{SERVER}headers = {{ Date = \"x\" }}\n"), "3:8: ", "remove it"),
        (format!("{SERVER}headers = {{ X = \"a\\r\\nb\" }}\n"), "3:8: ", "printable"),
        (format!("{SERVER}error_pages = {{ 200 = \"/a\" }}\n"), "4:23: ", "none of 401"),
        (format!("{SERVER}error_pages = {{ 404 = \"/../a\" }}\n"), "4:23: ", "below `root`"),
        (format!("{SERVER}[[server.location]]\npath = \"a\"\n"), "5:8: ", "`/images`"),
        (format!("{SERVER}allow = [\"10.0.0.0/8\", \"10.0.0.1/8\"]\n"), "4:9: ", "write 10.0.0.0/8"),
        (format!("{SERVER}deny = [\"all\"]\n"), "4:8: ", "192.0.2.0/24"),
        (format!("{SERVER}methods = [\"BREW\"]\n"), "4:11: ", "GET, HEAD, OPTIONS"),
        (format!("{SERVER}types = {{ \".a\" = \"a/b\" }}\n"), "4:", "without a dot"),
        (format!("{SERVER}types = {{ a = \"b\" }}\n"), "4:", "image/png"),
        (format!("{SERVER}default_type = \"b\"\n"), "4:16: ", "image/png"),
        (format!("{SERVER}auth = true\n"), "4:8: ", "users = FILE"),
        (format!("{SERVER}auth = {{ realm = \"a\\\"b\", users = \"u\" }}\n"), "4:", "without quotes"),
        (format!("{SERVER}auth = {{ users = \"none\" }}\n"), "4:18: ", "htpasswd"),
        (format!("{SERVER}auth = {{ user = \"none\" }}\n"), "4:", "`users`?"),
        (format!("limits.requests = 0\n{SERVER}"), "1:19: ", "from 1 to 1000000"),
        (format!("limits.request_burst = 5\n{SERVER}"), "", "`requests`"),
        (format!("{SERVER}rate = \"5\"\n"), "4:8: ", "from 1K to"),
        (format!("passwords.threads = 0\n{SERVER}"), "1:21: ", "from 1 to 64"),
        (format!("{SERVER}charset = \"a b\"\n"), "4:11: ", "utf-8"),
        (
            format!("{SERVER}[[server.location]]\npath = \"/a\"\nredirect = {{ to = \"/b\", status = 200 }}\n"),
            "6:12: ",
            "308",
        ),
    ] {
        let found = wrong(&text);
        assert!(found.starts_with(begin) && found.contains(remedy), "{text}{found}");
    }
}

#[test]
fn errors_of_locations_name_the_place_and_the_remedy() {
    let proxy = "proxy = \"http://a\"";
    for (settings, begin, remedy) in [
        ("fallback = \"b\"".to_string(), "6:12: ", "\"/index.html\""),
        (
            "fallback = \"/../b\"".to_string(),
            "6:12: ",
            "\"/index.html\"",
        ),
        ("endings = [\"css\"]".to_string(), "6:11: ", "\".css\""),
        ("endings = []".to_string(), "6:11: ", "\".css\""),
        (
            "alias = \"/none/such\"".to_string(),
            "6:9: ",
            "correct `alias`",
        ),
        (
            "alias = \"/\"\nroot = \"/\"".to_string(),
            "6:9: ",
            "remove one",
        ),
        ("files_first = true".to_string(), "5:8: ", "needs a `proxy`"),
        (
            format!("fallback = \"/b\"\n{proxy}"),
            "5:8: ",
            "`files_first`",
        ),
        ("answer = { status = 301 }".to_string(), "6:10: ", "404"),
        ("answer = { status = 401 }".to_string(), "6:10: ", "`auth`"),
        (
            "answer = { status = 426 }".to_string(),
            "6:10: ",
            "take 400",
        ),
        (
            "answer = { status = 204, text = \"a\" }".to_string(),
            "6:10: ",
            "remove `text`",
        ),
        (
            format!("answer = {{ status = 404 }}\n{proxy}"),
            "7:9: ",
            "remove the others",
        ),
        (
            "redirect = { to = \"/{nothing}\" }".to_string(),
            "6:12: ",
            "{host}",
        ),
        (
            "redirect = { to = \"{target}\" }".to_string(),
            "6:12: ",
            "begins with a slash",
        ),
        ("index = [\"a/b\"]".to_string(), "6:9: ", "without a slash"),
        (
            "proxy = { to = \"http://a\", path = \"b\" }".to_string(),
            "6:9: ",
            "\"/v1\"",
        ),
        (
            "proxy = { to = \"http://a\", headers = { Via = \"b\" } }".to_string(),
            "6:9: ",
            "remove it",
        ),
        (
            "proxy = { to = \"http://a\", headers = { X = \"{b}\" } }".to_string(),
            "6:9: ",
            "{client}",
        ),
    ] {
        let text = format!("{SERVER}[[server.location]]\npath = \"/a\"\n{settings}\n");
        let found = wrong(&text);
        assert!(
            found.starts_with(begin) && found.contains(remedy),
            "{text}{found}"
        );
    }
    let without_root = "[[server]]\nlisten = [\"127.0.0.1:80\"]\n";
    assert!(wrong(without_root).contains("no `root`"));
    let files = "[[server.location]]\npath = \"/\"\n";
    assert!(wrong(&format!("{without_root}{files}")).contains("no `root`"));
    let redirect =
        format!("{without_root}{files}redirect = {{ to = \"https://{{host}}{{target}}\" }}\n");
    assert!(parse(&redirect, Path::new("/")).is_ok());
    let same = "[[server.location]]\npath = \"/a\"\nendings = [\".b\"]\n";
    assert!(wrong(&format!("{SERVER}{same}{same}")).contains("remove one"));
}

#[test]
fn errors_of_upstreams_name_the_place_and_the_remedy() {
    for (settings, begin, remedy) in [
        ("proxy = \"ftp://a\"", "6:9: ", "http://127.0.0.1:3000"),
        ("proxy = \"https://a\"", "6:9: ", "over TLS"),
        ("proxy = \"http://a/b\"", "6:9: ", "remove it"),
        ("proxy = \"http://a:0\"", "6:9: ", "http://127.0.0.1:3000"),
        ("proxy = \"http://[::1\"", "6:9: ", "http://127.0.0.1:3000"),
        ("proxy = \"unix:app.sock\"", "6:9: ", "absolute path"),
        ("proxy = []", "6:9: ", "add one"),
        (
            "proxy = { to = \"http://a\", hots = \"b\" }",
            "6:",
            "`host`?",
        ),
        (
            "proxy = { to = \"http://a\", host = \"b c\" }",
            "6:",
            "app.example.org",
        ),
        (
            "proxy = \"http://a\"\nfastcgi = { to = \"a:1\" }",
            "7:11: ",
            "remove the others",
        ),
        ("fastcgi = { to = \"a\" }", "6:", "127.0.0.1:9000"),
        (
            "fastcgi = { to = \"a:1\", ending = \"php\" }",
            "6:11: ",
            "\".php\"",
        ),
        (
            "fastcgi = { to = \"a:1\", params = { \"a=b\" = \"c\" } }",
            "6:11: ",
            "letters",
        ),
        ("cgi = { root = \"none/such\" }", "6:7: ", "create it"),
        ("upstream = { read = \"5s\" }", "6:12: ", "add it"),
        (
            "proxy = \"http://a\"\nupstream = { buffer = \"1K\" }",
            "7:",
            "from 4K to 64M",
        ),
    ] {
        let text = format!("{SERVER}[[server.location]]\npath = \"/a\"\n{settings}\n");
        let found = wrong(&text);
        assert!(
            found.starts_with(begin) && found.contains(remedy),
            "{text}{found}"
        );
    }
}

#[test]
fn an_upstream_is_written_in_three_ways() {
    use crate::upstream::Place;
    let places = |proxy: &str| {
        let text = format!("{SERVER}[[server.location]]\npath = \"/a\"\nproxy = {proxy}\n");
        let (_, hosts) = parse(&text, Path::new("/")).expect(proxy);
        let plan = hosts[0].locations[0].upstream.clone();
        plan.expect("an upstream").to
    };
    let tcp = |host: &str, port| Place::Tcp {
        host: host.to_string(),
        port,
    };
    assert_eq!(
        places("\"http://127.0.0.1:3000\""),
        [tcp("127.0.0.1", 3000)]
    );
    assert_eq!(places("\"http://[::1]:3000\""), [tcp("::1", 3000)]);
    let both = [tcp("app.test", 80), Place::Unix("/run/a".into())];
    assert_eq!(places("[\"http://app.test\", \"unix:/run/a\"]"), both);
    assert_eq!(places("{ to = \"http://[::1]\" }"), [tcp("::1", 80)]);
}

#[test]
fn paths_of_sockets_begin_at_the_file() {
    let text = SERVER.replace("127.0.0.1:80", "unix:a.sock");
    let (config, hosts) = parse(&text, Path::new("/etc/flash")).expect("it is fine");
    assert_eq!(hosts[0].listen[0].to_string(), "unix:/etc/flash/a.sock");
    assert_eq!(config.unix.settings().mode, 0o660);
}

#[test]
fn a_location_is_as_its_server_but_for_what_it_says() {
    let text = format!(
        "{SERVER}list = true\ncache = \"1h\"\n[[server.location]]\npath = \"/a/\"\nlist = false\n"
    );
    let (_, hosts) = parse(&text, Path::new("/")).expect("it is fine");
    let [a, whole] = hosts[0].locations.as_slice() else {
        panic!("two locations");
    };
    assert_eq!((a.files.lists, whole.files.lists), (false, true));
    assert_eq!(a.cache, Some(Duration::from_secs(3600)));
    assert_eq!((a.path.as_str(), whole.path.as_str()), ("/a/", "/"));
}

#[test]
fn networks_methods_and_types_of_a_location() {
    let text = format!(
        "{SERVER}allow = [\"10.0.0.0/8\"]\ndeny = [\"10.9.0.0/16\"]\nmethods = [\"GET\"]\n\
         types = {{ a = \"x/server\", b = \"x/server\" }}\n\
         [[server.location]]\npath = \"/a\"\ndeny = []\ntypes = {{ B = \"x/own\" }}\ncharset = \"\"\n"
    );
    let (_, hosts) = parse(&text, Path::new("/")).expect("it is fine");
    let [a, whole] = hosts[0].locations.as_slice() else {
        panic!("two locations");
    };
    let denied = Some([10, 9, 0, 1].into());
    assert!(a.access.admits(denied) && !whole.access.admits(denied));
    assert_eq!(a.access.allow, whole.access.allow);
    assert_eq!(
        a.access
            .methods
            .map(|methods| methods.to_string())
            .as_deref(),
        Some("GET, HEAD")
    );
    let kinds = |location: &Location| {
        ["f.a", "f.b", "f.txt"].map(|name| location.types.of(name.as_bytes()).into_owned())
    };
    assert_eq!(kinds(a), ["x/server", "x/own", "text/plain"]);
    assert_eq!(
        kinds(whole),
        ["x/server", "x/server", "text/plain; charset=utf-8"]
    );
}

#[test]
fn a_location_may_need_no_password() {
    let place = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(place.path().join("root")).expect("room");
    std::fs::write(place.path().join("users"), "").expect("room");
    let server = SERVER.replace("\"/\"", "\"root\"");
    let text = format!(
        "{server}auth = {{ users = \"users\" }}\n[[server.location]]\npath = \"/a\"\nauth = false\n\
         [[server.location]]\npath = \"/b\"\n"
    );
    let (_, hosts) = parse(&text, place.path()).expect("it is fine");
    let [a, b, whole] = hosts[0].locations.as_slice() else {
        panic!("three locations");
    };
    assert_eq!(a.auth, None);
    assert_eq!(b.auth, whole.auth);
    let auth = whole.auth.as_ref().expect("it is the server's");
    assert_eq!(auth.realm, "restricted");
    assert_eq!(auth.file, place.path().join("users"));
}

proptest! {
    #[test]
    fn any_text_is_read(text in "([a-z\\[\\]=\"{}. 0-9]{0,12}\n){0,12}") {
        if let Err(Wrong { at: Some(at), .. }) = parse(&text, Path::new("/")) {
            let _ = place(&text, at.start);
        }
    }

    #[test]
    fn any_value_of_a_header_is_one_line(value in any::<String>()) {
        let value = toml::Value::String(value);
        let text = format!("{SERVER}headers = {{ X = {value} }}\n");
        if let Ok((_, hosts)) = parse(&text, Path::new("/")) {
            let (_, value) = &hosts[0].locations[0].fields[0];
            prop_assert!(!value.contains(['\r', '\n', '\0']));
        }
    }
}
