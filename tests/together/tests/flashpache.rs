// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other servers with flash's path server, on a disk that is slow for names, too: they answer what they answer without
//! it, and the disk is the path server's.

#[path = "../../../flash/server/tests/path_server/build_adapters.rs"]
mod build_adapters;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use build_adapters::build;
use debox_real::free_port;
use debox_skipped::skipped;
use debox_tests::wait_for;
use house_together::{program, SlowDisk};

const PATIENCE: Duration = Duration::from_secs(60);
const DIRECTORIES: usize = 4;
const FILES: usize = 5;

/// Longer than Apache's second, which begins with any of its own.
const WEAK: Duration = Duration::from_secs(3);

fn disk() -> SlowDisk {
    let mut files = Vec::new();
    for directory in 0..DIRECTORIES {
        for file in 0..FILES {
            let content = vec![b'a' + file as u8; 100_000 + file];
            files.push((format!("cold{directory}/{file}.bin"), content));
        }
    }
    let disk = SlowDisk::up("10ms", &files);
    // Apache marks the tag of a file as weak that has been written in the last second.
    let written = |name: &String| {
        let about = fs::metadata(disk.root().join(name)).expect("a file");
        about.modified().expect("a time")
    };
    let last = files.iter().map(|(name, _)| written(name)).max();
    let is_old = || last.is_some_and(|last| last.elapsed().is_ok_and(|past| past > WEAK));
    assert!(wait_for(PATIENCE, is_old));
    // Servers become users that have to reach the root and the socket.
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(disk.scratch(), open).expect("it is ours");
    disk
}

/// A process that is ended with the value, and that is in a group of its own: Apache ends its group.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        let child = command.process_group(0).spawn();
        Running(child.expect("it can be executed"))
    }

    fn signal(&self, name: &str) {
        let done = Command::new("kill")
            .args([name, &self.0.id().to_string()])
            .status();
        assert!(done.expect("kill can be executed").success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM first: Apache ends its children.
        let _ = Command::new("kill")
            .args(["-TERM", &self.0.id().to_string()])
            .status();
        if !wait_for(PATIENCE, || !matches!(self.0.try_wait(), Ok(None))) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

struct PathServer {
    running: Running,
    socket: PathBuf,
    metrics: SocketAddr,
}

impl PathServer {
    /// `user`: of its clients.
    fn start(disk: &SlowDisk, user: Option<&str>) -> PathServer {
        let socket = disk.scratch().join("paths");
        let mut command = Command::new(program("flash"));
        command.arg("path-server").arg("--root").arg(disk.root());
        command
            .arg("--listen")
            .arg(format!("unix:{}", socket.display()));
        command
            .args(["--metrics", "127.0.0.1:0"])
            .stdout(Stdio::piped());
        if let Some(user) = user {
            command.args(["--user", user]);
        }
        let mut running = Running::start(&mut command);
        let lines = BufReader::new(running.0.stdout.take().expect("a pipe")).lines();
        let metrics = lines.map_while(Result::ok).find_map(|line| {
            let address = line.strip_prefix("counters at http://")?;
            address.strip_suffix("/metrics")?.parse().ok()
        });
        PathServer {
            running,
            socket,
            metrics: metrics.expect("an address"),
        }
    }

    fn counter(&self, name: &str) -> u64 {
        let page = get(self.metrics, "/metrics");
        let page = String::from_utf8_lossy(&page).into_owned();
        let row = page
            .lines()
            .find_map(|line| line.strip_prefix(&format!("flash_path_{name} ")));
        row.unwrap_or_else(|| panic!("{page}"))
            .parse()
            .expect("a number")
    }

    /// Nothing of the disk stays open.
    fn forget(&self) {
        self.running.signal("-HUP");
        assert!(wait_for(PATIENCE, || self.counter("kept") == 0));
    }
}

fn get(address: SocketAddr, target: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    answer
}

/// All files and as many names that do not exist, from four clients at once, of which each pair wants the same. The
/// answers without their time.
fn ask(address: SocketAddr) -> Vec<Vec<u8>> {
    let ask_for = |offset: usize| {
        let mut answers = Vec::new();
        for number in 0..DIRECTORIES * FILES {
            let number = (number + offset) % (DIRECTORIES * FILES);
            let (directory, file) = (number % DIRECTORIES, number / DIRECTORIES);
            for target in [
                format!("/cold{directory}/{file}.bin"),
                format!("/cold{directory}/none{file}"),
                format!("/cold{directory}"),
            ] {
                let answer = get(address, &target);
                let lines = answer.split_inclusive(|byte| *byte == b'\n');
                let lines = lines.filter(|line| !line.starts_with(b"Date: "));
                answers.push((number, target, lines.collect::<Vec<_>>().concat()));
            }
        }
        answers.sort();
        answers
            .into_iter()
            .map(|(_, _, answer)| answer)
            .collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let clients = [0, 0, 7, 7].map(|offset| scope.spawn(move || ask_for(offset)));
        let mut all = clients
            .map(|client| client.join().expect("each was answered"))
            .into_iter();
        let first = all.next().expect("four");
        for other in all {
            for (one, other) in first.iter().zip(other) {
                let text = String::from_utf8_lossy;
                assert!(*one == other, "{}\n{}", text(one), text(&other));
            }
        }
        first
    })
}

/// Takes the content of all files out of memory, and leaves the names there.
fn forget_bytes(disk: &SlowDisk) {
    for number in 0..DIRECTORIES * FILES {
        let (directory, file) = (number % DIRECTORIES, number / DIRECTORIES);
        let path = disk.root().join(format!("cold{directory}/{file}.bin"));
        let done = Command::new("dd")
            .arg(format!("if={}", path.display()))
            .args(["iflag=nocache", "count=0", "status=none"])
            .status();
        assert!(done.expect("dd can be executed").success());
    }
}

/// Starts a server at a port, asks it on a cold disk, and ends it.
fn answers_of(disk: &SlowDisk, port: u16, command: &mut Command) -> Vec<Vec<u8>> {
    disk.cool();
    let running = Running::start(command);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    assert!(wait_for(PATIENCE, || TcpStream::connect(address).is_ok()));
    let answers = ask(address);
    drop(running);
    answers
}

fn apache(disk: &SlowDisk, port: u16, lines: &str) -> Command {
    let here = disk.scratch().join(format!("apache-{}", lines.len()));
    fs::create_dir_all(&here).expect("room");
    let (root, shown) = (disk.root(), here.display());
    let root = root.display();
    let written = format!(
        "ServerRoot {shown}\nServerName localhost\nPidFile {shown}/pid\nErrorLog {shown}/error.log\n\
         DefaultRuntimeDir {shown}\nListen 127.0.0.1:{port}\nUser www-data\nGroup www-data\n\
         LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so\n\
         LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
         LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so\n{lines}\nDocumentRoot {root}\n"
    );
    let file = here.join("apache.conf");
    fs::write(&file, written).expect("room");
    let mut command = Command::new("apache2");
    command.arg("-f").arg(file).arg("-DFOREGROUND");
    command
}

/// The path server has brought each name once, although two clients wanted it at the same time.
fn check_questions(server: &PathServer) {
    let names = (DIRECTORIES * FILES) as u64;
    assert!(server.counter("brought_total") >= names);
    assert!(server.counter("questions_total") >= names);
    assert_eq!(server.counter("refused_peers_total"), 0);
    assert_eq!(server.counter("malformed_total"), 0);
    assert_eq!(server.counter("refused_total"), 0);
}

#[test]
fn apache_answers_the_same_with_the_module_on_a_cold_disk() {
    let disk = disk();
    let Some(module) = build("apache", disk.scratch()) else {
        return skipped("mod_flashpache on a slow disk: there is no apxs (apache2-dev)");
    };
    let port = free_port();
    let plain = answers_of(&disk, port, &mut apache(&disk, port, ""));
    let server = PathServer::start(&disk, Some("www-data"));
    let (module, socket) = (module.display(), server.socket.display());
    let lines = format!("LoadModule flashpache_module {module}\nFlashPathServer {socket}");
    // The path server's own root would keep the disk busy.
    drop(server);
    disk.cool();
    let server = PathServer::start(&disk, Some("www-data"));
    let with = {
        let running = Running::start(&mut apache(&disk, port, &lines));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        assert!(wait_for(PATIENCE, || TcpStream::connect(address).is_ok()));
        let answers = ask(address);
        let before = server.counter("brought_total");
        forget_bytes(&disk);
        assert!(answers == ask(address));
        // Names were in memory, bytes were not.
        let files = (DIRECTORIES * FILES) as u64;
        assert!(server.counter("brought_total") >= before + files);
        drop(running);
        answers
    };
    assert!(plain == with, "the answers differ");
    check_questions(&server);
    assert!(server.counter("joined_total") > 0);
    server.forget();
}

#[test]
fn lighttpd_answers_the_same_with_the_shim_on_a_cold_disk() {
    let disk = disk();
    let Some(shim) = build("preload", disk.scratch()) else {
        return skipped("lighttpd with the preload shim: there is no make or cc");
    };
    let port = free_port();
    let configuration = disk.scratch().join("lighttpd.conf");
    let written = format!(
        "server.document-root = \"{}\"\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\n",
        disk.root().display()
    );
    fs::write(&configuration, written).expect("room");
    let lighttpd = || {
        let mut command = Command::new("lighttpd");
        command.arg("-D").arg("-f").arg(&configuration);
        command
    };
    let plain = answers_of(&disk, port, &mut lighttpd());
    disk.cool();
    let server = PathServer::start(&disk, None);
    let with = {
        let mut command = preloaded(lighttpd(), &shim, &server.socket, &disk);
        let running = Running::start(&mut command);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        assert!(wait_for(PATIENCE, || TcpStream::connect(address).is_ok()));
        let answers = ask(address);
        drop(running);
        answers
    };
    assert!(plain == with, "the answers differ");
    check_questions(&server);
}

fn preloaded(mut command: Command, shim: &Path, socket: &Path, disk: &SlowDisk) -> Command {
    command
        .env("LD_PRELOAD", shim)
        .env("FLASH_PATHS_SOCKET", socket);
    command.env("FLASH_PATHS_ROOTS", disk.root());
    command
}

/// What a program finds by each call: in threads, in children, with all flags, and what it may not do.
const CALLS: &str = r#"
import concurrent.futures, errno, fcntl, os, sys
root = sys.argv[1]
def tried(call, *arguments, **options):
    try:
        return call(*arguments, **options)
    except OSError as error:
        return errno.errorcode[error.errno]
def opened(path, flags, directory=None):
    fd = tried(os.open, path, flags, dir_fd=directory)
    if isinstance(fd, str):
        return fd
    try:
        kinds = fcntl.fcntl(fd, fcntl.F_GETFL), fcntl.fcntl(fd, fcntl.F_GETFD)
        status = os.fstat(fd)
        content = tried(os.read, fd, 50_000), tried(os.read, fd, 200_000)
        return kinds, tuple(status), content, os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
paths = [f"{root}/cold{d}/{name}" for d in range(5) for name in ("0.bin", "1.bin", "none", "", "0.bin/x", "../cold0/2.bin")]
paths += [root, root + "/", root + "/cold0", root + "x/y", root + "/../root/cold1/3.bin", "cold2/4.bin", "/etc/passwd", "", root + "/" + "n" * 300]
flags = [os.O_RDONLY, os.O_RDONLY | os.O_NONBLOCK, os.O_RDONLY | os.O_NOFOLLOW, os.O_RDONLY | os.O_DIRECTORY, os.O_RDONLY | os.O_NOATIME,
    os.O_WRONLY, os.O_RDWR | os.O_CREAT, os.O_RDONLY | os.O_CREAT | os.O_EXCL, os.O_PATH, os.O_RDONLY | os.O_APPEND]
os.chdir(root)
print(opened(paths[0], os.O_RDONLY)[0], os.open(f"{root}/cold3/4.bin", os.O_RDONLY))
def look(path):
    found = [opened(path, flag) for flag in flags]
    found += [tried(os.stat, path), tried(os.lstat, path), tried(os.stat, path, follow_symlinks=False), tried(os.access, path, os.R_OK)]
    found.append(tried(os.listdir, path))
    return path, found
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    for found in pool.map(look, paths):
        print(found)
directory = os.open(root, os.O_RDONLY)
print(opened("cold1/2.bin", os.O_RDONLY, directory))
sys.stdout.flush()
for n in range(4):
    child = os.fork()
    if child == 0:
        os._exit(0 if opened(f"{root}/cold{n}/3.bin", os.O_RDONLY)[2][0][:1] == b"d" else 1)
    print(os.waitpid(child, 0)[1])
print(sorted(os.listdir("/proc/self/fd")))
"#;

#[test]
fn each_call_of_a_program_finds_the_same_with_the_shim_on_a_cold_disk() {
    let disk = disk();
    let Some(shim) = build("preload", disk.scratch()) else {
        return skipped("the preload shim on a slow disk: there is no make or cc");
    };
    let python = || {
        let mut python = Command::new("python3");
        python
            .args(["-S", "-c", CALLS])
            .arg(disk.root())
            .stdin(Stdio::null());
        python
    };
    let run = |mut python: Command| {
        let output = python.output().expect("Python can be executed");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        String::from_utf8(output.stdout).expect("text")
    };
    disk.cool();
    let plain = run(python());
    disk.cool();
    let server = PathServer::start(&disk, None);
    let with = run(preloaded(python(), &shim, &server.socket, &disk));
    let differ: Vec<_> = plain
        .lines()
        .zip(with.lines())
        .filter(|(a, b)| a != b)
        .collect();
    assert!(plain == with, "{differ:#?}");
    check_questions(&server);
    // One that does not answer any more, and none at all.
    server.forget();
    server.running.signal("-STOP");
    let stopped = run(preloaded(python(), &shim, &server.socket, &disk));
    server.running.signal("-CONT");
    assert!(plain == stopped);
    let gone = run(preloaded(python(), &shim, Path::new("/gone"), &disk));
    assert!(plain == gone);
}
