//! Serves the dynamic requests of the full mix behind any server: as a FastCGI responder, or as a CGI
//! program if a server (or, for `/cgi/`, this program itself) starts it as one.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use anyhow::{bail, Context, Result};
use clap::Parser;
use kit_console::{say, Allowed};
use latlab::dynamic::{page, Page, Visitor};
use latlab::fastcgi::{self, Request};
use latlab::fileset::{self, File, FileSet};

/// Environment variables that replace the command line of a CGI process.
const FILES: &str = "LATLAB_FILES";
const POST_LOG: &str = "LATLAB_POST_LOG";
/// Exit status of a failure.
const FAILED: u8 = 1;

#[derive(Parser)]
#[command(name = "latlab-dynamic", version, max_term_width = 100)]
#[command(
    about = "Serves the dynamic requests of latlab's full mix, over FastCGI or as a CGI program"
)]
#[command(
    after_help = "Example:\n  latlab-dynamic --files /srv/files --listen /run/latlab.sock\n\n\
    In nginx: location /dynamic/ { include fastcgi_params; fastcgi_pass unix:/run/latlab.sock; }\n\
    In Apache: ProxyPassMatch ^/dynamic/ unix:/run/latlab.sock|fcgi://localhost/\n\
    Started by a server as a CGI program it takes LATLAB_FILES and LATLAB_POST_LOG from the environment."
)]
struct Options {
    /// The file set (`latlab fileset create`)
    #[arg(long, value_name = "DIR")]
    files: PathBuf,
    /// Address to listen on: the path of a Unix socket, or ADDRESS:PORT
    #[arg(long, value_name = "WHERE")]
    listen: String,
    /// Append posted forms to this file
    #[arg(long, value_name = "FILE")]
    post_log: Option<PathBuf>,
    /// Requests that are served at the same time, at most
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    workers: u16,
}

/// What answers are made from.
struct Answers {
    set: FileSet,
    files: PathBuf,
    post_log: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match std::env::var_os("GATEWAY_INTERFACE") {
        Some(_) => serve_as_cgi(),
        None => match kit_console::parse("latlab-dynamic", FAILED) {
            Ok(options) => serve(options),
            Err(status) => return ExitCode::from(status),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            kit_console::say_error("latlab-dynamic", &format!("{error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

fn serve(options: Options) -> Result<()> {
    let answers = Arc::new(Answers {
        set: fileset::load(&options.files)?,
        files: options.files,
        post_log: options.post_log,
    });
    let place = &options.listen;
    let cannot = || format!("cannot listen at {place}");
    if place.contains('/') {
        remove_old_socket(Path::new(place))?;
        let listener = UnixListener::bind(place).with_context(cannot)?;
        // The server runs as another user.
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o666))?;
        let listener = Arc::new(listener);
        run_workers(options.workers, answers, move || Ok(listener.accept()?.0))
    } else {
        let listener = Arc::new(TcpListener::bind(place).with_context(cannot)?);
        run_workers(options.workers, answers, move || Ok(listener.accept()?.0))
    }
}

/// Removes a socket on which no process listens any more.
fn remove_old_socket(path: &Path) -> Result<()> {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

fn run_workers<S: Read + Write>(
    count: u16,
    answers: Arc<Answers>,
    accept: impl Fn() -> io::Result<S> + Clone + Send + 'static,
) -> Result<()> {
    let mut workers = Vec::new();
    for _ in 0..count {
        let (answers, accept) = (Arc::clone(&answers), accept.clone());
        let worker = std::thread::Builder::new().spawn(move || loop {
            match accept() {
                // A server that closes the connection early is no error here.
                Ok(mut stream) => drop(serve_connection(&mut stream, &answers)),
                Err(error) => {
                    say!("latlab-dynamic: cannot accept a connection: {error}");
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
            }
        });
        workers.push(worker.context("cannot start a thread")?);
    }
    for worker in workers {
        if worker.join().is_err() {
            bail!("a worker ended");
        }
    }
    Ok(())
}

fn serve_connection(stream: &mut (impl Read + Write), answers: &Answers) -> io::Result<()> {
    while let Some(request) = fastcgi::read_request(stream)? {
        let answer = answers.answer(&request);
        fastcgi::write_answer(stream, &request, &answer)?;
        if !request.keeps_connection() {
            break;
        }
    }
    Ok(())
}

impl Answers {
    fn answer(&self, request: &Request) -> Vec<u8> {
        let uri = request.param("REQUEST_URI").unwrap_or("");
        let done = match Asked::parse(uri) {
            Some(asked) if asked.page == Page::Cgi => self.through_cgi(uri),
            Some(asked) => self.page(asked, request.param("HTTP_COOKIE"), &request.body),
            None => Ok(b"Status: 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()),
        };
        done.unwrap_or_else(|error| {
            let text = format!("{error:#}\n");
            say!("latlab-dynamic: {uri}: {error:#}");
            let length = text.len();
            format!("Status: 500 Internal Server Error\r\nContent-Length: {length}\r\n\r\n{text}")
                .into_bytes()
        })
    }

    fn page(&self, asked: Asked, cookie: Option<&str>, body: &[u8]) -> Result<Vec<u8>> {
        let form = String::from_utf8_lossy(body);
        let visitor = match asked.page {
            Page::Post => Visitor::parse(&form),
            _ => Visitor::parse(cookie.unwrap_or("")),
        };
        if asked.page == Page::Post {
            self.log(asked.file, &form)?;
        }
        let path = self.files.join(asked.file.path());
        let file =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (before, after) = page(asked.page, asked.file, visitor, self.set);
        let length = before.len() + file.len() + after.len();
        let mut answer = Vec::with_capacity(length + 256);
        write!(
            answer,
            "Status: 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n"
        )?;
        if matches!(asked.page, Page::Ad | Page::Post) {
            let ad = visitor.next_ad(self.set);
            write!(answer, "Set-Cookie: last_ad={ad}; Path=/\r\n")?;
        }
        answer.extend_from_slice(b"\r\n");
        answer.extend_from_slice(before.as_bytes());
        answer.extend_from_slice(&file);
        answer.extend_from_slice(after.as_bytes());
        Ok(answer)
    }

    /// Writes each line with one write, so that lines of several threads do not mix.
    fn log(&self, file: File, form: &str) -> Result<()> {
        let Some(path) = &self.post_log else {
            return Ok(());
        };
        let form: String = form.chars().filter(|c| !c.is_control()).take(200).collect();
        let line = format!("{} {} {form}\n", latlab::sys::realtime_ns(), file.path());
        let log = OpenOptions::new().append(true).create(true).open(path);
        log.and_then(|mut log| log.write_all(line.as_bytes()))
            .with_context(|| format!("cannot append to {}", path.display()))
    }

    /// Starts a process for each request, as SPECweb99 requires.
    fn through_cgi(&self, uri: &str) -> Result<Vec<u8>> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let ran = Command::new(program)
            .env_clear()
            .env("GATEWAY_INTERFACE", "CGI/1.1")
            .env("REQUEST_METHOD", "GET")
            .env("REQUEST_URI", uri)
            .env(FILES, &self.files)
            .stdin(Stdio::null())
            .output()
            .context("cannot start the CGI program")?;
        if !ran.status.success() {
            bail!(
                "the CGI program failed: {}",
                String::from_utf8_lossy(&ran.stderr)
            );
        }
        Ok(ran.stdout)
    }
}

/// What the path requests.
struct Asked {
    page: Page,
    file: File,
}

impl Asked {
    /// `/any/prefix/ad/dir00000/class1_2`
    fn parse(uri: &str) -> Option<Asked> {
        let path = uri.split('?').next().unwrap_or("");
        let file = File::from_path(path)?;
        let page = path.rsplit('/').nth(2).and_then(Page::from_name)?;
        Some(Asked { page, file })
    }
}

fn serve_as_cgi() -> Result<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let files = PathBuf::from(variable(FILES));
    let answers = Answers {
        set: fileset::load(&files).with_context(|| format!("{FILES} has to name the file set"))?,
        files,
        post_log: std::env::var_os(POST_LOG).map(PathBuf::from),
    };
    let mut body = Vec::new();
    if variable("REQUEST_METHOD") == "POST" {
        io::stdin().take(1 << 20).read_to_end(&mut body)?;
    }
    let answer = match Asked::parse(&variable("REQUEST_URI")) {
        Some(asked) => answers.page(asked, Some(&variable("HTTP_COOKIE")), &body)?,
        None => b"Status: 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
    };
    kit_console::print(Allowed::Anything, |out| out.write_all(&answer))?;
    Ok(())
}
