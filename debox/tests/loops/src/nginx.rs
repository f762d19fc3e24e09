// SPDX-License-Identifier: MIT OR Apache-2.0
//! nginx with one process, and clients that keep it busy.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{sleep, spawn, JoinHandle};
use std::time::{Duration, Instant};

use debox_real::{done, free_port, require};

/// Of the file that is sent.
const SIZE: usize = 4 << 20;
const LOAD: Duration = Duration::from_millis(600);
const STARTS: Duration = Duration::from_secs(10);
/// A reader that takes a page so often.
const HELD: Duration = Duration::from_millis(4);

pub struct Nginx {
    what: String,
    place: PathBuf,
    port: u16,
    reader: Option<(JoinHandle<()>, Arc<AtomicBool>)>,
}

impl Nginx {
    pub fn new(what: &str, place: &Path) -> Result<Nginx, String> {
        let port = free_port();
        let mut nginx = Nginx {
            what: what.to_string(),
            place: place.to_path_buf(),
            port,
            reader: None,
        };
        let shown = place.display();
        let pipe = place.join("pipe");
        if what.ends_with("slow-pipe") {
            nginx.reader = Some(reads_slowly(&pipe)?);
        }
        let file = File::create(place.join("file")).and_then(|mut file| {
            file.write_all(&vec![b'x'; SIZE])?;
            file.sync_all()
        });
        file.map_err(|error| error.to_string())?;
        // A line of the log fills most of what a pipe takes.
        let long = "x".repeat(3000);
        let errors = match what {
            "complains-to-a-slow-pipe" => format!("error_log {} info;", pipe.display()),
            _ => format!("error_log {shown}/errors;"),
        };
        let log = match what {
            "logs" => format!("access_log {shown}/log;"),
            "logs-to-a-slow-pipe" => format!(
                "log_format long '$uri {long}'; access_log {} long;",
                pipe.display()
            ),
            _ => "access_log off;".to_string(),
        };
        let serves = match what {
            "sends-files" | "sends-cold-files" => {
                format!("root {shown}; sendfile on; sendfile_max_chunk 1m;")
            }
            "reads-cold-files" => format!("root {shown}; sendfile off; output_buffers 1 1m;"),
            "reads-past-the-cache" => format!("root {shown}; directio 512; output_buffers 1 1m;"),
            "compresses" => format!(
                "gzip on; gzip_types *; gzip_min_length 1; return 200 '{}';",
                "text ".repeat(500)
            ),
            "passes-on" => format!("proxy_pass http://127.0.0.1:{port}/other;"),
            // Each is a line of the error log.
            "complains-to-a-slow-pipe" => format!("root {shown}/none{};", "x".repeat(200)),
            _ => "return 200 'yes';".to_string(),
        };
        let configuration = format!(
            "daemon off; pid {shown}/pid; user root; worker_processes 1; {errors}
            events {{ worker_connections 512; }}
            http {{
                {log}
                client_body_temp_path {shown}/body; proxy_temp_path {shown}/proxy; fastcgi_temp_path {shown}/fastcgi;
                uwsgi_temp_path {shown}/uwsgi; scgi_temp_path {shown}/scgi;
                server {{
                    listen 127.0.0.1:{port};
                    location / {{ {serves} }}
                    location /other {{ return 200 'other'; }}
                }}
            }}"
        );
        let path = place.join("nginx.conf");
        fs::write(path, configuration).map_err(|error| error.to_string())?;
        Ok(nginx)
    }

    pub fn command(&self) -> [PathBuf; 5] {
        let configuration = self.place.join("nginx.conf");
        let errors = self.place.join("first-errors");
        [
            require("nginx"),
            "-c".into(),
            configuration,
            "-e".into(),
            errors,
        ]
    }

    /// Asks for a while, from the moment it answers.
    pub fn load(&self) {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let limit = Instant::now() + STARTS;
        while TcpStream::connect(address).is_err() && Instant::now() < limit {
            sleep(Duration::from_millis(5));
        }
        let until = Instant::now() + LOAD;
        while Instant::now() < until {
            if self.what.contains("cold") {
                self.evict();
            }
            // A server that is blocked for longer than the load is late, and that is what was planted.
            let asked = TcpStream::connect(address).and_then(|mut server| {
                server.set_read_timeout(Some(LOAD))?;
                server.write_all(b"GET /file HTTP/1.0\r\n\r\n")?;
                server.read_to_end(&mut Vec::new())
            });
            let _ = asked;
        }
    }

    fn evict(&self) {
        let file = File::open(self.place.join("file")).expect("it was made");
        // SAFETY: the descriptor is open, and nothing is passed by address.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if let Some((reader, ends)) = self.reader.take() {
            ends.store(true, Ordering::Relaxed);
            let _ = reader.join();
        }
    }
}

/// A pipe as small as can be, of which a page is read every few milliseconds.
fn reads_slowly(pipe: &Path) -> Result<(JoinHandle<()>, Arc<AtomicBool>), String> {
    done(std::process::Command::new("mkfifo").arg(pipe))?;
    // Open for writing, too: then it does not end when nginx has opened it and gone.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(pipe);
    let mut file = file.map_err(|error| error.to_string())?;
    // SAFETY: the descriptor is open, and the argument is a number.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    let ends = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&ends);
    let reader = spawn(move || {
        let mut page = [0; 4096];
        while !ended.load(Ordering::Relaxed) {
            let _ = file.read(&mut page);
            sleep(HELD);
        }
    });
    Ok((reader, ends))
}
