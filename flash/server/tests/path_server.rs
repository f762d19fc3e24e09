// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path server, asked over its socket.

#[path = "path_server/running.rs"]
mod running;

use std::fs::{self, File};
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use debox_skipped::skipped;
use flash::path_server::protocol::{flag, Answer, Kind, Question};
use nix::sys::signal::Signal;
use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::net::{
    connect, recvmsg, send, socket_with, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage,
    RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use running::build_adapters::build;
use running::{place, PathServer, PATIENCE};

struct Client(OwnedFd);

impl Client {
    fn connect(server: &PathServer) -> Client {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).expect("a socket");
        let address = SocketAddrUnix::new(&server.socket).expect("a short path");
        connect(&socket, &address).expect("it listens");
        Client(socket)
    }

    fn send(&self, message: &[u8]) {
        send(&self.0, message, SendFlags::NOSIGNAL).expect("it reads");
    }

    /// `None`: the connection was closed.
    fn receive(&self) -> Option<(Answer, Option<File>)> {
        let mut bytes = [0; 200];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut passed = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = recvmsg(&self.0, &mut parts, &mut passed, RecvFlags::CMSG_CLOEXEC);
        let length = got.map_or(0, |got| got.bytes);
        let mut files = Vec::new();
        for message in passed.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                files.extend(fds.map(File::from));
            }
        }
        assert!(files.len() <= 1);
        if length == 0 {
            return None;
        }
        let answer = Answer::read(&bytes[..length]).expect("an answer");
        Some((answer, files.pop()))
    }

    fn ask(&self, kind: Kind, flags: u32, path: &Path) -> (Answer, Option<File>) {
        let path = path.to_str().expect("text").as_bytes();
        let id = path.len() as u32;
        self.send(
            &Question {
                id,
                kind,
                flags,
                path,
            }
            .write(),
        );
        let (answer, file) = self.receive().expect("an answer");
        assert_eq!(answer.id.get(), id);
        assert_eq!(answer.error.get() == 0, file.is_some());
        (answer, file)
    }
}

#[test]
fn a_path_is_answered_with_a_descriptor_and_its_metadata() {
    let place = place();
    let root = place.path().join("root");
    fs::create_dir(root.join("d")).expect("room");
    fs::write(root.join("d/a"), vec![b'a'; 200_000]).expect("room");
    fs::write(place.path().join("secret"), "").expect("room");
    std::os::unix::fs::symlink("../secret", root.join("out")).expect("room");
    let server = PathServer::start(place.path(), &[]);
    let client = Client::connect(&server);
    let path = root.join("d/a");
    let (answer, file) = client.ask(Kind::Open, 0, &path);
    let found = fs::metadata(&path).expect("it is there");
    assert_eq!(answer.size.get(), found.len());
    assert_eq!(answer.inode.get(), found.ino());
    assert_eq!(answer.mode.get(), found.mode());
    assert_eq!(answer.links.get(), found.nlink() as u32);
    assert_eq!(
        (answer.user.get(), answer.group.get()),
        (found.uid(), found.gid())
    );
    assert_eq!(answer.blocks.get(), found.blocks());
    assert_eq!(answer.modified.get(), found.mtime());
    assert_eq!(
        answer.root_inode.get(),
        fs::metadata(&root).expect("there").ino()
    );
    assert_eq!(answer.root_length.get() as usize, root.as_os_str().len());
    // Each has its own offset.
    let (_, other) = Client::connect(&server).ask(Kind::Open, 0, &path);
    for file in [file, other] {
        let mut bytes = Vec::new();
        file.expect("a descriptor")
            .read_to_end(&mut bytes)
            .expect("it can be read");
        assert_eq!(bytes, vec![b'a'; 200_000]);
    }
    let (answer, file) = client.ask(Kind::Stat, 0, &root.join("d"));
    assert!(answer.is_directory());
    file.expect("a descriptor")
        .read(&mut [0])
        .expect_err("O_PATH");
    for (path, flags, error) in [
        (root.join("none"), 0, libc::ENOENT),
        (root.join("d/a/b"), 0, libc::ENOTDIR),
        (path.clone(), flag::DIRECTORY, libc::ENOTDIR),
        (root.join("out"), flag::NOFOLLOW, libc::ELOOP),
        // What is not below the root is not opened, by whatever way.
        (root.join("out"), 0, libc::EXDEV),
        (root.join("../secret"), 0, libc::EXDEV),
        (place.path().join("secret"), 0, libc::EXDEV),
        (place.path().join("root2"), 0, libc::EXDEV),
    ] {
        let (answer, _) = client.ask(Kind::Open, flags, &path);
        assert_eq!(answer.error.get(), error as u32, "{}", path.display());
    }
    server.signal(Signal::SIGHUP);
    assert!(client.ask(Kind::Open, 0, &path).1.is_some());
    assert!(server.end());
}

#[test]
fn what_is_no_question_ends_its_connection_only() {
    let place = place();
    fs::write(place.path().join("root/a"), "").expect("room");
    let server = PathServer::start(place.path(), &[]);
    let good = Client::connect(&server);
    let path = place.path().join("root/a");
    let name = path.to_str().expect("text").as_bytes();
    let question = Question {
        id: 1,
        kind: Kind::Open,
        flags: 0,
        path: name,
    };
    let whole = question.write();
    let mut wrong = vec![
        b"x".to_vec(),
        vec![0; 20],
        vec![0xff; 60_000],
        [&whole[..], b"x"].concat(),
    ];
    wrong.extend((1..whole.len()).map(|length| whole[..length].to_vec()));
    wrong.extend((0..20).map(|at| {
        let mut message = whole.clone();
        message[at] ^= 0x80;
        message
    }));
    let mut answered = 0;
    for message in &wrong {
        let client = Client::connect(&server);
        client.send(message);
        answered += usize::from(client.receive().is_some());
        assert!(good.ask(Kind::Open, 0, &path).1.is_some());
    }
    // The four bytes of the id may be any.
    assert_eq!(answered, 4);
    assert_eq!(server.counter("malformed_total") as usize, wrong.len() - 4);
    assert!(good.ask(Kind::Open, 0, &path).1.is_some());
    assert!(server.end());
}

#[test]
fn many_clients_ask_at_once() {
    let place = place();
    let root = place.path().join("root");
    for number in 0..20 {
        fs::write(root.join(format!("f{number}")), format!("{number}")).expect("room");
    }
    let server = PathServer::start(place.path(), &["--helpers", "2", "--keep", "8"]);
    std::thread::scope(|scope| {
        for first in 0..8 {
            let (server, root) = (&server, &root);
            scope.spawn(move || {
                for number in first..first + 200 {
                    let client = Client::connect(server);
                    // What does not exist is a helper's work until somebody has looked.
                    let missing = root.join(format!("none{}", number / 2));
                    let (answer, _) = client.ask(Kind::Stat, 0, &missing);
                    assert_eq!(answer.error.get(), libc::ENOENT as u32);
                    let number = number % 20;
                    let path = root.join(format!("f{number}"));
                    let (_, file) = client.ask(Kind::Open, 0, &path);
                    let mut text = String::new();
                    file.expect("there")
                        .read_to_string(&mut text)
                        .expect("text");
                    assert_eq!(text, number.to_string());
                }
            });
        }
    });
    assert_eq!(server.counter("questions_total"), 8 * 200 * 2);
    assert!(server.counter("brought_total") > 0);
    assert_eq!(server.counter("refused_total"), 0);
    assert!(server.counter("kept") <= 8);
    assert!(server.end());
}

/// A process of another user does without the path server, and finds what it would find otherwise.
#[test]
fn other_users_get_nothing() {
    if !nix::unistd::geteuid().is_root() {
        return skipped("a path server's other users: the test does not run as root");
    }
    let place = place();
    let Some(shim) = build("preload", place.path()) else {
        return skipped("a path server's other users: there is no make or cc");
    };
    fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let secret = place.path().join("root/secret");
    fs::write(&secret, "secret").expect("room");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let server = PathServer::start(place.path(), &[]);
    let cat = |path: &Path, user: u32| {
        let mut cat = Command::new("cat");
        cat.arg(path)
            .uid(user)
            .gid(user)
            .env("LD_PRELOAD", &shim)
            .env("FLASH_PATHS_SOCKET", &server.socket)
            .env("FLASH_PATHS_ROOTS", place.path().join("root"))
            .env("LC_ALL", "C");
        let output = cat.output().expect("cat can be executed");
        String::from_utf8(output.stderr).expect("text")
    };
    // Nobody has looked for these names, so the path server is asked.
    let said = cat(&place.path().join("root/none"), 65_534);
    assert!(said.contains("No such file"), "{said}");
    assert_eq!(server.counter("refused_peers_total"), 1);
    assert_eq!(server.counter("questions_total"), 0);
    let said = cat(&secret, 65_534);
    assert!(said.contains("Permission denied"), "{said}");
    let said = cat(&place.path().join("root/none2"), 0);
    assert!(said.contains("No such file"), "{said}");
    assert_eq!(server.counter("questions_total"), 1);
    assert!(server.end());
}

#[test]
fn a_socket_of_somebody_else_is_not_taken() {
    let place = place();
    let start = |listen: &Path, root: &Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_flash"))
            .arg("path-server")
            .arg("--listen")
            .arg(format!("unix:{}", listen.display()))
            .arg("--root")
            .arg(root)
            .output()
            .expect("flash can be executed");
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("text")
    };
    let (root, file) = (place.path().join("root"), place.path().join("file"));
    fs::write(&file, "").expect("room");
    let said = start(&file, &root);
    assert!(said.contains("exists and is no socket"), "{said}");
    assert!(file.exists());
    let said = start(&place.path().join("new"), &place.path().join("none"));
    assert!(said.contains("cannot open the directory"), "{said}");
    let first = PathServer::start(place.path(), &[]);
    let said = start(&first.socket, &root);
    assert!(said.contains("somebody listens at"), "{said}");
    assert!(first.end());
    // The socket of one that has ended is.
    assert!(PathServer::start(place.path(), &[]).end());
}
