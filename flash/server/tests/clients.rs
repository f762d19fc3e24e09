// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that other people wrote, against the whole server: command-line clients, load generators, a library, and a
//! browser.

mod running;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use debox_skipped::skipped;
use tempfile::TempDir;

use running::Running;

/// Of the page that the browser opens; each of them has one request.
const IMAGES: usize = 40;

struct Place {
    directory: TempDir,
    flash: Running,
}

fn big() -> Vec<u8> {
    (0..5_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("sub dir/deep")).expect("room");
        for (name, content) in [
            ("hello.txt", &b"0123456789"[..]),
            ("big.bin", &big()),
            ("empty", b""),
            ("sub dir/a b%.txt", b"odd"),
            ("sub dir/deep/c.html", b"<p>deep"),
        ] {
            fs::write(root.join(name), content).expect("room");
        }
        let log = directory.path().join("log");
        let log = log.to_str().expect("text");
        let options = ["--listen", "127.0.0.1:0", "--list", "--log", log];
        let flash = Running::start(directory.path(), &options);
        Place { directory, flash }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.flash.address())
    }

    /// Ends the server and returns the lines of its log.
    fn end(self) -> Vec<String> {
        let (status, errors) = self.flash.end();
        assert!(status.success(), "{errors}");
        assert!(!errors.contains("panicked"), "{errors}");
        let log = fs::read_to_string(self.directory.path().join("log")).expect("a log");
        log.lines().map(ToString::to_string).collect()
    }
}

/// `None` if the program is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    let done = Command::new(program).args(arguments).output();
    match done {
        Ok(output) => Some(output),
        Err(_) => {
            skipped(&format!("flash with {program}: it is not installed"));
            None
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn curl_gets_files_parts_and_refusals() {
    let place = Place::new();
    let curl = |options: &[&str], targets: &[&str]| {
        let urls: Vec<String> = targets.iter().map(|target| place.url(target)).collect();
        let mut arguments = vec!["-sS", "--noproxy", "*", "--max-time", "60"];
        arguments.extend(options);
        arguments.extend(urls.iter().map(String::as_str));
        let output = run("curl", &arguments)?;
        assert!(output.status.success(), "{options:?}: {output:?}");
        Some(output.stdout)
    };
    let Some(hello) = curl(&[], &["/hello.txt"]) else {
        return;
    };
    assert_eq!(hello, b"0123456789");
    let get = |options: &[&str], target: &str| curl(options, &[target]).expect("it is installed");
    assert!(get(&[], "/big.bin") == big());
    assert!(get(&["--http1.0"], "/big.bin") == big());
    assert_eq!(get(&["-r", "2-4"], "/hello.txt"), b"234");
    assert_eq!(get(&["-r", "-3"], "/hello.txt"), b"789");
    assert_eq!(get(&["-L"], "/sub%20dir/a%20b%25.txt"), b"odd");
    assert!(text(&get(&["-L"], "/sub%20dir/deep")).contains("c.html"));
    // One connection for all of it, also after answers without bodies and with errors.
    let targets = ["/hello.txt", "/none", "/empty", "/sub%20dir", "/big.bin"];
    let statuses = ["-w", "%{http_code} %{num_connects}\n"];
    let outputs = vec![["-o", "/dev/null"]; targets.len()].concat();
    let said = curl(&[&statuses[..], &outputs].concat(), &targets).expect("it is installed");
    assert_eq!(text(&said), "200 1\n404 0\n200 0\n301 0\n200 0\n");
    let tag = ["-I", "-o", "/dev/null", "-w", "%header{etag}"];
    let condition = format!("If-None-Match: {}", text(&get(&tag, "/hello.txt")));
    let only_status = ["-o", "/dev/null", "-w", "%{http_code}"];
    let asked = [&only_status[..], &["-H", &condition]].concat();
    assert_eq!(text(&get(&asked, "/hello.txt")), "304", "{condition}");
    // Uploads are refused, and curl has the answer although it would have sent more.
    let upload = place.root().join("big.bin");
    let upload = upload.to_str().expect("text");
    for how in [
        &["-T", upload][..],
        &["--data-binary", "x=y"],
        &["-X", "DELETE"],
    ] {
        let asked = [&only_status[..], how].concat();
        assert_eq!(text(&get(&asked, "/hello.txt")), "405", "{how:?}");
    }
    place.end();
}

/// All names below a directory, with what the files hold.
fn tree(at: &Path) -> BTreeSet<(PathBuf, Vec<u8>)> {
    let mut found = BTreeSet::new();
    let mut left = vec![at.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("a name").path();
            match path.is_dir() {
                true => left.push(path),
                false => {
                    let name = path.strip_prefix(at).expect("below").to_path_buf();
                    found.insert((name, fs::read(&path).expect("a file")));
                }
            }
        }
    }
    found
}

#[test]
fn wget_mirrors_a_tree_and_continues_a_file() {
    let place = Place::new();
    let copy = place.directory.path().join("copy");
    let copy_name = copy.to_str().expect("text");
    let common = [
        "-q",
        "--no-proxy",
        "--tries=1",
        "--timeout=60",
        "-P",
        copy_name,
    ];
    let mirror = ["-r", "-np", "-nH", "-e", "robots=off", "-R", "index.html*"];
    let url = place.url("/");
    let Some(output) = run("wget", &[&common[..], &mirror, &[&url]].concat()) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    assert!(tree(&copy) == tree(&place.root()), "the copy differs");
    fs::write(copy.join("big.bin"), &big()[..1_234_567]).expect("room");
    let url = place.url("/big.bin");
    let output = run("wget", &[&common[..], &["-c", &url]].concat()).expect("it is installed");
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(copy.join("big.bin")).expect("a file") == big());
    let log = place.end();
    assert!(log
        .iter()
        .any(|line| line.contains("/big.bin") && line.contains(" 206 ")));
}

#[test]
fn load_generators_see_no_error() {
    let place = Place::new();
    let (small, large) = (place.url("/hello.txt"), place.url("/big.bin"));
    for options in [&["-n", "3000"][..], &["-n", "3000", "-k"]] {
        let Some(output) = run("ab", &[options, &["-q", "-c", "20", &small]].concat()) else {
            break;
        };
        let said = text(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(said.contains("Complete requests:      3000\n"), "{said}");
        assert!(said.contains("Failed requests:        0\n"), "{said}");
        assert!(
            !said.contains("Non-2xx") && !said.contains("Write errors"),
            "{said}"
        );
    }
    for (url, count) in [(&small, "3000"), (&large, "60")] {
        let options = ["--h1", "-n", count, "-c", "10", "-m", "4", url];
        let Some(output) = run("h2load", &options) else {
            break;
        };
        let said = text(&output.stdout);
        let expected = format!("{count} done, {count} succeeded, 0 failed, 0 errored, 0 timeout");
        assert!(said.contains(&expected), "{said}");
        assert!(
            said.contains(&format!("status codes: {count} 2xx")),
            "{said}"
        );
    }
    for url in [&small, &large] {
        let Some(output) = run("wrk", &["-d", "1", "-t", "1", "-c", "16", url]) else {
            break;
        };
        let said = text(&output.stdout);
        assert!(said.contains("requests in"), "{output:?}");
        assert!(
            !said.contains("Socket errors") && !said.contains("Non-2xx"),
            "{said}"
        );
    }
    place.end();
}

/// `requests` pools connections, sends a whole body before it reads the answer, and checks lengths.
const PYTHON: &str = r#"
import sys
try:
    import requests
except ImportError:
    print("requests is not installed")
    sys.exit(77)
base = sys.argv[1]
with requests.Session() as session:
    session.trust_env = False
    for turn in range(50):
        answer = session.get(base + "/hello.txt", timeout=60)
        assert (answer.status_code, answer.content) == (200, b"0123456789"), answer
        assert session.head(base + "/big.bin", timeout=60).headers["content-length"] == "5000000"
        assert session.get(base + "/none", timeout=60).status_code == 404
    again = session.get(base + "/hello.txt", timeout=60, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b""), again
    part = session.get(base + "/big.bin", timeout=60, headers={"Range": "bytes=4999990-"})
    assert (part.status_code, len(part.content)) == (206, 10), part
    assert len(session.get(base + "/big.bin", timeout=60).content) == 5000000
    assert session.get(base + "/sub dir", timeout=60).url.endswith("/sub%20dir/")
    assert session.options(base + "/", timeout=60).headers["allow"] == "GET, HEAD, OPTIONS"
    refused = session.post(base + "/hello.txt", data=b"x" * 20_000_000, timeout=60)
    assert refused.status_code == 405, refused
    def chunks():
        for turn in range(2000):
            yield b"x" * 10_000
    refused = session.post(base + "/hello.txt", data=chunks(), timeout=60)
    assert refused.status_code == 405, refused
    small = session.post(base + "/hello.txt", data=b"x" * 1000, timeout=60)
    assert small.status_code == 405, small
    last = session.get(base + "/hello.txt", timeout=60, headers={"Connection": "close"})
    assert last.content == b"0123456789", last
"#;

#[test]
fn a_python_session_has_all_its_answers() {
    let place = Place::new();
    let Some(output) = run("python3", &["-c", PYTHON, &place.url("")]) else {
        return;
    };
    if output.status.code() == Some(77) {
        return skipped("flash with Python's requests: it is not installed");
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    place.end();
}

/// Style sheets and modules that have wrong types are not used by a browser.
fn fill_site(root: &Path) {
    let site = root.join("site");
    for folder in ["style", "script", "picture book"] {
        fs::create_dir_all(site.join(folder)).expect("room");
    }
    let images: String = (0..IMAGES)
        .map(|n| format!("<img src=\"picture%20book/{n}.svg\" alt=\"{n}\">\n"))
        .collect();
    let page = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>before</title>\n\
         <link rel=\"stylesheet\" href=\"style/main.css\">\n\
         <script type=\"module\" src=\"script/main.js\"></script>\n<p id=\"says\">grün</p>\n{images}"
    );
    let script = "import {word} from './part.js';\n\
        addEventListener('load', async () => {\n\
          const data = await (await fetch('../site/data.json')).json();\n\
          const none = (await fetch('none')).status;\n\
          const loaded = [...document.images].filter(image => image.naturalWidth == 7).length;\n\
          const colour = getComputedStyle(document.getElementById('says')).color;\n\
          document.title = [word, data.number, none, loaded, colour].join(' ');\n\
        });\n";
    for (name, content) in [
        ("index.html", page.as_str()),
        ("style/main.css", "@import 'colour.css';\np { margin: 0 }\n"),
        ("style/colour.css", "p { color: rgb(1, 2, 3) }\n"),
        ("script/main.js", script),
        ("script/part.js", "export const word = 'ümlaut';\n"),
        ("data.json", "{\"number\": 42}\n"),
    ] {
        fs::write(site.join(name), content).expect("room");
    }
    for n in 0..IMAGES {
        let image = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"7\" height=\"7\"/>\n";
        fs::write(site.join(format!("picture book/{n}.svg")), image).expect("room");
    }
}

#[test]
fn a_browser_loads_a_site_of_many_files() {
    let place = Place::new();
    fill_site(&place.root());
    let Some(opened) = debox_browser::visit(&place.url("/site"), 1200) else {
        return skipped("flash with a browser: Chromium is not installed");
    };
    let expected = format!("<title>ümlaut 42 404 {IMAGES} rgb(1, 2, 3)</title>");
    let says = opened.complaints();
    assert!(
        opened.dom.contains(&expected),
        "{says:?}\n{}",
        opened.head()
    );
    let log = place.end();
    let answered = |status: &str| {
        let end = format!("\" {status} ");
        log.iter().filter(|line| line.contains(&end)).count()
    };
    assert!(answered("200") >= IMAGES + 6, "{log:#?}");
    assert_eq!(answered("301"), 1, "{log:#?}");
    let bad = log
        .iter()
        .filter(|line| line.contains("\" 400 ") || line.contains("\" 408 "));
    assert_eq!(bad.count(), 0, "{log:#?}");
}
