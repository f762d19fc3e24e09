//! What to request, from which server, and under which conditions: common to all kinds of runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use latlab::run::Url;
use latlab::units::{parse_duration, parse_share, parse_size};
use latlab::workload::{Header, Method};

use super::values::{parse_cpus, parse_parameter};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MixOption {
    /// Static files only
    Static,
    /// 30 % dynamic: pages, advertisements by cookie, forms, CGI (latlab-dynamic serves them)
    Full,
}

/// What to request, and how.
#[derive(Args, Clone)]
pub struct What {
    /// Request the files of this set (`latlab fileset create`), which the server has below the URL
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// With --files: use only this many directories of the set, the first ones
    #[arg(long, value_name = "N", requires = "files")]
    pub directories: Option<u32>,
    /// With --files: the mix of requests
    #[arg(long, value_enum, default_value_t = MixOption::Static)]
    pub mix: MixOption,
    /// With --mix full: path of latlab-dynamic
    #[arg(long, value_name = "PATH", default_value = "/dynamic")]
    pub dynamic_prefix: String,
    /// Request what an access log (common or combined format) contains, in its order (at its times with the
    /// --log-speed of `run` and `compare`)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "urls", "sizes"])]
    pub log: Option<PathBuf>,
    /// Request the URLs or paths in this list, one per line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "sizes"])]
    pub urls: Option<PathBuf>,
    /// Request sizes drawn from this distribution: a size and a weight per line
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    pub sizes: Option<PathBuf>,
    /// With --sizes: path for a size
    #[arg(long, value_name = "PATH", default_value = "/bytes/{size}")]
    pub size_path: String,
    /// Method of the requests [default: GET, or POST with --body]
    #[arg(short = 'X', long, value_name = "METHOD", value_parser = Method::parse)]
    #[arg(conflicts_with_all = ["files", "log"])]
    pub method: Option<Method>,
    /// Header to send with each request, such as 'Accept: text/html'; may be repeated, and replaces latlab's
    /// own Host or User-Agent
    #[arg(short = 'H', long, value_name = "HEADER", value_parser = Header::parse)]
    pub header: Vec<Header>,
    /// Body of each request: text, or @FILE
    #[arg(short = 'b', long, value_name = "BODY", visible_alias = "data")]
    #[arg(allow_hyphen_values = true, conflicts_with_all = ["files", "log"])]
    pub body: Option<Body>,
    /// With https: do not check the server's certificate
    #[arg(short = 'k', long)]
    pub insecure: bool,
    /// With https: trust the authorities in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub cacert: Option<PathBuf>,
    /// Seed of the workload
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Check the content of this share of the replies, such as 1% (length and status are always checked)
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "1%")]
    pub verify: f64,
    /// Requests per connection before it is closed [default: as many as the server allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub per_connection: Option<u32>,
    /// Time limit of a request
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    pub timeout: Duration,
    /// Number of generator processes, each on one CPU
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub processes: u16,
    /// Maximum lateness of the generator itself, at the 99th percentile
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1ms")]
    pub max_lateness: Duration,
    #[command(flatten)]
    pub conditions: Conditions,
}

/// The body of requests.
#[derive(Clone)]
pub enum Body {
    Text(String),
    File(PathBuf),
}

impl From<&str> for Body {
    fn from(text: &str) -> Body {
        match text.strip_prefix('@') {
            Some(path) => Body::File(path.into()),
            None => Body::Text(text.to_string()),
        }
    }
}

impl Body {
    pub fn path(&self) -> Option<&Path> {
        match self {
            Body::Text(_) => None,
            Body::File(path) => Some(path),
        }
    }

    pub fn read(&self) -> anyhow::Result<Vec<u8>> {
        match self {
            Body::Text(text) => Ok(text.as_bytes().to_vec()),
            Body::File(path) => kit_files::input::read(path),
        }
    }
}

const STARTED: &str = "For servers that latlab starts";

/// Conditions for servers that latlab starts.
#[derive(Args, Clone)]
pub struct Conditions {
    /// File that defines more servers (latlab/docs/latlab.md)
    #[arg(help_heading = STARTED, long, value_name = "FILE")]
    pub servers: Option<PathBuf>,
    /// CPUs that the server may use, such as 0.5
    #[arg(help_heading = STARTED, long, value_name = "N", value_parser = parse_cpus)]
    pub cpus: Option<f64>,
    /// Memory that the server may use, page cache included, such as 300M
    #[arg(help_heading = STARTED, long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Drop the files from the page cache first
    #[arg(help_heading = STARTED, long)]
    pub cold: bool,
    /// Set one of the server's parameters, such as workers=4 (`latlab servers` lists them)
    #[arg(help_heading = STARTED, long, value_name = "NAME=VALUE", value_parser = parse_parameter)]
    pub set: Vec<(String, String)>,
}

/// A server that latlab starts, or one that is already running.
#[derive(Clone)]
pub enum Target {
    Server(String),
    Url(Url),
}

pub fn parse_target(text: &str) -> Result<Target, String> {
    let is_name = text != "localhost" && !text.contains([':', '/']);
    // A name without a port, a path or a dot is a server's name, although a host may have such a name.
    match is_name && !text.contains('.') {
        true => Ok(Target::Server(text.to_string())),
        false => Url::parse(text).map(Target::Url),
    }
}
