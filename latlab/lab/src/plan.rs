//! Makes plans from options.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use latlab::confine::{self, Limits};
use latlab::fileset;
use latlab::hdr::HdrFiles;
use latlab::leftover;
use latlab::load::{Mode, Step};
use latlab::run::{Plan, Url};
use latlab::servers::{self, Recorder, Running, Watch};
use latlab::signals;
use latlab::sys;
use latlab::tls::Trust;
use latlab::units::{bytes, count};
use latlab::workload::{
    read_access_log, read_sizes, read_urls, replay, Mix, Shape, Spec, LARGEST_BODY,
};

use crate::options::{Body, Gaps, MixOption, Run, Target, What};
use crate::study;

pub fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// The server's URL, and the server itself if latlab started it. It runs until this is dropped.
pub struct Ready {
    pub url: Url,
    pub name: String,
    running: Option<Running>,
}

impl Ready {
    /// A watch on the server, if latlab has started it.
    pub fn watch(&self) -> Option<Watch> {
        self.running.as_ref()?.watch(&self.name)
    }
}

/// Removes what a killed latlab has left, once: first the servers that still run, then their control groups,
/// then the disks that they served from.
fn remove_left() {
    static LEFT: Once = Once::new();
    LEFT.call_once(|| {
        leftover::say(&servers::remove_left());
        if sys::is_root() {
            leftover::say(&confine::remove_left());
            leftover::say(&study::remove_left(Path::new(study::PLACE)));
        }
    });
}

/// Starts a server, or resolves a URL.
pub fn ready(target: &Target, what: &What, record: Option<&Path>) -> Result<Ready> {
    // From here on there may be something to undo.
    signals::catch();
    let conditions = &what.conditions;
    let limits = Limits {
        cpus: conditions.cpus,
        memory: conditions.memory,
    };
    let name = match target {
        Target::Url(url) => {
            ensure!(
                !limits.any() && conditions.set.is_empty() && record.is_none(),
                "only a server that latlab starts can be confined, changed and recorded: name one of \
                 `latlab servers`"
            );
            return Ok(Ready {
                url: url.clone(),
                name: url.text(),
                running: None,
            });
        }
        Target::Server(name) => name,
    };
    let known = servers::known(conditions.servers.as_deref())?;
    let server = known
        .iter()
        .find(|server| server.name == *name)
        .with_context(|| {
            format!("there is no server {name} (`latlab servers`); a host is http://{name}/")
        })?;
    ensure!(
        what.log.is_none() && what.urls.is_none() && what.sizes.is_none(),
        "a server that latlab starts serves a file set, of which --files asks: for --log, --urls and --sizes start \
         the server yourself, and name it as http://HOST:PORT/"
    );
    remove_left();
    let files = what
        .files
        .as_ref()
        .context("a server that latlab starts serves a file set: name it with --files")?;
    let set = fileset::load(files)?;
    if conditions.cold {
        servers::forget(files, set)?;
    }
    let dynamic = match what.mix {
        MixOption::Static => None,
        MixOption::Full => Some(beside("latlab-dynamic")?),
    };
    let running = server.start(&servers::Conditions {
        files: files.clone(),
        limits,
        dynamic,
        parameters: conditions.set.iter().cloned().collect(),
        recorder: record.map(recorder).transpose()?,
    })?;
    Ok(Ready {
        url: Url {
            tls: false,
            host: format!("127.0.0.1:{}", running.port),
            path: "/".to_string(),
        },
        name: name.clone(),
        running: Some(running),
    })
}

fn recorder(history: &Path) -> Result<Recorder> {
    Ok(Recorder {
        // Otherwise the one in PATH.
        program: beside("debox").unwrap_or_else(|_| "debox".into()),
        history: history.to_path_buf(),
    })
}

/// A program in the same directory as this one.
fn beside(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find latlab's own program")?;
    let program = own.with_file_name(name);
    ensure!(program.exists(), "{} is missing", program.display());
    Ok(program)
}

/// A plan for a closed loop without think time.
pub fn of_what(
    ready: &Ready,
    what: &What,
    duration: Duration,
    warmup: Duration,
    connections: u32,
) -> Result<Plan> {
    Ok(Plan {
        url: ready.url.clone(),
        trust: trust(what, &ready.url)?,
        spec: spec(what, &ready.url)?,
        shape: shape(what)?,
        seed: what.seed,
        checked_share: what.verify,
        connections,
        processes: what.processes,
        mode: Mode::Closed { think_ns: 0 },
        requests_per_connection: what.per_connection,
        timeout_ns: ns(what.timeout),
        duration_ns: ns(duration),
        warmup_ns: ns(warmup),
        requests: None,
        max_lateness_ns: ns(what.max_lateness),
        load: None,
        server: ready.name.clone(),
        output: None,
        hdr: HdrFiles::default(),
        watch: ready.watch(),
        watched: kit_console::error_is_read(),
        program: std::env::current_exe().context("cannot find latlab's own program")?,
    })
}

const DURATION: Duration = Duration::from_secs(10);

pub fn of_run(ready: &Ready, arguments: &Run) -> Result<Plan> {
    let open = !arguments.rate.is_empty() || arguments.log_speed.is_some();
    let connections = arguments
        .connections
        .unwrap_or(if open { 1024 } else { 64 });
    let duration = arguments.duration.unwrap_or(DURATION);
    let mut plan = of_what(
        ready,
        &arguments.what,
        duration,
        arguments.warmup,
        connections,
    )?;
    ensure!(
        arguments.requests != Some(0) && plan.duration_ns > 0,
        "there is nothing to do in a run of no time or no requests"
    );
    plan.mode = match open {
        true => open_loop(
            &arguments.rate,
            plan.duration_ns,
            arguments.gaps == Gaps::Poisson,
        ),
        false => Mode::Closed {
            think_ns: ns(arguments.think),
        },
    };
    plan.requests = arguments.requests;
    if let Some(output) = &arguments.output {
        let what = &arguments.what;
        kit_files::same::refuse_inputs(output, inputs(what))?;
    }
    plan.output = arguments.output.clone();
    plan.hdr = HdrFiles {
        percentiles: arguments.hgrm.clone(),
        log: arguments.hlog.clone(),
    };
    for file in plan.hdr.all() {
        kit_files::same::refuse_inputs(file, inputs(&arguments.what))?;
    }
    match (&arguments.what.log, arguments.log_speed) {
        (Some(log), Some(speed)) => {
            let poisson = arguments.gaps == Gaps::Poisson;
            replayed_log(plan, log, speed, poisson, arguments.duration)
        }
        _ => Ok(plan),
    }
}

/// Input files.
fn inputs(what: &What) -> impl Iterator<Item = &Path> {
    let body = what.body.as_ref().and_then(Body::path);
    let lists = [&what.log, &what.urls, &what.sizes, &what.cacert];
    lists
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .chain(body)
}

fn trust(what: &What, url: &Url) -> Result<Trust> {
    ensure!(
        url.tls || !(what.insecure || what.cacert.is_some()),
        "--insecure and --cacert are for https, and {} is not",
        url.text()
    );
    Ok(match (&what.cacert, what.insecure) {
        (Some(file), _) => Trust::read_authorities(file)?,
        (None, true) => Trust::All,
        (None, false) => Trust::System,
    })
}

fn shape(what: &What) -> Result<Shape> {
    let mut names = Vec::new();
    for header in &what.header {
        let name = header.name.to_ascii_lowercase();
        let once = ["host", "connection", "content-type", "user-agent"];
        ensure!(
            !once.contains(&name.as_str()) || !names.contains(&name),
            "the header {} is there twice",
            header.name
        );
        names.push(name);
    }
    let body = what.body.as_ref().map(Body::read).transpose()?;
    ensure!(
        body.as_ref().is_none_or(|body| body.len() <= LARGEST_BODY),
        "the body is larger than {}, which is the most that latlab sends",
        bytes(LARGEST_BODY as u64)
    );
    let shape = Shape {
        method: what.method.clone(),
        headers: what.header.clone(),
        body,
    };
    ensure!(
        !shape.replies_are_bodiless() || what.sizes.is_none(),
        "replies to HEAD have no size that --sizes could ask for"
    );
    Ok(shape)
}

/// Prints a message that applies to all runs of a procedure only once.
fn say_once(text: String) {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    if let Ok(mut said) = SAID.lock() {
        if !said.contains(&text) {
            kit_console::say!("latlab: {text}");
            said.push(text);
        }
    }
}

/// The plan with the times of the log.
pub fn replayed_log(
    plan: Plan,
    log: &Path,
    speed: f64,
    poisson: bool,
    duration: Option<Duration>,
) -> Result<Plan> {
    let (logged, _) = read_access_log(log)?;
    let replayed = replay(logged, speed, poisson, plan.seed)
        .with_context(|| format!("{} cannot be replayed", log.display()))?;
    if replayed.timeless > 0 {
        say_once(format!(
            "{}: left out, too: {} requests whose time cannot be read",
            log.display(),
            count(replayed.timeless)
        ));
    }
    let mut starts = replayed.starts;
    let duration_ns = match duration {
        Some(duration) => ns(duration).min(replayed.duration_ns),
        None => replayed.duration_ns,
    };
    // The offered rate must cover only requests that are made.
    starts.retain(|start| *start < duration_ns);
    Ok(Plan {
        spec: Spec::List {
            paths: replayed.paths,
            log: true,
        },
        mode: Mode::Replay { starts },
        duration_ns,
        ..plan
    })
}

/// Steps of equal length.
pub fn open_loop(rates: &[f64], duration_ns: i64, poisson: bool) -> Mode {
    let each = duration_ns / rates.len().max(1) as i64;
    let steps = rates.iter().map(|rps| Step {
        rps: *rps,
        ns: each,
    });
    Mode::Open {
        steps: steps.collect(),
        poisson,
    }
}

fn spec(what: &What, url: &Url) -> Result<Spec> {
    if let Some(files) = &what.files {
        let mut set = fileset::load(files)?;
        if let Some(directories) = what.directories {
            ensure!(
                (1..=set.directories).contains(&directories),
                "{} has {} directories",
                files.display(),
                count(u64::from(set.directories))
            );
            set.directories = directories;
        }
        return Ok(Spec::Specweb {
            set,
            mix: match what.mix {
                MixOption::Static => Mix::Static,
                MixOption::Full => Mix::Full,
            },
            prefix: url.path.clone(),
            dynamic_prefix: what.dynamic_prefix.clone(),
        });
    }
    ensure!(
        what.mix == MixOption::Static,
        "--mix full needs the file set that it asks for: name it with --files"
    );
    if let Some(log) = &what.log {
        let (logged, skipped) = read_access_log(log)?;
        if skipped != Default::default() {
            say_once(format!(
                "{}: {} requests; left out: {} that are not GET, {} that were not answered \
                with the content, {} that cannot be read",
                log.display(),
                count(logged.len() as u64),
                count(skipped.methods),
                count(skipped.statuses),
                count(skipped.unreadable)
            ));
        }
        let paths = logged.into_iter().map(|request| request.path).collect();
        return Ok(Spec::List { paths, log: true });
    }
    if let Some(urls) = &what.urls {
        return Ok(Spec::List {
            paths: read_urls(urls)?,
            log: false,
        });
    }
    if let Some(sizes) = &what.sizes {
        return Ok(Spec::Sizes {
            sizes: read_sizes(sizes)?,
            template: what.size_path.clone(),
        });
    }
    Ok(Spec::List {
        paths: vec![url.path.clone()],
        log: false,
    })
}
