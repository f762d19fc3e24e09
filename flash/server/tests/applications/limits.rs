// SPDX-License-Identifier: MIT OR Apache-2.0
//! Too many requests, clients that go away, applications that were started elsewhere, and what the configuration refuses.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::exchange::{asking, good, pid, read_all};
use super::program::{check, wait_until, Answer, Program, PATIENCE};
use super::support::{application, get};

#[test]
fn requests_wait_for_a_process_in_a_queue_with_an_end() {
    let program = application("good.py", ", processes = 1, queue = 2", "loops = 2\n");
    let mut busy = asking(&program, "/app/wait");
    wait_until("a request", || program.path("waits").exists());
    let mut waiting = [asking(&program, "/app/pid"), asking(&program, "/app/pid")];
    wait_until("a queue", || {
        program.count("flash_application_waiting") == 2
    });
    let began = Instant::now();
    let answer = get(&program, "/app/pid");
    assert_eq!(
        (answer.status, answer.field("Retry-After")),
        (503, Some("1"))
    );
    assert!(began.elapsed() < PATIENCE);
    // Those that go away wait no more.
    let gone = std::mem::replace(&mut waiting[1], program.connect());
    rustix::net::sockopt::set_socket_linger(&gone, Some(Duration::ZERO)).expect("a socket");
    drop(gone);
    wait_until("an end", || program.count("flash_application_waiting") == 1);
    std::fs::write(program.path("go"), "").expect("room");
    assert_eq!(Answer::read(&mut busy).body, "done");
    assert_eq!(Answer::read(&mut waiting[0]).status, 200);
    wait_until("an empty queue", || {
        program.count("flash_application_waiting") == 0
    });
}

#[test]
fn all_clients_of_many_get_their_answers_from_few_processes() {
    let program = application("good.py", ", processes = 3, queue = 1000", "loops = 2\n");
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..25 {
                    assert_eq!(get(&program, "/app/stream").status, 201);
                }
            });
        }
    });
    assert_eq!(program.count("flash_upstream_full_total"), 0);
    assert_eq!(program.count("flash_application_connections"), 0);
}

#[test]
fn a_client_that_goes_away_frees_the_process() {
    let program = good(", processes = 1");
    for _ in 0..3 {
        let stream = asking(&program, "/app/large");
        wait_until("a connection that is lent", || {
            program.count("flash_application_connections") == 1
        });
        drop(stream);
        wait_until("its end", || {
            program.count("flash_application_connections") == 0
        });
    }
    assert_eq!(get(&program, "/app/pid").status, 200);
    assert_eq!(program.count("flash_upstream_failures_total"), 0);
}

#[test]
fn a_slow_client_costs_no_process() {
    let program = good(", processes = 1, silence = \"1200ms\"");
    let before = pid(&program);
    let mut slow = asking(&program, "/app/large");
    slow.read_exact(&mut [0; 1000]).expect("an answer");
    std::thread::sleep(Duration::from_secs(3));
    let rest = read_all(&mut slow).expect("an answer");
    assert!(rest.len() > (64 << 20) - 1000, "{}", rest.len());
    assert_eq!(pid(&program), before);
    // One that takes too long in all loses its connection.
    let program = good(", processes = 1, time = \"300ms\"");
    let before = pid(&program);
    let mut slow = asking(&program, "/app/large");
    wait_until("the end of its time", || {
        program.count("flash_upstream_cut_total") == 1
    });
    assert_eq!(read_all(&mut slow), None);
    assert_eq!(pid(&program), before);
    assert_eq!(program.count("flash_upstream_failures_total"), 0);
}

struct Elsewhere(Child);

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

fn listens(socket: &Path, user: Option<u32>) -> Elsewhere {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../application/python");
    let program = format!(
        "import flash_application as f, os\nos.setuid({})\n\
         f.serve(lambda r: r.answer(200, [], str(os.getpid()).encode()), {socket:?}, 2)",
        user.unwrap_or_else(|| rustix::process::getuid().as_raw()),
    );
    let mut command = Command::new("python3");
    let command = command.args(["-c", &program]).env("PYTHONPATH", library);
    let child = command
        .process_group(0)
        .spawn()
        .expect("it can be executed");
    wait_until("a socket", || socket.exists());
    Elsewhere(child)
}

#[test]
fn an_application_can_be_started_elsewhere() {
    let place = tempfile::tempdir().expect("a directory");
    let socket = place.path().join("app.sock");
    let config = format!(
        "[[server]]\n[[server.location]]\npath = \"/app\"\n\
         application = {{ to = \"unix:{}\", processes = 2 }}\n",
        socket.display()
    );
    let program = Program::start(&config, &[]);
    let running = listens(&socket, None);
    let mut first = String::new();
    wait_until("its answer", || {
        let answer = get(&program, "/app/x");
        first.clone_from(&answer.body);
        answer.status == 200
    });
    drop(running);
    let again = listens(&socket, None);
    wait_until("its answer", || {
        let answer = get(&program, "/app/x");
        answer.status == 200 && answer.body != first
    });
    drop(again);
    let errors = program.end();
    assert!(errors.contains("no connection to "), "{errors}");
}

#[test]
fn who_listens_elsewhere_is_looked_at() {
    if !rustix::process::getuid().is_root() {
        return debox_skipped::skipped("it takes root to be another user");
    }
    let place = tempfile::tempdir().expect("a directory");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(place.path(), open).expect("it is ours");
    let socket = place.path().join("app.sock");
    let _running = listens(&socket, Some(65_534));
    let config = |user: &str| {
        format!(
            "[[server]]\n[[server.location]]\npath = \"/app\"\n\
             application = {{ to = \"unix:{}\", wait = \"300ms\"{user} }}\n",
            socket.display()
        )
    };
    let program = Program::start(&config(""), &[]);
    assert_eq!(get(&program, "/app/x").status, 503);
    let errors = program.end();
    assert!(errors.contains("the user 65534 listens at "), "{errors}");
    let program = Program::start(&config(", user = \"nobody\""), &[]);
    wait_until("its answer", || get(&program, "/app/x").status == 200);
}

#[test]
fn what_cannot_be_is_refused_with_its_remedy() {
    let server = "[[server]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"root\"\n";
    let location = "[[server.location]]\npath = \"/app\"\napplication = ";
    for (table, what) in [
        (
            "{ command = [\"true\"] }\nrate = \"1M\"",
            "cannot limit its `rate`",
        ),
        ("{ }", "it has no `command`"),
        ("{ command = [] }", "`command` is empty"),
        (
            "{ command = [\"no-such-program\"] }",
            "no-such-program is no program",
        ),
        ("{ command = [\"./root\"] }", "./root is no program"),
        (
            "{ command = [\"true\"], directory = \"none\" }",
            "there is no directory ",
        ),
        (
            "{ command = [\"true\"], user = \"root\" }",
            "`user` is who listens at `to`",
        ),
        ("{ command = [\"true\"], to = \"unix:/a\" }", "remove one"),
        ("{ to = \"127.0.0.1:1\" }", "`to` is a Unix socket"),
        (
            "{ to = \"unix:/a\", directory = \"root\" }",
            "are for a `command`",
        ),
        ("{ command = [\"true\"], processes = 0 }", "from 1 to 256"),
        (
            "{ command = [\"true\"] }\nproxy = \"http://127.0.0.1:1\"",
            "`cgi` and `application`",
        ),
        (
            "{ command = [\"true\"] }\nupstream = { read = \"1s\" }",
            "remove `upstream`",
        ),
    ] {
        let said = check(&format!("{server}{location}{table}\n"), &[("a", "")]);
        assert!(
            said.contains(what) && said.contains("flash.toml:"),
            "{table}: {said}"
        );
    }
}
