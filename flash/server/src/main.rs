// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flash`: serves files over HTTP.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, CommandFactory, Parser};
use kit_console::manual::{self, Completions, Man};
use kit_console::{say, Allowed};
use kit_units::{parse_duration, parse_size};

use flash::address::Address;
use flash::context::Options;
use flash::log::Format;
use flash::nginx::{self, command::ImportOptions};
use flash::path_server::command::{self, PathServerOptions};
use flash::server::{room_for_connections, Caller, Plan, Server, HELPERS};
use flash::sites::{FileOptions, TlsListen, VirtualHost};
use flash::stages::command::StagesOptions;
use flash::stages::{self, Stage};
use flash::systemd::Passed;
use flash::tls::{Pair, Settings};
use flash::unix::{self, Owner};
use flash::user::{self, Identity};
use flash::{config, control, huge_pages};

/// Frees memory that another thread has allocated without a lock. glibc frees it under the lock of that thread's arena: a loop
/// waited for a helper that had it and no CPU.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Connections open at once, unless the command line says otherwise.
const CONNECTIONS: usize = 10_000;

/// Exit status of a failure.
const FAILED: u8 = 1;

#[derive(Parser)]
#[command(name = "flash", version, max_term_width = 100)]
#[command(about = "A web server whose event loops wait for events, and for nothing else")]
struct Cli {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    /// Serve the files below a directory
    #[command(after_help = "Examples:\n  flash serve /srv/www\n  \
        flash serve . --listen 0.0.0.0:8080 --list --log access.log --metrics 127.0.0.1:9090\n  \
        flash serve /srv/www --tls-listen '[::]:443' --tls-cert a.pem --tls-key a.key\n\n\
        Ends on SIGTERM and SIGINT after the requests that are there; SIGHUP opens the access log again \
        and loads the certificates again.")]
    Serve(Box<Serve>),
    /// Serve what a configuration file says
    #[command(after_help = "Example:\n  flash run flash.toml\n\n\
        Ends on SIGTERM and SIGINT after the requests that are there; SIGHUP loads the file again, with its \
        certificates and users, resolves the names of upstreams and opens the access log again.")]
    Run(File),
    /// Check a configuration file, with the directories, pages and certificates that it names
    #[command(after_help = "Example:\n  flash check flash.toml")]
    Check(File),
    /// Translate nginx's configuration
    #[command(
        after_help = "Example:\n  flash import-nginx /etc/nginx/nginx.conf -o flash.toml\n\n\
        Names each directive that is left out or translated in part, with its file and line. Exit status: 0 if there is \
        none and the new file passes `flash check`, 2 if there are some, 1 if nothing was written."
    )]
    ImportNginx(ImportOptions),
    /// Open files for other servers, so that these need not wait for the disk (Flashpache)
    #[command(after_help = "Example:\n  \
        flash path-server --listen unix:/run/flash-paths.sock --root /srv/www --user www-data\n\n\
        Ends on SIGTERM and SIGINT; SIGHUP closes the names that are kept open.")]
    PathServer(Box<PathServerOptions>),
    /// List the stages of Flash's history, which `flash serve --stage` serves
    Stages(StagesOptions),
    /// Write the manual pages
    Man(Man),
    /// Print the completions of a shell
    Completions(Completions),
}

#[derive(Args)]
struct File {
    /// Configuration file (TOML)
    file: PathBuf,
}

#[derive(Args)]
struct Serve {
    /// Directory whose files are served
    directory: PathBuf,
    /// Address to listen at; can be given more than once [default: 127.0.0.1:8080, unless there is --tls-listen]
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH|systemd:NAME")]
    listen: Vec<Address>,
    /// Address to listen at for HTTPS; can be given more than once
    #[arg(long, value_name = "ADDRESS:PORT", requires_all = ["tls_cert", "tls_key"])]
    tls_listen: Vec<Address>,
    /// PEM file with a certificate and those that lead to its issuer; one for each --tls-key
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    tls_cert: Vec<PathBuf>,
    /// PEM file with the key of the --tls-cert that has the same place
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    tls_key: Vec<PathBuf>,
    /// Show the names in directories that have no index
    #[arg(long)]
    list: bool,
    /// Name of the file that a directory shows
    #[arg(long, value_name = "NAME", default_value = "index.html")]
    index: String,
    /// Send FILE.br, FILE.zst or FILE.gz in place of FILE to clients that take it
    #[arg(long)]
    precompressed: bool,
    /// Append a line for each request to this file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Format of these lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Combined)]
    log_format: Format,
    /// Serve /status, and counters in the format of Prometheus as /metrics, at this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<Address>,
    /// Mode of Unix sockets, in octal digits
    #[arg(long, value_name = "MODE", default_value = "660", value_parser = unix::parse_mode)]
    unix_mode: u32,
    /// Owner of Unix sockets [default: the user who starts flash]
    #[arg(long, value_name = "NAME[:GROUP]")]
    unix_owner: Option<Owner>,
    /// User, and group, whose rights the server has once its ports are open; for a start as root
    #[arg(long, value_name = "NAME[:GROUP]")]
    user: Option<Identity>,
    /// Do not limit the threads to the files and system calls that they need
    #[arg(long)]
    no_sandbox: bool,
    #[command(flatten)]
    stage: OfStage,
    /// Event loops [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    loops: Option<u16>,
    /// Threads that may wait for the disk, at most
    #[arg(long, value_name = "N", default_value_t = HELPERS as u16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    helpers: u16,
    /// Connections open at once [default: 10,000, or as many as the limit of open files allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,
    /// How long a connection without a request is kept
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    idle: Duration,
    /// How long a TLS handshake may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    handshake: Duration,
    /// How long a request's head may take to come
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    head: Duration,
    /// How long the disk may take before the answer is 503
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    disk: Duration,
    /// How long the requests that are there have to end when the server ends
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    grace: Duration,
}

/// How a loop opens and sends files.
#[derive(Args)]
struct OfStage {
    /// Serve as an earlier Flash did, to see what it waits for (`flash stages` lists them) [default: today]
    #[arg(long, value_name = "NAME", value_parser = stages::find)]
    stage: Option<&'static Stage>,
    /// Files kept open [default: none; 1024 in the stages before today's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    open_files: Option<u32>,
    /// How long a file that is kept open is used before its name is looked up again
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    open_file_check: Duration,
    /// Stages no-mmap and direct-cgi: bytes of files that are taken to be in memory [default: a quarter of the memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    assumed_memory: Option<u64>,
    /// Bytes of files that are kept for a second on file systems that do not tell what is in memory, as overlayfs; 0 for none [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    kept_bytes: Option<u64>,
}

impl OfStage {
    fn settings(&self) -> stages::Settings {
        let usual = stages::Settings::default();
        stages::Settings {
            stage: self.stage.unwrap_or(usual.stage),
            open_files: self.open_files.map(|number| number as usize),
            check_ms: ms(self.open_file_check),
            memory: self.assumed_memory.unwrap_or(usual.memory),
            kept: self.kept_bytes.unwrap_or(usual.kept),
        }
    }
}

fn main() -> ExitCode {
    huge_pages::avoid();
    let cli = match kit_console::parse::<Cli>("flash", FAILED) {
        Ok(cli) => cli,
        Err(status) => return ExitCode::from(status),
    };
    let done = match cli.subcommand {
        Subcommand::ImportNginx(options) => match nginx::command::run(&options) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => Err(error),
        },
        Subcommand::Serve(arguments) => serve(*arguments),
        Subcommand::Run(File { file }) => run(&file),
        Subcommand::Check(arguments) => check(&arguments.file),
        Subcommand::PathServer(options) => command::run(*options),
        Subcommand::Stages(options) => stages::command::run(&options),
        Subcommand::Man(arguments) => manual::man(Cli::command(), &arguments).map_err(Into::into),
        Subcommand::Completions(arguments) => {
            manual::completions(&mut Cli::command(), &arguments).map_err(Into::into)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            kit_console::say_error("flash", &format!("{error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

fn serve(arguments: Serve) -> Result<()> {
    let loops = loops(arguments.loops.map(usize::from));
    let stages = arguments.stage.settings();
    let wanted = arguments.connections.map(|wanted| wanted as usize);
    let connections = connections(wanted, loops, stages.open_files())?;
    let files = FileOptions {
        index: vec![arguments.index],
        lists: arguments.list,
        precompressed: arguments.precompressed,
        ..FileOptions::default()
    };
    let (certs, keys) = (arguments.tls_cert, arguments.tls_key);
    if certs.len() != keys.len() {
        let (certs, keys) = (certs.len(), keys.len());
        anyhow::bail!("each --tls-cert needs a --tls-key: there are {certs} and {keys}");
    }
    let pairs = certs.into_iter().zip(keys);
    let settings = Settings {
        pairs: pairs.map(|(cert, key)| Pair { cert, key }).collect(),
    };
    let tls: Vec<TlsListen> = arguments
        .tls_listen
        .into_iter()
        .map(|address| TlsListen {
            address,
            settings: settings.clone(),
        })
        .collect();
    let mut listen = arguments.listen;
    if listen.is_empty() && tls.is_empty() {
        listen.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080).into());
    }
    let host = VirtualHost::of_directory(arguments.directory, listen, files);
    let plan = Plan {
        hosts: vec![VirtualHost { tls, ..host }],
        metrics: arguments.metrics,
        unix: unix::Settings {
            mode: arguments.unix_mode,
            owner: arguments.unix_owner.unwrap_or_default(),
        },
        passed: Passed::take()?,
        loops,
        helpers: usize::from(arguments.helpers),
        log: arguments.log,
        user: arguments.user,
        is_sandboxed: !arguments.no_sandbox,
        caller: Caller::Process,
        options: Options {
            max_connections: connections.div_ceil(loops),
            max_handshakes: connections.div_ceil(loops).div_ceil(2),
            handshake_ms: ms(arguments.handshake),
            idle_ms: ms(arguments.idle),
            head_ms: ms(arguments.head),
            helper_ms: ms(arguments.disk),
            grace_ms: ms(arguments.grace),
            log_format: arguments.log_format,
            stages,
            ..Options::default()
        },
    };
    start(plan, None)
}

fn run(file: &Path) -> Result<()> {
    let passed = Passed::take()?;
    let plan = || plan_of(file, passed.clone());
    start(plan()?, Some(&plan))
}

/// What a configuration file says.
fn plan_of(file: &Path, passed: Passed) -> Result<Plan> {
    let (config, hosts) = config::read(file)?;
    let loops = loops(config.loops.map(|number| number.0));
    let usual = Options::default();
    let stages = config.stages();
    let wanted = config.connections.map(|number| number.0);
    let connections = connections(wanted, loops, stages.open_files())?;
    let or = |time: Option<config::Time>, usual| time.map_or(usual, |time| ms(time.0));
    let times = &config.timeouts;
    let directory = file.parent().unwrap_or(Path::new(""));
    Ok(Plan {
        hosts,
        metrics: config.metrics.map(|address| address.0.below(directory)),
        unix: config.unix.settings(),
        passed,
        loops,
        helpers: config.helpers.map_or(HELPERS, |number| number.0),
        log: config.log.map(|path| directory.join(path)),
        user: config.user.map(|user| user.0),
        is_sandboxed: config.sandbox,
        caller: Caller::Reloads,
        options: Options {
            max_head: config.head_size.map_or(usual.max_head, |size| size.0),
            max_connections: connections.div_ceil(loops),
            max_handshakes: connections.div_ceil(loops).div_ceil(2),
            handshake_ms: or(times.handshake, usual.handshake_ms),
            idle_ms: or(times.idle, usual.idle_ms),
            head_ms: or(times.head, usual.head_ms),
            helper_ms: or(times.disk, usual.helper_ms),
            send_ms: or(times.send, usual.send_ms),
            grace_ms: or(times.grace, usual.grace_ms),
            passwords: config.passwords.over(usual.passwords),
            limits: config.limits.settings(),
            log_format: config.log_format,
            stages,
            ..usual
        },
    })
}

fn check(file: &Path) -> Result<()> {
    flash::check::file(file)?;
    kit_console::print(Allowed::Text, |out| {
        writeln!(out, "{} is correct", file.display())
    })?;
    Ok(())
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn loops(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// `open_files`: that are no connection's.
fn connections(wanted: Option<usize>, loops: usize, open_files: usize) -> Result<usize> {
    let room = room_for_connections(loops, open_files);
    match wanted {
        None => Ok(room.min(CONNECTIONS)),
        Some(wanted) if wanted <= room => Ok(wanted),
        Some(wanted) => anyhow::bail!(
            "the limit of open files leaves room for {room} connections, not for {wanted}: raise it (ulimit -n, \
             LimitNOFILE=)"
        ),
    }
}

/// Serves a plan until a signal ends it. `again`: reads it again.
fn start(plan: Plan, again: Option<&dyn Fn() -> Result<Plan>>) -> Result<()> {
    let signals = control::signals()?;
    let stage = plan.options.stages.stage;
    let server = Server::start(plan)?;
    for warning in server.warnings() {
        say!("{warning}");
    }
    if user::is_root() {
        say!("runs as root: --user NAME gives up root's rights once the ports are open");
    }
    kit_console::print(Allowed::Text, |out| {
        for url in server.urls() {
            writeln!(out, "serving at {url}")?;
        }
        for url in server.counts_urls() {
            writeln!(out, "counters at {url}")?;
        }
        if stage.name != Stage::today().name {
            writeln!(
                out,
                "stage: {}, which waits on purpose (flash stages)",
                stage.name
            )?;
        }
        writeln!(out, "sandbox: {}", server.sandbox())
    })?;
    control::run(server, &signals, again)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        manual::check(&Cli::command());
    }
}
