use super::*;
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
        (SERVER.replace("\"/\"", "\"/none/such\""), "3:8: ", "create it"),
        (format!("{SERVER}indx = \"a\"\n"), "4:1: ", "`index`?"),
        (format!("{SERVER}names = [\"a\"]\n{SERVER}names = [\"A\"]\n"), "8:10: ", "remove one"),
        (format!("{SERVER}{SERVER}"), "4:1: ", "needs `names`"),
        (format!("{SERVER}names = [\"*a\"]\n"), "4:10: ", "*.example.org"),
        (format!("{SERVER}headers = {{ Date = \"x\" }}\n"), "3:8: ", "remove it"),
        (format!("{SERVER}headers = {{ X = \"a\\r\\nb\" }}\n"), "3:8: ", "printable"),
        (format!("{SERVER}error_pages = {{ 200 = \"/a\" }}\n"), "4:23: ", "none of 403"),
        (format!("{SERVER}error_pages = {{ 404 = \"/../a\" }}\n"), "4:23: ", "below `root`"),
        (format!("{SERVER}[[server.location]]\npath = \"a\"\n"), "5:8: ", "`/images`"),
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
