// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory with a site's files and nginx's configuration of it, and the servers that serve it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub const PATIENCE: Duration = Duration::from_secs(30);
const FLASH: &str = env!("CARGO_BIN_EXE_flash");

/// The sites, with how many notes there are of each kind: not protected, left out, in part.
pub const SITES: [(&str, &str, [usize; 3]); 13] = [
    ("debian", include_str!("sites/debian.conf"), [0, 0, 0]),
    ("wordpress", include_str!("sites/wordpress.conf"), [0, 2, 0]),
    ("laravel", include_str!("sites/laravel.conf"), [0, 4, 0]),
    ("django", include_str!("sites/django.conf"), [0, 0, 0]),
    ("spa", include_str!("sites/spa.conf"), [0, 0, 0]),
    ("pool", include_str!("sites/pool.conf"), [0, 0, 0]),
    ("tls", include_str!("sites/tls.conf"), [0, 0, 0]),
    ("mirror", include_str!("sites/mirror.conf"), [0, 0, 0]),
    ("static", include_str!("sites/static.conf"), [0, 1, 0]),
    ("auth", include_str!("sites/auth.conf"), [0, 0, 0]),
    ("hosts", include_str!("sites/hosts.conf"), [0, 0, 0]),
    ("rails", include_str!("sites/rails.conf"), [0, 0, 0]),
    ("paths", include_str!("sites/paths.conf"), [1, 2, 3]),
];

/// A program that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Place {
    pub directory: TempDir,
    pub flash: SocketAddr,
    pub nginx: SocketAddr,
    pub tls: SocketAddr,
}

pub fn free_port() -> SocketAddr {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    taken.local_addr().expect("an address")
}

/// Whether a program is installed.
pub fn has(program: &str) -> bool {
    let paths = std::env::var("PATH").unwrap_or_default();
    let mut directories = paths.split(':').chain(["/usr/sbin"]);
    directories.any(|directory| Path::new(directory).join(program).exists())
}

/// nginx with its tables of types.
pub fn has_nginx() -> bool {
    has("nginx") && Path::new("/etc/nginx/mime.types").exists()
}

impl Place {
    /// `apps`: the ports of upstreams.
    pub fn new(site: &str, apps: [u16; 2]) -> Place {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Place {
            directory,
            flash: free_port(),
            nginx: free_port(),
            tls: free_port(),
        };
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.path(""), open).expect("it is ours");
        for (name, content) in FILES {
            let path = place.path(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("room");
            fs::write(path, content).expect("room");
        }
        let made = rcgen::generate_simple_self_signed(vec!["secure.test".to_string()]);
        let made = made.expect("a certificate");
        fs::write(place.path("cert.pem"), made.cert.pem()).expect("room");
        fs::write(place.path("key.pem"), made.signing_key.serialize_pem()).expect("room");
        for (name, port, tls) in [
            ("a", place.flash, place.tls),
            ("b", place.nginx, free_port()),
        ] {
            let (_, text, _) = SITES.iter().find(|(its, _, _)| *its == site).expect(site);
            let write = |file: &str, text: &str| {
                let text = text
                    .replace(
                        "@DIR@/sites-enabled",
                        &place.path(name).display().to_string(),
                    )
                    .replace(
                        "@DIR@",
                        place.path("").display().to_string().trim_end_matches('/'),
                    )
                    .replace("@PORT@", &port.to_string())
                    .replace("@TLS@", &tls.to_string())
                    .replace("@APP@", &apps[0].to_string())
                    .replace("@APP2@", &apps[1].to_string());
                fs::create_dir_all(place.path(name)).expect("room");
                fs::write(place.path(file), text).expect("room");
            };
            write(&format!("{name}.conf"), include_str!("sites/main.conf"));
            write(&format!("{name}/site.conf"), text);
        }
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Translates the configuration.
    pub fn import(&self) -> Output {
        let mut program = Command::new(FLASH);
        program.arg("import-nginx").arg(self.path("a.conf"));
        let program = program.arg("-o").arg(self.path("flash.toml"));
        program.output().expect("it can be executed")
    }

    pub fn text(&self) -> String {
        fs::read_to_string(self.path("flash.toml")).expect("it was written")
    }

    pub fn run_flash(&self) -> Running {
        let mut child = Command::new(FLASH)
            .arg("run")
            .arg(self.path("flash.toml"))
            .stdout(Stdio::piped())
            .stderr(fs::File::create(self.path("flash.err")).expect("room"))
            .spawn()
            .expect("it can be executed");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let running = Running(child);
        let mut said = lines.map(|line| line.expect("text"));
        let is_up = said.any(|line| line.starts_with("sandbox: "));
        let errors = || fs::read_to_string(self.path("flash.err")).unwrap_or_default();
        assert!(is_up, "{}\n{}", errors(), self.text());
        // It ends if it cannot write.
        std::thread::spawn(move || said.for_each(drop));
        running
    }

    pub fn run_nginx(&self) -> Running {
        let path = std::env::var("PATH").unwrap_or_default();
        let log = fs::File::create(self.path("nginx.err")).expect("room");
        let child = Command::new("nginx")
            .env("PATH", format!("{path}:/usr/sbin"))
            .arg("-p")
            .arg(self.path(""))
            .arg("-c")
            .arg(self.path("b.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it can be executed");
        let running = Running(child);
        let said = || fs::read_to_string(self.path("nginx.err")).unwrap_or_default();
        wait_for(|| TcpStream::connect(self.nginx).is_ok(), said);
        running
    }

    pub fn wait_for_socket(&self, name: &str) {
        let path = self.path(name);
        wait_for(|| UnixStream::connect(&path).is_ok(), || name.to_string());
    }
}

pub fn wait_for(mut holds: impl FnMut() -> bool, what: impl Fn() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{}", what());
        std::thread::sleep(Duration::from_millis(5));
    }
}

const PHP: &str = r#"<?php
header("Content-Type: text/plain");
foreach (["SCRIPT_NAME", "QUERY_STRING", "REQUEST_METHOD", "REQUEST_URI", "REMOTE_ADDR", "HTTP_HOST"] as $name) {
    echo $name, "=", $_SERVER[$name] ?? "", "\n";
}
echo strlen(file_get_contents("php://input")), "\n";
"#;

const FILES: [(&str, &str); 26] = [
    ("www/index.html", "<p>the start\n"),
    ("www/plain.txt", "a text\n"),
    ("www/app.js", "let a = 1;\n"),
    ("www/style.css", "p { color: red }\n"),
    ("www/style.css.gz", "not really compressed\n"),
    ("www/favicon.ico", "an icon\n"),
    ("www/robots.txt", "User-agent: *\n"),
    ("www/404.html", "<p>it is not here\n"),
    ("www/dir/index.html", "<p>of dir\n"),
    ("www/dir/other.html", "<p>other\n"),
    ("www/dir/sub/a.txt", "a line\n"),
    ("www/empty/.keep", ""),
    ("www/private/a.txt", "private\n"),
    ("www/public/a.txt", "public\n"),
    ("www/local/a.txt", "local\n"),
    ("www/elsewhere/a.txt", "elsewhere\n"),
    ("www/read/a.txt", "read\n"),
    ("www/assets/a.css", "a { }\n"),
    ("www/assets/a.css.gz", "not really compressed, either\n"),
    ("www/index.php", PHP),
    ("www/tool.php", PHP),
    ("static/index.html", "<p>of two\n"),
    ("static/50x.html", "<p>later\n"),
    ("static/x/a.png", "a picture\n"),
    ("media/b.jpg", "a photograph\n"),
    (
        "htpasswd",
        "ann:$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\n",
    ),
];
