//! The command line.

mod format;
mod hot_cold;
mod values;
mod what;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use kit_console::manual::{Completions, Man};

use latlab::programmed::{parse_fault, Fault, Service};
use latlab::units::{parse_duration, parse_share, parse_size};

pub use self::format::Format;
pub use self::hot_cold::HotCold;
pub use self::values::parse_cpus;
use self::values::{parse_load, parse_rate, parse_speed, parse_vary, Vary};
use self::what::parse_target;
pub use self::what::{Body, Conditions, MixOption, Target, What};

#[derive(Parser)]
#[command(name = "latlab", version, about, max_term_width = 100)]
#[command(about = "Finds out where the latency of an HTTP server comes from")]
#[command(
    after_help = "Examples:\n  latlab fileset create /srv/files --size 1G\n  \
    latlab run nginx --files /srv/files --rate 2000 -o rows.parquet   # starts nginx itself\n  \
    latlab analyze rows.parquet\n  \
    latlab profile nginx --files /srv/files --loads 0.2,0.5,0.8,0.95 -o profile\n  \
    latlab compare nginx apache-event --files /srv/files --rate 2000\n  \
    latlab study -o study"
)]
pub struct Cli {
    #[command(subcommand)]
    pub subcommand: Subcommand,
}

#[derive(clap::Subcommand)]
pub enum Subcommand {
    /// Create the files for a server to serve
    #[command(subcommand)]
    Fileset(Fileset),
    /// Put load on a server, and keep every request
    #[command(
        after_help = "Examples:\n  latlab run http://localhost/ --connections 100 --duration 30s\n  \
        latlab run http://localhost/ --files /srv/files --rate 2000 -o rows.parquet\n  \
        latlab run http://localhost/ --files /srv/files --mix full --rate 1000,2000,4000 --duration 30s\n  \
        latlab run http://localhost/ --log access.log --log-speed 10\n  \
        latlab run https://localhost/login -X PUT -H 'Content-Type: application/json' --body @login.json\n\n\
        Without --rate the loop is closed: each connection asks again when its reply has come. With \
        --rate it is open: requests are intended to start at that rate whatever the server does, and \
        latency is counted from there, so that a server that stalls cannot hide it.\n\n\
        What is asked for: the URL itself, or what --files (below the URL), --log, --urls or --sizes \
        name. Redirects are counted, and not followed. On a terminal the rate and the latency of the last \
        half second are shown while it runs.\n\n\
        Exit status: 0; 3 if the figures are not the server's (the generator was the bottleneck, or was \
        ended, or no request was answered well), which the output and the rows say, too; 125 if latlab failed; 2 for a usage error."
    )]
    Run(Run),
    /// Find a server's capacity: a rate that it serves, and a slightly higher one that it does not
    #[command(
        after_help = "Example:\n  latlab capacity http://localhost/ --files /srv/files --connections 256\n\n\
        Closed loops without thinking come first, again and again. From what they get rates are tried in open \
        loops until one that is served and one that is not are 5 % apart or less. A rate is served if 98 % of \
        the requests that begin end in the same time, and 1 % fail at most; it is not if that is so twice. \
        Loads of `profile` and `study` are parts of the rate that is served.\n\n\
        Exit status: as with `latlab run`."
    )]
    Capacity(Capacity),
    /// Measure latency at loads relative to the server's own capacity
    #[command(
        after_help = "Example:\n  latlab profile http://localhost/ --files /srv/files --loads 0.2,0.5,0.8,0.95 -o profile\n\n\
        Finds the capacity first, unless --capacity says it; then each load in an open loop, all loads in \
        turn in each repeat, so that a slow minute of the machine does not harm one load alone. The \
        directory gets the rows of each run, and summary.json.\n\n\
        Exit status: as with `latlab run`."
    )]
    Profile(Profile),
    /// Find out how many simultaneous connections a server serves well, as SPECweb99 counts them
    #[command(
        after_help = "Example:\n  latlab conform nginx --files /srv/files --mix full --most 2000\n\n\
        Each connection asks for 400,000 bits in a second and conforms if it gets 320,000. A number of \
        connections is served well if 95 % of them conform and fewer than 1 % of the requests fail. The \
        file set grows with the number (formula 1.1), for which its directory has to be writable, unless \
        --fixed-set is given. The number is doubled until it is too large, then halved in between.\n\n\
        Exit status: as with `latlab run`."
    )]
    Conform(Conform),
    /// Measure two servers in turn, and show what differs
    #[command(
        after_help = "Examples:\n  latlab compare nginx apache-event --files /srv/files\n  \
        latlab compare nginx nginx-tuned --files /srv/files --rate 2000 --cpus 0.5 --memory 300M --cold\n  \
        latlab compare http://old/ http://new/ --log access.log --log-speed 1\n\n\
        Each repeat measures both, the second first in every other one; servers that latlab starts are \
        started again each time. Of two equal servers the table shows any difference with a probability of \
        --error-rate at most; for 5 % that takes 6 repeats, and more for differences that are not clear.\n\n\
        Exit status: as with `latlab run`."
    )]
    Compare(Compare),
    /// Measure a server with several values of one of its parameters, such as its workers
    #[command(
        after_help = "Examples:\n  latlab sweep nginx --vary workers=1,2,4,8 --files /srv/files --rate 500\n  \
        latlab sweep nginx-tuned --vary threads=1,4,16,64 --files /mnt/slow --cold --memory 100M --blocking\n  \
        latlab sweep nginx --vary cpus=0.25,0.5,1 --load 0.8 --files /srv/files\n\n\
        Each value is measured in each repeat, in turn. What is varied is a parameter of the server \
        (`latlab servers`), or what it may use: cpus, memory. With --load the capacity is measured for each \
        value, and latency at that part of it: how a server scales with the processor's speed. With \
        --blocking DeBox records the server (needs root, and costs the server time), and the table has how \
        often its threads slept for something else than events, for each thousand requests, and for how \
        long.\n\n\
        Exit status: as with `latlab run`."
    )]
    Sweep(Sweep),
    /// Remove what a killed latlab has left, and convert its rows to Parquet
    #[command(
        after_help = "Examples:\n  latlab recover\n  latlab recover .latlab-run-1234-Wx3hQa -o rows.parquet\n\n\
        Without a SPOOL: ends servers that a killed latlab had started and that did not end with it (those whose \
        number and start it noted, and those that carry its mark in their environment; others are never \
        touched), removes its control groups and temporary directories, takes down the disks of its studies, \
        and says so. Rows are left where they are, and told of. The next run does the same by itself. As \
        root it finds what root has left, with the same TMPDIR.\n\n\
        With a SPOOL, makes Parquet of it. While the load runs, rows are in a directory beside the file that they are to be in (without -o: among \
        the temporary files). Where latlab itself is killed they stay there. The file says that the run was \
        not gone through to its end, and `latlab analyze` does, too."
    )]
    Recover(Recover),
    /// Measure how latency, fairness and burstiness grow with the load on a slow disk, and show why
    #[command(
        after_help = "Examples:\n  latlab study -o study                        # nginx (two ways) and Apache, some 20 minutes\n  \
        latlab study --quick -o study                # three minutes, to see how it goes\n  \
        latlab study nginx nginx-tuned lighttpd --size 1G --memory 300M --service 8ms -o study\n\n\
        The finding of the papers in one command: makes a file set, puts it on a slow disk, confines each \
        server to less memory than the set has, measures its capacity, then latency at parts of that \
        capacity in turn, and makes one more run that DeBox records, for the reasons alone. All of it is \
        taken down again, also when it fails or is ended. The directory gets study.html, study.json, \
        study.md and the rows of all runs. The capacity is an interval (`latlab capacity --help`). Needs root; latlab/docs/latlab-finding.md says how to read it.\n\n\
        Exit status: as with `latlab run`."
    )]
    Study(Study),
    /// Measure how much requests for files that the disk has to bring delay requests for files in memory
    #[command(
        after_help = "Examples:\n  latlab hot-cold -o hot-cold                      # all servers that are installed\n  \
        latlab hot-cold --quick -o hot-cold               # two levels, once: to see how it goes\n  \
        latlab hot-cold flash nginx-tuned --service 100ms --levels 0,0.5,1 -o hot-cold\n\n\
        Two classes of requests arrive in one open loop. Hot ones are for files that are in memory, at a fixed rate. \
        Cold ones are for names that have not been looked up since the file system was mounted, on a slow disk; a \
        part of these names does not exist. The levels are parts of the rate at which the disk can look up and read \
        cold names, which is measured first. For each run the disk is mounted again and the server started again. The \
        directory gets hot-cold.json, hot-cold.txt and the rows of all runs. Needs root; latlab/docs/latlab-hot-cold.md \
        says how to read it.\n\n\
        Exit status: as with `latlab run`; 3 also if hot files were not in memory or cold names were."
    )]
    HotCold(HotCold),
    Analyze(latlab_analysis::command::Analyze),
    Disk(latlab_disk::Options),
    /// List the servers that latlab can start
    #[command(after_help = "Example:\n  latlab servers --servers mine.toml")]
    Servers(Servers),
    /// Serve with programmed service times and faults, to test a load generator
    #[command(
        after_help = "Example:\n  latlab server --listen 127.0.0.1:8080 --service stall:1ms/1000 --fault reset/500\n\n\
        Answers / (a few bytes), /bytes/N, and the paths of a file set and its dynamic pages."
    )]
    Server(Server),
    /// Generate load as a part of a run
    #[command(hide = true)]
    Worker,
    /// Write the manual pages
    #[command(hide = true)]
    Man(Man),
    /// Print a shell's completions
    #[command(hide = true)]
    Completions(Completions),
}

#[derive(clap::Subcommand)]
pub enum Fileset {
    /// Write the files, or those that are missing
    #[command(
        after_help = "Examples:\n  latlab fileset create /srv/files --size 1G\n  \
        latlab fileset create /srv/files --for-connections 400\n\n\
        Directories of 36 files, 5 MB each, as SPECweb99 has them; what is in them follows from the seed. \
        A set can grow, and one that was interrupted is gone on with."
    )]
    Create(Create),
}

#[derive(Args)]
pub struct Create {
    /// Directory of the file set
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Approximate size in bytes, such as 500M or 3G
    #[arg(long, value_parser = parse_size, required_unless_present = "for_connections")]
    pub size: Option<u64>,
    /// Use SPECweb99's size for this many simultaneous connections: 122 MB, and 3.22 MB for each
    #[arg(long, value_name = "N", conflicts_with = "size")]
    pub for_connections: Option<u64>,
    /// Seed of the contents
    #[arg(long, default_value_t = 1999)]
    pub seed: u64,
}

#[derive(Args)]
pub struct Run {
    /// http://HOST[:PORT][/PATH], https://..., or the name of a server for latlab to start (`latlab servers`)
    #[arg(value_parser = parse_target)]
    pub target: Target,
    #[command(flatten)]
    pub what: What,
    /// Connections: exactly this many in a closed loop, at most this many in an open one [default: 64, or
    /// 1024 with --rate]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: Option<u32>,
    /// Requests per second, in an open loop; several rates are steps of equal length
    #[arg(short, long, value_name = "RPS", value_delimiter = ',', value_parser = parse_rate)]
    pub rate: Vec<f64>,
    /// With --log: start requests at the times in the log, this many times as fast; 1 is the original speed
    #[arg(long, value_name = "FACTOR", value_parser = parse_speed, requires = "log")]
    #[arg(conflicts_with_all = ["rate", "think"])]
    pub log_speed: Option<f64>,
    /// Gaps between requests: with --rate, and within each second of a log
    #[arg(long, value_enum, default_value_t = Gaps::Poisson)]
    pub gaps: Gaps,
    /// In a closed loop: think time, how long to wait after a reply
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    #[arg(conflicts_with = "rate")]
    pub think: Duration,
    /// Duration, warm-up included [default: 10s, or with --log-speed as long as the log has requests]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Warm-up: requests intended to start in this time are not counted (but are in the rows)
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    pub warmup: Duration,
    /// End after this many requests
    #[arg(short = 'n', long, value_name = "N")]
    pub requests: Option<u64>,
    /// Write every request as a row to this Parquet file (latlab/docs/latlab.md describes the columns)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write the distribution of latencies, counted from the intended start, as text for HdrHistogram's
    /// plotter, in milliseconds
    #[arg(long, value_name = "FILE")]
    pub hgrm: Option<PathBuf>,
    /// Write latencies over time as an HdrHistogram log (version 1.3, histograms V2), in nanoseconds: without
    /// a tag from the intended start, with the tag "start" from the actual start
    #[arg(long, value_name = "FILE")]
    pub hlog: Option<PathBuf>,
    /// Have DeBox record a server that latlab starts, into this file: `latlab analyze --history` then shows
    /// what slow requests waited for. Needs root
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Gaps {
    /// Independent of each other, like the requests of many users
    Poisson,
    /// All equal
    Constant,
}

/// How long each run of a procedure takes.
#[derive(Args, Clone, Copy)]
pub struct Times {
    /// Duration of each run, warm-up included
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    pub duration: Duration,
    /// Warm-up, which is not counted
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, default_value = "2s")]
    pub warmup: Duration,
}

#[derive(Args)]
pub struct Capacity {
    /// http://HOST[:PORT][/PATH], https://..., or the name of a server for latlab to start (`latlab servers`)
    #[arg(value_parser = parse_target)]
    pub target: Target,
    #[command(flatten)]
    pub what: What,
    /// Connections: exactly this many without think time, and at most this many in the search
    #[arg(short, long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// Measure closed loops only, without the search
    #[arg(long)]
    pub closed: bool,
    /// Number of times to measure closed loops
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    #[command(flatten)]
    pub times: Times,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args)]
pub struct Profile {
    /// http://HOST[:PORT][/PATH], https://..., or the name of a server for latlab to start (`latlab servers`)
    #[arg(value_parser = parse_target)]
    pub target: Target,
    #[command(flatten)]
    pub what: What,
    /// Loads, relative to the capacity
    #[arg(long, value_name = "LOADS", value_delimiter = ',', value_parser = parse_load)]
    #[arg(default_value = "0.2,0.4,0.6,0.8,0.9,0.95")]
    pub loads: Vec<f64>,
    /// The capacity in requests per second, if it is known
    #[arg(long, value_name = "RPS", value_parser = parse_rate)]
    pub capacity: Option<f64>,
    /// Connections: exactly this many to find the capacity, at most this many at each load
    #[arg(short, long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// Number of times to measure each load
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    #[command(flatten)]
    pub times: Times,
    /// New directory for the rows of all runs
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args)]
pub struct Conform {
    /// http://HOST[:PORT][/PATH], https://..., or the name of a server for latlab to start (`latlab servers`)
    #[arg(value_parser = parse_target)]
    pub target: Target,
    #[command(flatten)]
    pub what: What,
    /// First number of connections to try
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub least: u32,
    /// Largest number of connections to try
    #[arg(long, value_name = "N", default_value_t = 2000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub most: u32,
    /// Do not let the file set grow
    #[arg(long)]
    pub fixed_set: bool,
    /// Duration of each run, warm-up included
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    pub duration: Duration,
    /// Warm-up, which is not counted
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    pub warmup: Duration,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args)]
pub struct Compare {
    /// A server's name (`latlab servers`), or http://HOST[:PORT][/PATH]
    #[arg(value_parser = parse_target)]
    pub a: Target,
    /// Second server
    #[arg(value_parser = parse_target)]
    pub b: Target,
    #[command(flatten)]
    pub what: What,
    /// Connections: exactly this many in a closed loop, at most this many with --rate
    #[arg(short, long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// Requests per second, in an open loop
    #[arg(short, long, value_name = "RPS", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// With --log: start requests at the times in the log, this many times as fast; 1 is the original speed
    #[arg(long, value_name = "FACTOR", value_parser = parse_speed, requires = "log")]
    #[arg(conflicts_with = "rate")]
    pub log_speed: Option<f64>,
    /// Number of times to measure both
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..))]
    pub repeats: u32,
    /// Maximum probability that the table shows any difference between two equal servers
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "5%")]
    pub error_rate: f64,
    /// Duration of each run, warm-up included [default: 10s, or with --log-speed as long as the log has
    /// requests]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Warm-up, which is not counted
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, default_value = "2s")]
    pub warmup: Duration,
    /// New directory for the rows of all runs
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args)]
pub struct Study {
    /// Names of servers (`latlab servers`)
    #[arg(value_name = "SERVER", default_values = ["nginx", "nginx-tuned", "apache-event"])]
    pub names: Vec<String>,
    /// New directory for the page, the figures and the rows of all runs
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Use a small file set, three loads and short runs, about a minute per server. Figures are rough
    #[arg(long)]
    pub quick: bool,
    /// Size of the file set [default: 600M, 200M with --quick]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Memory limit of each server, page cache included [default: a quarter of --size, plus 16M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Time that the disk takes for a request
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5ms")]
    pub service: Duration,
    /// Requests that the disk serves at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub depth: u32,
    /// Directory in which the file set and the disk are created, and removed again; servers that do not run
    /// as root need access to it
    #[arg(long, value_name = "DIR", default_value = crate::study::PLACE)]
    pub place: PathBuf,
    /// Loads, relative to the capacity [default: 0.2,0.4,0.6,0.8,0.9,0.95,1.1; 0.3,0.9,1.1 with --quick]
    #[arg(long, value_name = "LOADS", value_delimiter = ',', value_parser = parse_load)]
    pub loads: Vec<f64>,
    /// The load at which DeBox records the server
    #[arg(long, value_name = "LOAD", value_parser = parse_load, default_value = "0.9")]
    pub recorded_load: f64,
    /// Do not record; the study then finds no causes
    #[arg(long, conflicts_with = "recorded_load")]
    pub no_record: bool,
    /// Connections without think time, to find the capacity
    #[arg(short, long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// Maximum number of connections at each load
    #[arg(long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub most: u32,
    /// Requests per connection before it is closed [default: as many as the server allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub per_connection: Option<u32>,
    /// Number of times to measure the capacity and each load [default: 3, 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: Option<u32>,
    /// Duration of each run, warm-up included [default: 10s, 3s with --quick]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Warm-up, which is not counted [default: 2s, 1s with --quick]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub warmup: Option<Duration>,
    /// Maximum lateness of the generator itself, at the 99th percentile
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1ms")]
    pub max_lateness: Duration,
    /// Seed of the workload
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// File that defines more servers (latlab/docs/latlab.md)
    #[arg(long, value_name = "FILE")]
    pub servers: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args)]
pub struct Sweep {
    /// Name of a server for latlab to start (`latlab servers`)
    #[arg(value_parser = parse_target)]
    pub target: Target,
    /// What to vary: a parameter, cpus or memory, and its values
    #[arg(long, value_name = "NAME=VALUES", value_parser = parse_vary)]
    pub vary: Vary,
    #[command(flatten)]
    pub what: What,
    /// Connections: exactly this many in a closed loop, at most this many with --rate
    #[arg(short, long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// Requests per second, in an open loop
    #[arg(short, long, value_name = "RPS", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Measure the capacity for each value, and latency at this part of it
    #[arg(long, value_name = "LOAD", value_parser = parse_load, conflicts_with = "rate")]
    pub load: Option<f64>,
    /// Number of times to measure each value
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    #[command(flatten)]
    pub times: Times,
    /// Measure with DeBox what the server blocks on
    #[arg(long)]
    pub blocking: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args)]
pub struct Recover {
    /// Directory that the run has left; it is removed once the file is written
    #[arg(value_name = "SPOOL", requires = "output")]
    pub spool: Option<PathBuf>,
    /// Output file, in Parquet format
    #[arg(short, long, value_name = "FILE", requires = "spool")]
    pub output: Option<PathBuf>,
    /// Do not remove the directory
    #[arg(long, requires = "spool")]
    pub keep: bool,
    /// If rows are damaged, take those before the damage; the directory is then kept
    #[arg(long, requires = "spool")]
    pub despite_damage: bool,
    /// Directory in which studies were made (`latlab study --place`)
    #[arg(
        long,
        value_name = "DIR",
        default_value = crate::study::PLACE,
        conflicts_with = "spool"
    )]
    pub place: PathBuf,
}

#[derive(Args)]
pub struct Servers {
    /// File that defines more servers
    #[arg(long, value_name = "FILE")]
    pub servers: Option<PathBuf>,
}

#[derive(Args)]
pub struct Server {
    /// Address to listen on; with port 0, the chosen port is printed
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    pub listen: String,
    /// Service times: fixed:5ms, exp:5ms, pareto:1ms,1.5, stall:1ms/1000 (every 1000th request),
    /// inverted:10ms (the smaller the file, the longer), by-size:1us (for each KiB)
    #[arg(long, value_name = "TIMES", value_parser = Service::parse, default_value = "fixed:0s")]
    pub service: Service,
    /// Fault of every N-th request: reset, close, hang, short, less, more, surplus, status, content, garbage,
    /// die
    #[arg(long, value_name = "KIND/N", value_parser = parse_fault)]
    pub fault: Vec<(Fault, u64)>,
    /// Serve one request at a time
    #[arg(long)]
    pub serial: bool,
    /// Seed of the simulated file set
    #[arg(long, default_value_t = 1999)]
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_has_its_page_and_is_completed() {
        kit_console::manual::check(&Cli::command());
    }

    #[test]
    fn the_help_of_every_command_has_an_example() {
        fn without(command: &clap::Command, found: &mut Vec<String>) {
            let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
            let below: Vec<&clap::Command> = shown.collect();
            let help = command.get_after_help().map(ToString::to_string);
            // A command that only has subcommands shows their names.
            if below.is_empty() && !help.is_some_and(|help| help.contains("Example")) {
                found.push(command.get_name().to_string());
            }
            for command in below {
                without(command, found);
            }
        }
        let mut found = Vec::new();
        without(&Cli::command(), &mut found);
        assert_eq!(found, Vec::<String>::new());
    }
}
