// SPDX-License-Identifier: MIT OR Apache-2.0
//! Storms around files: paths that want to lead out of the root, and files that change while they are served.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::sync::Mutex;

use rustix::fs::{renameat_with, RenameFlags, CWD};

use super::client::{get, Got};
use super::{Counts, Random, Target, SECRET};

/// Ways to write `../` that some server has taken for it, and what may stand before a path.
const UP: [&str; 20] = [
    "../",
    "%2e%2e/",
    "%2E./",
    "..%2f",
    "%2e%2e%2F",
    "%252e%252e/",
    "..%252f",
    "..%5c",
    "..\\",
    "%c0%ae%c0%ae/",
    "%e0%80%ae%e0%80%ae/",
    "..%c0%af",
    "..%ef%bc%8f",
    "%uff0e%uff0e/",
    "..../",
    "....//",
    "..;/",
    ".%00./",
    "..%00/",
    "..%0d%0a/",
];
const BEFORE: [&str; 6] = ["/", "//", "/sub/", "/./", "/sub/%2e/", "http://a/"];
const WANTED: [&str; 4] = ["secret.txt", "outside/secret.txt", "outside/", "etc/passwd"];

/// Everything that wants to lead out of the root.
pub fn paths_out() -> Vec<String> {
    let mut paths = vec![
        "/.hidden".to_string(),
        "/%2ehidden".to_string(),
        "/sub/../.hidden".to_string(),
    ];
    for before in BEFORE {
        for up in UP {
            for depth in [1, 2, 3, 8] {
                for wanted in WANTED {
                    paths.push(format!("{before}{}{wanted}", up.repeat(depth)));
                }
            }
        }
        for wanted in WANTED {
            paths.push(format!("{before}proc/self/root/{wanted}"));
        }
    }
    paths
}

/// Asks for a target that must not be served.
pub fn check_path(target: &Target, path: &str) {
    let Got::Whole(answer) = get(target.address, path) else {
        panic!("no answer to {path}");
    };
    let body = String::from_utf8_lossy(&answer.body);
    assert!(
        !body.contains(SECRET) && !body.contains("root:"),
        "{path}: {body}"
    );
    // Some are paths below the root that do not exist.
    assert!(
        (400..=404).contains(&answer.status),
        "{path}: {}",
        answer.head
    );
}

pub fn traversal(target: &Target) -> Counts {
    let paths = paths_out();
    let mut asked = 0;
    while target.goes_on() {
        for path in paths.iter().take_while(|_| target.goes_on()) {
            check_path(target, path);
            asked += 1;
        }
    }
    vec![("asked", asked)]
}

/// A directory and a link that leads out of the root change places.
pub fn swapped_links(target: &Target) -> Counts {
    let root = target.root();
    let (inside, link) = (root.join("swap"), root.join("swap-other"));
    if !inside.exists() {
        fs::create_dir(&inside).expect("room");
        fs::write(inside.join("secret.txt"), "public").expect("room");
        symlink(target.place.join("outside"), &link).expect("room");
    }
    let (mut swapped, mut seen) = (0, 0);
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let mut seen = 0;
            while target.goes_on() {
                match get(target.address, "/swap/secret.txt") {
                    Got::Whole(answer) if answer.status == 200 => {
                        assert_eq!(answer.body, b"public");
                        seen += 1;
                    }
                    Got::Whole(answer) => {
                        assert!([403, 404, 503].contains(&answer.status), "{}", answer.head);
                    }
                    other => panic!("{other:?}"),
                }
            }
            seen
        });
        while target.goes_on() {
            renameat_with(CWD, &inside, CWD, &link, RenameFlags::EXCHANGE).expect("both exist");
            swapped += 1;
        }
        seen = asks.join().expect("no wrong answer");
    });
    vec![("swapped", swapped), ("served", seen)]
}

/// Files are replaced, made shorter and longer, written anew and deleted while clients read them: an answer has the
/// length that it promises, or its connection ends early.
pub fn changing_files(target: &Target) -> Counts {
    let root = target.root();
    fs::write(root.join("replaced"), "a").expect("room");
    fs::write(root.join("shrinks"), vec![b's'; 400_000]).expect("room");
    let contents = Mutex::new(HashMap::new());
    let mut changes = 0;
    let mut counts = [0; 3];
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| read(target, &contents)))
            .collect();
        let mut random = Random(3);
        let shrinks = File::options()
            .write(true)
            .open(root.join("shrinks"))
            .expect("a file");
        while target.goes_on() {
            let letter = b'a' + random.below(26) as u8;
            let size = random.below(600_000) as usize;
            fs::write(root.join("new"), vec![letter; size]).expect("room");
            fs::rename(root.join("new"), root.join("replaced")).expect("a name");
            shrinks.set_len(random.below(400_000)).expect("room");
            fs::write(root.join("comes"), vec![letter; size / 3]).expect("room");
            shrinks.set_len(400_000).expect("room");
            fs::remove_file(root.join("comes")).expect("it is there");
            changes += 1;
        }
        for reader in readers {
            for (sum, more) in counts
                .iter_mut()
                .zip(reader.join().expect("no wrong answer"))
            {
                *sum += more;
            }
        }
    });
    let [whole, cut, missing] = counts;
    vec![
        ("changes", changes),
        ("whole", whole),
        ("cut", cut),
        ("missing", missing),
    ]
}

type Contents = Mutex<HashMap<String, Vec<u8>>>;

/// Reads the files that change: how many answers were whole, cut off, or said that there is no such file.
fn read(target: &Target, contents: &Contents) -> [u64; 3] {
    let mut counts = [0; 3];
    while target.goes_on() {
        for path in ["/replaced", "/shrinks", "/comes"] {
            match (get(target.address, path), path) {
                (Got::Whole(answer), "/replaced") => {
                    assert_eq!(answer.status, 200, "{}", answer.head);
                    let first = answer.body.first().copied().unwrap_or_default();
                    assert!(
                        answer.body.iter().all(|byte| *byte == first),
                        "mixed contents"
                    );
                    let tag = answer.field("etag").expect("a tag").to_string();
                    let known = contents.lock().expect("no panic");
                    check_tag(known, tag, answer.body);
                    counts[0] += 1;
                }
                (Got::Whole(answer), _) if answer.status == 200 => counts[0] += 1,
                (Got::Whole(answer), "/comes") if answer.status == 404 => counts[2] += 1,
                // The file that was replaced is still what it was.
                (Got::Cut(answer), "/shrinks" | "/comes") if answer.status == 200 => counts[1] += 1,
                (other, path) => panic!("{path}: {other:?}"),
            }
        }
    }
    counts
}

/// One tag has one content.
fn check_tag(
    mut known: std::sync::MutexGuard<'_, HashMap<String, Vec<u8>>>,
    tag: String,
    body: Vec<u8>,
) {
    let begin = body.get(..1).unwrap_or_default().to_vec();
    let before = known.entry(tag.clone()).or_insert_with(|| begin.clone());
    assert!(*before == begin, "{tag} is the tag of two contents");
}
