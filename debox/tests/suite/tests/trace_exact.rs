// SPDX-License-Identifier: MIT OR Apache-2.0
//! The call tree against the kernel's own `function_graph` tracer, which knows nothing of debox:
//! the same functions, nested in the same way, entered as often and in the same order. Needs a kernel
//! that lets its functions be probed and that has that tracer, as those in the guests.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use debox_tests::program;
use debox_tests::skipped;
use debox_tests::wait_for;
use debox_tests::Debox;
use debox_tests::Exclusive;
use serde_json::Value;

const TRACEFS: &str = "/sys/kernel/tracing";
/// Without a loader, which makes some of the same calls.
const PROGRAM: &str = "trace_static";
const GROUPS: &str = "--trace=syscalls,vfs,mm,process,wait,fs";
/// What memory allocation and the state of caches do differently from run to run.
const ATTEMPTS: usize = 5;

/// A function, how often it was entered there, and what it entered, in the order of first entries.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entered {
    function: String,
    count: u64,
    below: Vec<Entered>,
}

/// Equal ways are one.
fn enter<'a>(level: &'a mut Vec<Entered>, function: &str) -> &'a mut Entered {
    let at = level.iter().position(|found| found.function == function);
    let at = at.unwrap_or_else(|| {
        level.push(Entered {
            function: function.to_string(),
            count: 0,
            below: Vec::new(),
        });
        level.len() - 1
    });
    level[at].count += 1;
    &mut level[at]
}

/// The output of `function_graph` without times: `f() {`, `f();` and `}`.
fn parse_graph(text: &str) -> Vec<Entered> {
    let mut tree = Vec::new();
    let mut open: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim) {
        let Some((name, rest)) = line.split_once("()") else {
            if line.starts_with('}') {
                open.pop();
            }
            continue;
        };
        let name = name.split_whitespace().last().unwrap_or_default();
        let mut level = &mut tree;
        for above in &open {
            let at = level
                .iter()
                .position(|found: &Entered| found.function == *above);
            level = &mut level[at.expect("it was entered")].below;
        }
        enter(level, name);
        if rest.contains('{') {
            open.push(name.to_string());
        }
    }
    tree
}

/// A line for each function: how deep, its name, how often.
fn lines(tree: &[Entered], depth: usize) -> Vec<String> {
    let mut all = Vec::new();
    for entered in tree {
        let name = format!("{:depth$}{} {}", "", entered.function, entered.count);
        all.push(name);
        all.extend(lines(&entered.below, depth + 1));
    }
    all
}

/// Where two trees begin to differ, with what is around it.
fn difference(ours: &[Entered], theirs: &[Entered]) -> String {
    let (ours, theirs) = (lines(ours, 0), lines(theirs, 0));
    let same = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
    let around = |lines: &[String]| {
        let range = same.saturating_sub(5)..(same + 15).min(lines.len());
        lines[range].join("\n")
    };
    format!(
        "debox, from line {same}\n{}\nfunction_graph\n{}",
        around(&ours),
        around(&theirs)
    )
}

#[test]
fn a_graph_is_read() {
    let text = "# tracer: function_graph\n\n  a() {\n    b();\n    c() {\n      d();\n    }\n    b();\n  }\n a();\n";
    let leaf = |function: &str, count| Entered {
        function: function.to_string(),
        count,
        below: Vec::new(),
    };
    let mut c = leaf("c", 1);
    c.below.push(leaf("d", 1));
    let mut a = leaf("a", 2);
    a.below = vec![leaf("b", 2), c];
    assert_eq!(parse_graph(text), [a]);
}

fn from_report(functions: &Value) -> Vec<Entered> {
    let functions = functions.as_array().expect("functions");
    let entered = |function: &Value| Entered {
        function: function["function"].as_str().expect("a name").to_string(),
        count: function["entered"].as_u64().expect("a number"),
        below: from_report(&function["children"]),
    };
    functions.iter().map(entered).collect()
}

/// The kernel's own list of the functions that can be traced.
fn traceable() -> Vec<String> {
    let list = std::fs::read_to_string(format!("{TRACEFS}/available_filter_functions"));
    let name = |line: &str| line.split_whitespace().next().map(str::to_string);
    list.expect("a list").lines().filter_map(name).collect()
}

/// Functions with several names, such as `__x64_sys_fork` and `__do_sys_fork`: each name with the one
/// that `function_graph` knows it by. A name that stands for several functions is no other's.
struct Aliases(HashMap<String, String>);

impl Aliases {
    fn of(symbols: &str, traceable: &[String]) -> Aliases {
        let mut places: HashMap<&str, Vec<&str>> = HashMap::new();
        let mut names: HashMap<&str, Vec<&str>> = HashMap::new();
        for line in symbols.lines() {
            let mut words = line.split_whitespace();
            let (Some(place), _, Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            places.entry(name).or_default().push(place);
            names.entry(place).or_default().push(name);
        }
        let traceable: BTreeSet<&str> = traceable.iter().map(String::as_str).collect();
        let known = |name: &str| {
            let [place] = places[name].as_slice() else {
                return None;
            };
            let namesakes = names[place].iter().filter(|other| **other != name);
            let known = namesakes.copied().find(|other| traceable.contains(other))?;
            (!traceable.contains(name)).then(|| (name.to_string(), known.to_string()))
        };
        Aliases(places.keys().filter_map(|name| known(name)).collect())
    }

    fn read(traceable: &[String]) -> Aliases {
        let symbols = std::fs::read_to_string("/proc/kallsyms").expect("symbols");
        Aliases::of(&symbols, traceable)
    }

    fn known<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.get(name).map_or(name, String::as_str)
    }

    fn rename(&self, tree: &mut [Entered]) {
        for entered in tree {
            entered.function = self.known(&entered.function).to_string();
            self.rename(&mut entered.below);
        }
    }
}

#[test]
fn a_function_of_two_names_is_one() {
    let symbols = "f10 t __do_sys_fork\nf10 T __x64_sys_fork\nf20 T free\nf30 t show\nf40 t show\n\
                   f40 t other\n";
    let traceable = ["__do_sys_fork", "free", "other"].map(str::to_string);
    let aliases = Aliases::of(symbols, &traceable);
    assert_eq!(aliases.known("__x64_sys_fork"), "__do_sys_fork");
    assert_eq!(aliases.known("__do_sys_fork"), "__do_sys_fork");
    assert_eq!(aliases.known("free"), "free");
    assert_eq!(aliases.known("show"), "show", "it stands for two functions");
}

fn state_of(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn await_stop(pid: i32) {
    let stopped = wait_for(Duration::from_secs(60), || state_of(pid) == Some('T'));
    assert!(stopped, "the program did not stop");
}

fn go_on(pid: i32) {
    // SAFETY: kill takes no memory; the process is a child of ours, or of debox, that still runs.
    unsafe { libc::kill(pid, libc::SIGCONT) };
}

/// debox's tree of the three calls, and the functions that it probed.
fn with_debox() -> (Value, BTreeSet<String>) {
    let running = Debox::run(PROGRAM)
        .options([GROUPS, "--format", "json"])
        .args(["once", "stop"])
        .limit(120)
        .spawn();
    let mut pid = 0;
    // Emulated machines take their time to accept the probes.
    let is_there = wait_for(Duration::from_secs(100), || {
        pid = running.children(PROGRAM).first().copied().unwrap_or(0);
        pid != 0
    });
    assert!(is_there, "the program never ran");
    await_stop(pid);
    let text = std::fs::read_to_string(format!("{TRACEFS}/enabled_functions")).expect("a list");
    let name = |line: &str| line.split_whitespace().next().map(str::to_string);
    // A direct call's target (fentry, on 6.1) stands in a line of its own, further in.
    let functions = text.lines().filter(|line| !line.starts_with('\t'));
    let probed = functions.filter_map(name).collect();
    go_on(pid);
    let finished = running.finish().code(0);
    let json = finished.stderr.find('{').expect("a report");
    let report = serde_json::from_str(&finished.stderr[json..]).expect("JSON");
    (report, probed)
}

/// Settings of the kernel's tracer, taken back at the end.
struct Tracer;

impl Tracer {
    fn set(file: &str, text: &str) {
        std::fs::write(Path::new(TRACEFS).join(file), text)
            .unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    fn start(pid: i32, functions: &BTreeSet<String>, roots: &[&str]) -> Tracer {
        let tracer = Tracer;
        Tracer::set("current_tracer", "nop");
        Tracer::set("set_ftrace_filter", &places(functions));
        // With a newline behind each: an unknown name after the last one would not be complained of.
        let roots: String = roots.iter().map(|root| format!("{root}\n")).collect();
        Tracer::set("set_graph_function", &roots);
        Tracer::set("set_ftrace_pid", &pid.to_string());
        Tracer::set("current_tracer", "function_graph");
        // They are there once the tracer has been chosen.
        for option in ["irqs", "cpu", "overhead", "duration"] {
            Tracer::set(&format!("options/funcgraph-{option}"), "0");
        }
        Tracer::set("trace", "");
        tracer
    }
}

/// The functions as the tracer's filter takes them fast: for a name it looks at all that there are.
fn places(functions: &BTreeSet<String>) -> String {
    let list = traceable();
    let probed = list.iter().enumerate();
    let probed = probed.filter(|(_, name)| functions.contains(*name));
    let places: Vec<String> = probed.map(|(place, _)| (place + 1).to_string()).collect();
    // Static functions may share a name; a name would have let in all of them, too.
    let missing: Vec<_> = functions
        .iter()
        .filter(|name| !list.contains(name))
        .collect();
    assert!(
        missing.is_empty(),
        "{missing:?} are probed and not in the list"
    );
    places.join("\n")
}

impl Drop for Tracer {
    fn drop(&mut self) {
        for (file, text) in [
            ("current_tracer", "nop"),
            ("set_ftrace_pid", ""),
            ("set_graph_function", ""),
            ("set_ftrace_filter", ""),
            ("trace", ""),
        ] {
            let _ = std::fs::write(Path::new(TRACEFS).join(file), text);
        }
    }
}

fn with_function_graph(functions: &BTreeSet<String>, roots: &[&str]) -> Vec<Entered> {
    let _turn = Exclusive::take();
    let mut child = Command::new(program(PROGRAM))
        .args(["once", "stop"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the program starts");
    let pid = child.id() as i32;
    await_stop(pid);
    let _tracer = Tracer::start(pid, functions, roots);
    go_on(pid);
    assert!(child.wait().expect("it ends").success());
    let text = std::fs::read_to_string(format!("{TRACEFS}/trace")).expect("a trace");
    parse_graph(&text)
}

/// Why functions cannot be seen here, if they cannot.
fn lack(report: &Value) -> Option<&'static str> {
    (report["trace"]["method"] == "sampled").then_some("this kernel lets no function be probed")
}

#[test]
fn functions_and_their_order_are_those_of_function_graph() {
    let name = "functions_and_their_order_are_those_of_function_graph";
    let tracers = std::fs::read_to_string(format!("{TRACEFS}/available_tracers"));
    if !tracers.is_ok_and(|tracers| tracers.contains("function_graph")) {
        return skipped(name, "this kernel has no function_graph tracer");
    }
    let aliases = Aliases::read(&traceable());
    let root = |call| {
        let name = format!("__x64_sys_{call}");
        (call, aliases.known(&name).to_string())
    };
    let mut left = ["open", "read", "fork"].map(root).to_vec();
    let mut differences = Vec::new();
    for _ in 0..ATTEMPTS {
        differences.clear();
        let (report, probed) = with_debox();
        if let Some(lack) = lack(&report) {
            return skipped(name, lack);
        }
        assert_times_add_up(&report);
        assert!(probed.len() > 300, "{} functions", probed.len());
        let roots: Vec<&str> = left.iter().map(|(_, root)| root.as_str()).collect();
        let graph = with_function_graph(&probed, &roots);
        left.retain(|(call, root)| {
            let tree = report["trace"]["tree"].as_array().expect("a tree");
            let found = tree.iter().find(|found| found["syscall"] == *call);
            let mut ours = from_report(&found.expect("the call was made")["functions"]);
            aliases.rename(&mut ours);
            let ours: Vec<_> = ours.into_iter().filter(|f| f.function == *root).collect();
            let theirs: Vec<_> = graph
                .iter()
                .filter(|f| f.function == *root)
                .cloned()
                .collect();
            assert!(
                !theirs.is_empty(),
                "function_graph saw no {root}: {graph:?}"
            );
            let is_same = ours == theirs;
            if !is_same {
                differences.push(format!("{call}: {}", difference(&ours, &theirs)));
            }
            !is_same
        });
        if left.is_empty() {
            return;
        }
    }
    panic!("{}", differences.join("\n\n"));
}

fn sum_of_self(functions: &Value) -> u64 {
    let functions = functions.as_array().expect("functions");
    let own = |function: &Value| {
        function["self_ns"].as_u64().expect("a time") + sum_of_self(&function["children"])
    };
    functions.iter().map(own).sum()
}

/// The functions' own times make up the whole, which is inside of the calls' time.
#[track_caller]
fn assert_times_add_up(report: &Value) {
    for call in report["trace"]["tree"].as_array().expect("a tree") {
        let name = call["syscall"].as_str().expect("a name");
        // The last call of a process does not return, nor do the functions that it is in.
        if name == "exit_group" || name == "execve" {
            continue;
        }
        let total = call["total_ns"].as_u64().expect("a time");
        assert_eq!(sum_of_self(&call["functions"]), total, "{call:#}");
        let rows = report["syscalls"].as_array().expect("a table");
        let row = rows.iter().find(|row| row["name"] == name).expect("a row");
        let wall = row["wall_ns"].as_u64().expect("a time");
        assert!(
            total <= wall,
            "{name}: {total} ns in functions of {wall} ns"
        );
    }
    let lost = &report["trace"]["lost"];
    for kind in ["depth", "nodes", "threads", "unreturned", "unmatched"] {
        assert_eq!(lost[kind], 0, "{lost:#}");
    }
}

#[test]
fn nested_times_add_up_to_the_calls() {
    let run = Debox::run("trace_calls")
        .options([GROUPS])
        .args(["grow", "3", "2"])
        .limit(120)
        .unchecked_report();
    match lack(&run.report) {
        Some(lack) => skipped("nested_times_add_up_to_the_calls", lack),
        None => assert_times_add_up(&run.report),
    }
}
