// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use kit_console::manual::{Completions, Man};
use kit_units::parse_duration;

#[derive(Parser)]
#[command(name = "hbench", version, max_term_width = 100)]
#[command(about = "Microbenchmarks of the operating system whose parts add up")]
#[command(
    after_help = "Exit status: 0 done, whatever could not be measured here; 2 wrong usage; 3 a benchmark gave a \
                  wrong result; 125 hbench failed, as when a file cannot be written; 130 interrupted, and what was \
                  complete was kept."
)]
pub struct Cli {
    #[command(subcommand)]
    pub subcommand: Subcommand,
}

#[derive(clap::Subcommand)]
pub enum Subcommand {
    /// Measure this machine
    #[command(after_help = "Examples:\n  hbench run -o here.parquet\n  \
        hbench run memory call.null process.exec/static\n  \
        hbench run --parallel -o all-cpus.parquet\n  \
        hbench run --under 'strace -f -o /dev/null' call")]
    Run(Run),
    /// List the benchmarks: what each does, depends on, and answers to in other suites
    List(List),
    /// Show the figures of a recorded result
    Show(Show),
    /// Show what differs between two recorded results, or between two live commands
    #[command(
        after_help = "Examples:\n  hbench compare before.parquet after.parquet\n  \
        hbench compare --live 'env' 'strace -f -o /dev/null' call pipe\n\n\
        With --live, A and B are commands that start each sample's process, as a shell reads them. Each sample of A is \
        followed by the same of B, so what changes on the machine meanwhile hits both."
    )]
    Compare(Compare),
    /// Show what benchmarks are made of, or which primitives make the difference between two machines
    #[command(after_help = "Examples:\n  hbench explain here.parquet process.\n  \
        hbench explain here.vec there.vec app.vec")]
    Explain(Explain),
    /// Make the characterization vector of a machine, or of an application
    #[command(after_help = "Examples:\n  hbench vector here.parquet -o here.vec\n  \
        hbench vector --on here.vec -o tar.vec -- sh -c 'tar cf /tmp/doc.tar /usr/share/doc'\n  \
        hbench vector --on here.vec -o server.vec recording.parquet\n\n\
        A command is run once to warm up, then --runs times, and once under `debox record`, which needs root. It must \
        do the same each time. It reads nothing and what it prints is discarded, except errors of its first run.")]
    Vector(Vector),
    /// Make the vector of a machine on which the benchmarks cannot run, from the times that applications take there
    #[command(
        after_help = "Example:\n  hbench calibrate -o there.vec --on here.vec tar.vec=1.23s git.vec=812ms gcc.vec=2s\n\n\
        It fits three factors: of user mode, of entering the kernel, and of the rest of the kernel. So it takes three \
        applications or more that differ in these."
    )]
    Calibrate(Calibrate),
    /// Predict how long an application takes on other machines
    #[command(
        after_help = "Example:\n  hbench predict tar.vec here.vec there.vec container.parquet"
    )]
    Predict(Predict),
    /// Show where an operation's time goes, by DeBox's records of its calls
    #[command(after_help = "Examples:\n  hbench decompose pipe.latency/one-cpu\n  \
        hbench decompose process.fork -o fork.json\n  \
        hbench show here.parquet --html page.html --records fork.json\n\n\
        Starts the program debox, beside hbench or in PATH, which needs root or a broker. Takes some ten seconds for \
        each benchmark.")]
    Decompose(Decompose),
    /// Take one sample: what `run` starts
    #[command(hide = true)]
    Sample(Sample),
    /// Say where samples run: what `run --under` starts first
    #[command(hide = true)]
    Describe(Describe),
    /// Call getppid so many times: what `vector` records to learn what recording adds to a call
    #[command(hide = true)]
    Calls(Calls),
    /// Write the manual pages
    Man(Man),
    /// Print the completions of a shell
    Completions(Completions),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

#[derive(Args)]
pub struct Measuring {
    /// Rounds; each measures every benchmark once
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// How long a sample's measurement takes
    #[arg(long, value_name = "TIME", default_value = "40ms", value_parser = sample_time)]
    pub sample: Duration,
    /// Directory for temporary files; what is measured of files is measured of its file system [default: TMPDIR, or /tmp]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Drop the kernel's caches for what is measured cold; as root. It slows every program of the machine
    #[arg(long)]
    pub cold: bool,
    /// Measure on all CPUs at the same time, one process on each
    #[arg(long)]
    pub parallel: bool,
}

#[derive(Args)]
pub struct Run {
    /// Benchmarks: names, or their beginnings [default: all but those that `list` calls "by name"]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Measure all benchmarks, also those that only answer to rows of other suites
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    #[command(flatten)]
    pub measuring: Measuring,
    /// Command that starts each sample's process, as a shell reads it: a tracer, a sandbox, a limit
    #[arg(long, value_name = "COMMAND")]
    pub under: Option<String>,
    /// File for the result (Parquet), with every sample
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
}

#[derive(Args)]
pub struct List {
    /// Benchmarks: names, or their beginnings [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}

#[derive(Args)]
pub struct Show {
    /// Result of `hbench run -o`
    pub file: PathBuf,
    /// Benchmarks: names, or their beginnings [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Write one HTML page: the hierarchy as a picture, and each benchmark's evidence
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// With --html: results of `hbench decompose -o`, which the page shows with their benchmarks
    #[arg(long, value_name = "FILE", requires = "html")]
    pub records: Vec<PathBuf>,
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
}

#[derive(Args)]
pub struct Decompose {
    /// Benchmarks: names, or their beginnings
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Rounds, of which the least disturbed counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// How long a sample's measurement takes
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = sample_time)]
    pub sample: Duration,
    /// Directory for temporary files [default: TMPDIR, or /tmp]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// File for the result (JSON), for `hbench show --html --records`
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
}

#[derive(Args)]
pub struct Compare {
    /// Result of `hbench run -o`, or with --live a command
    pub a: String,
    /// The same to compare with it
    pub b: String,
    /// With --live: names of benchmarks, or their beginnings [default: as `run`]
    #[arg(value_name = "NAME", requires = "live")]
    pub names: Vec<String>,
    /// A and B are commands under which the benchmarks run in turn
    #[arg(long)]
    pub live: bool,
    #[command(flatten)]
    pub measuring: Measuring,
    /// Show what does not differ, too
    #[arg(long)]
    pub all: bool,
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
}

#[derive(Args)]
pub struct Explain {
    /// Result of `hbench run -o`; or the vector of a first machine
    pub file: PathBuf,
    /// Benchmarks: names, or their beginnings [default: all that are made of others]; or the vectors of a second machine
    /// and of an application
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// With an application: the vector of the machine on which it ran, if its own does not have it
    #[arg(long, value_name = "FILE")]
    pub on: Option<PathBuf>,
    /// With an application: show all parts
    #[arg(long)]
    pub all: bool,
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
}

#[derive(Args)]
pub struct Vector {
    /// Results of `hbench run -o` on one machine, or a recording of `debox record`
    #[arg(value_name = "FILE", conflicts_with = "command")]
    pub files: Vec<PathBuf>,
    /// File for the vector (JSON)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Of an application: the machine on which it runs, as a vector or a result of `hbench run -o`
    #[arg(long, value_name = "FILE")]
    pub on: Option<PathBuf>,
    /// Runs without recording
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// The program that records [default: debox, beside hbench or in PATH]
    #[arg(long, value_name = "FILE")]
    pub debox: Option<PathBuf>,
    /// Show all primitives
    #[arg(long)]
    pub all: bool,
    /// The application's command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Args)]
pub struct Predict {
    /// Vector of an application
    pub application: PathBuf,
    /// Vectors of machines, or results of `hbench run -o`
    #[arg(value_name = "MACHINE", required = true)]
    pub machines: Vec<PathBuf>,
    /// The vector of the machine on which it ran, if its own does not have it
    #[arg(long, value_name = "FILE")]
    pub on: Option<PathBuf>,
    /// Show the parts of each prediction
    #[arg(long)]
    pub all: bool,
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
}

#[derive(Args)]
pub struct Calibrate {
    /// Vectors of applications, each with the elapsed time that it takes on the machine
    #[arg(value_name = "APP=TIME", required = true)]
    pub times: Vec<String>,
    /// The machine on which they were recorded, as a vector or a result of `hbench run -o`
    #[arg(long, value_name = "FILE")]
    pub on: PathBuf,
    /// File for the machine's vector (JSON)
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

#[derive(Args)]
pub struct Calls {
    pub count: u32,
}

#[derive(Args)]
pub struct Describe {
    /// The directory for temporary files
    pub directory: PathBuf,
}

#[derive(Args)]
pub struct Sample {
    /// What to measure, in JSON
    pub job: String,
}

fn sample_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    match (Duration::from_millis(1)..=Duration::from_secs(10)).contains(&time) {
        true => Ok(time),
        false => Err("a sample takes 1ms to 10s".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_manual_has_every_subcommand() {
        Cli::command().debug_assert();
        kit_console::manual::check(&Cli::command());
    }

    #[test]
    fn a_sample_has_a_sensible_length() {
        assert_eq!(sample_time("40ms"), Ok(Duration::from_millis(40)));
        assert!(sample_time("1us").is_err() && sample_time("1h").is_err());
    }
}
