// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server that runs, upstreams that follow a script, and clients that send raw bytes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub const PATIENCE: Duration = Duration::from_secs(30);

/// A program that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Flash {
    pub running: Running,
    pub address: SocketAddr,
    metrics: SocketAddr,
    pub place: TempDir,
}

impl Flash {
    /// One server with one loop. `location`: what its location `/` has.
    pub fn with(location: &str) -> Flash {
        Flash::run(&format!("[[server.location]]\npath = \"/\"\n{location}\n"))
    }

    /// `rest`: what follows the server's own settings.
    pub fn run(rest: &str) -> Flash {
        Flash::in_place(place(), rest)
    }

    pub fn in_place(place: TempDir, rest: &str) -> Flash {
        let config = format!(
            "loops = 1\nmetrics = \"127.0.0.1:0\"\n[[server]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"root\"\n{rest}\n"
        );
        fs::write(place.path().join("flash.toml"), config).expect("room");
        let errors = fs::File::create(place.path().join("errors")).expect("room");
        let mut child = Command::new(env!("CARGO_BIN_EXE_flash"))
            .arg("run")
            .arg(place.path().join("flash.toml"))
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("it can be executed");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let running = Running(child);
        let (mut address, mut metrics) = (None, None);
        for line in out.lines() {
            let line = line.expect("text");
            if let Some(rest) = line.strip_prefix("serving at http://") {
                address = rest.trim_end_matches('/').parse().ok();
            } else if let Some(rest) = line.strip_prefix("counters at http://") {
                metrics = rest.trim_end_matches("/metrics").parse().ok();
            } else if line.starts_with("sandbox: ") {
                break;
            }
        }
        let said = || fs::read_to_string(place.path().join("errors")).unwrap_or_default();
        Flash {
            running,
            address: address.unwrap_or_else(|| panic!("it did not start: {}", said())),
            metrics: metrics.expect("an address"),
            place,
        }
    }

    pub fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    /// Sends bytes, and reads until the server ends the connection.
    pub fn send(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).expect("the server reads");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// One request whose connection ends with its answer.
    pub fn get(&self, target: &str) -> String {
        self.send(
            format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes(),
        )
    }

    pub fn metric(&self, name: &str) -> u64 {
        let mut stream = connect(self.metrics);
        let request = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("text");
        let line = page
            .lines()
            .find(|line| line.starts_with(&format!("{name}{{")));
        let value = line.and_then(|line| line.rsplit(' ').next());
        value.and_then(|value| value.parse().ok()).expect(name)
    }

    pub fn errors(&self) -> String {
        fs::read_to_string(self.place.path().join("errors")).unwrap_or_default()
    }

    /// Open descriptors, and bytes in memory.
    pub fn usage(&self) -> (usize, u64) {
        let process = format!("/proc/{}", self.running.0.id());
        let files = fs::read_dir(format!("{process}/fd"))
            .expect("it runs")
            .count();
        let status = fs::read_to_string(format!("{process}/status")).expect("it runs");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes =
            resident.and_then(|text| text.trim().split(' ').next()?.parse::<u64>().ok());
        (files, kilobytes.expect("a number") << 10)
    }
}

/// A directory that everybody may read, with what a server serves.
pub fn place() -> TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(place.path(), open).expect("it is ours");
    fs::create_dir(place.path().join("root")).expect("room");
    fs::write(place.path().join("root/file.txt"), "a file\n").expect("room");
    place
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// Until it holds.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An upstream whose connections a test answers.
pub struct Fake {
    pub address: SocketAddr,
    /// Of all its connections, what came.
    pub heads: Arc<Mutex<Vec<String>>>,
    pub connections: Arc<AtomicUsize>,
}

/// A connection to a fake upstream.
pub struct Call {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// `answer` is called for each connection, in a thread of its own.
    pub fn start(answer: impl Fn(&mut Call) + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let (answer, all, count) = (
            Arc::new(answer),
            Arc::clone(&heads),
            Arc::clone(&connections),
        );
        // The threads end with the test program.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let (answer, heads) = (Arc::clone(&answer), Arc::clone(&all));
                std::thread::spawn(move || {
                    let reader = BufReader::new(stream.try_clone().expect("a descriptor"));
                    let mut call = Call {
                        stream,
                        reader,
                        heads,
                    };
                    answer(&mut call);
                });
            }
        });
        Fake {
            address,
            heads,
            connections,
        }
    }

    /// Answers every request with the same bytes, and keeps the connection.
    pub fn saying(answer: &'static str) -> Fake {
        Fake::start(move |call| while call.head().is_some() && call.say(answer) {})
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no panic").clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Call {
    /// Of the next request, in lower case but for values.
    pub fn head(&mut self) -> Option<String> {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            match self.reader.read_line(&mut line) {
                Ok(1..) => head.push_str(&line),
                _ => return None,
            }
            if line == "\r\n" {
                self.heads.lock().expect("no panic").push(head.clone());
                return Some(head);
            }
        }
    }

    pub fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        match self.reader.read_exact(&mut bytes) {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }

    pub fn say(&mut self, text: &str) -> bool {
        self.stream.write_all(text.as_bytes()).is_ok()
    }

    /// Until the other side ends the connection.
    pub fn wait_for_end(&mut self) {
        let _ = std::io::copy(&mut self.reader, &mut std::io::sink());
    }

    pub fn end(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Whether a program is installed.
pub fn has(program: &str) -> bool {
    let paths = std::env::var("PATH").unwrap_or_default();
    let mut directories = paths.split(':').chain(["/usr/sbin", "/usr/bin"]);
    directories.any(|directory| Path::new(directory).join(program).exists())
}
