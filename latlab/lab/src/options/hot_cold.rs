//! The options of `latlab hot-cold`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use latlab::units::{parse_duration, parse_share, parse_size};

use super::values::{parse_level, parse_rate};
use super::Format;

#[derive(Args)]
pub struct HotCold {
    /// Names of servers (`latlab servers`) [default: flash nginx nginx-tuned apache-event lighttpd h2o caddy, as far
    /// as they are installed]
    #[arg(value_name = "SERVER")]
    pub names: Vec<String>,
    /// New directory for the figures and the rows of all runs
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Measure two levels once, for a short time. Figures are rough
    #[arg(long)]
    pub quick: bool,
    /// Rates of cold requests, as parts of what the disk can do [default: 0,0.25,0.5,0.75,1; 0,1 with --quick]; 0 is
    /// always measured
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', value_parser = parse_level)]
    pub levels: Vec<f64>,
    /// Hot requests per second
    #[arg(long, value_name = "RPS", value_parser = parse_rate, default_value = "2000")]
    pub hot_rate: f64,
    /// The part of the cold names that do not exist
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "20%")]
    pub missing: f64,
    /// Number of hot files
    #[arg(long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=90_000))]
    pub hot_files: u32,
    /// Size of each hot file
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "8K")]
    pub hot_size: u64,
    /// Size of each cold file, at least 8K
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "8K")]
    pub cold_size: u64,
    /// Time that the disk takes for each of its reads
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5ms")]
    pub service: Duration,
    /// Reads that the disk serves at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub depth: u32,
    /// Cold names that are asked for at the same time to find out what the disk can do
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub outstanding: u32,
    /// Maximum number of connections
    #[arg(short, long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// Number of times to measure each level of each server [default: 3, 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: Option<u32>,
    /// Duration of each run, warm-up included [default: 10s, 4s with --quick]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Warm-up, which is not counted
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, default_value = "1s")]
    pub warmup: Duration,
    /// Maximum lateness of the generator itself, at the 99th percentile
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1ms")]
    pub max_lateness: Duration,
    /// Directory in which the files and the disk are created, and removed again; servers that do not run as root
    /// need access to it
    #[arg(long, value_name = "DIR", default_value = crate::study::PLACE)]
    pub place: PathBuf,
    /// Seed of the requests
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// File that defines more servers (latlab/docs/latlab.md)
    #[arg(long, value_name = "FILE")]
    pub servers: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}
