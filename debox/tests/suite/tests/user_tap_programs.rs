// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that the user tap refuses, in words, and real ones that run under it as they do alone.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use debox_tests::program;
use debox_tests::skipped;
use debox_tests::Debox;
use debox_tests::Scratch;

#[track_caller]
fn refused(path: &Path, words: &[&str]) {
    Debox::command(path)
        .options(["--tap", "user"])
        .finish()
        .code(125)
        .says(words)
        .says(&["--tap kernel"]);
}

fn script(scratch: &Scratch, name: &str, text: &str) -> std::path::PathBuf {
    let path = scratch.file(name);
    std::fs::write(&path, text).expect("scratch directory is writable");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("own file");
    path
}

#[test]
fn static_programs_are_refused() {
    let scratch = Scratch::new();
    let fixed = program("count_static");
    refused(&fixed, &["statically linked"]);
    let direct = script(&scratch, "direct", &format!("#!{}\n", fixed.display()));
    refused(&direct, &["statically linked"]);
    refused(
        &script(
            &scratch,
            "by_env",
            &format!("#!/usr/bin/env {}\n", fixed.display()),
        ),
        &["statically linked"],
    );
    refused(
        &script(&scratch, "twice", &format!("#!{}\n", direct.display())),
        &["statically linked"],
    );
}

#[test]
fn set_user_id_programs_are_refused() {
    let scratch = Scratch::new();
    let copy = scratch.file("privileged");
    std::fs::copy(program("count"), &copy).expect("scratch directory is writable");
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o4755)).expect("own file");
    refused(&copy, &["set-user-id"]);
}

/// Nothing but the header of a 32-bit program: what is read before anything is started.
#[test]
fn programs_of_other_machines_are_refused() {
    let scratch = Scratch::new();
    let mut header = [0u8; 52];
    header[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 1, 1, 1]);
    header[16..20].copy_from_slice(&[2, 0, 3, 0]); // an executable, for the 386
    header[20] = 1;
    header[40] = 52;
    let path = scratch.file("old");
    std::fs::write(&path, header).expect("scratch directory is writable");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("own file");
    refused(&path, &["64-bit"]);
}

/// Without a compiler for another libc: a program whose loader is there but is not glibc's.
#[test]
fn programs_of_another_libc_are_refused() {
    let scratch = Scratch::new();
    let (source, built) = (scratch.file("empty.c"), scratch.file("foreign"));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("writable");
    let loader = program("raw_clone"); // static: nothing of glibc is in it
    let compiled = Command::new("cc")
        .arg(format!("-Wl,--dynamic-linker={}", loader.display()))
        .arg("-o")
        .args([&built, &source])
        .status();
    assert!(compiled.expect("the C compiler").success());
    refused(&built, &["is loaded by", "glibc"]);
    let by_script = script(&scratch, "script", &format!("#!{} -x\n", built.display()));
    refused(&by_script, &["foreign is loaded by"]);
    let by_env = format!("#!/usr/bin/env -S A=b {} -x\n", built.display());
    refused(
        &script(&scratch, "by_env", &by_env),
        &["foreign is loaded by"],
    );
}

/// Under a command that is tapped, a program of another libc is not seen, and runs as it does alone.
#[test]
fn programs_of_another_libc_run_unseen() {
    let scratch = Scratch::new();
    let (source, built) = (scratch.file("small.c"), scratch.file("small"));
    let text = "#include <setjmp.h>\n#include <stdio.h>\n#include <unistd.h>\n\
                int main(void) {\n jmp_buf here;\n pid_t parent = getppid();\n\
                if (!setjmp(here)) longjmp(here, 1);\n\
                printf(\"of musl %d\\n\", parent > 0);\n return 3;\n}\n";
    std::fs::write(&source, text).expect("writable");
    let compiled = Command::new("musl-gcc")
        .arg("-o")
        .args([&built, &source])
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        return skipped("programs_of_another_libc_run_unseen", "no musl-gcc here");
    }
    refused(&built, &["ld-musl-x86_64.so.1"]);
    let path = built.to_string_lossy();
    runs_as_alone(&["sh", "-c", &format!("{path}; echo $?; {path}")]);
}

#[test]
fn programs_with_file_capabilities_are_refused() {
    let scratch = Scratch::new();
    let copy = scratch.file("capable");
    std::fs::copy(program("count"), &copy).expect("scratch directory is writable");
    // The extended attribute's format 2: magic and "effective", then two words each of permitted
    // and inheritable capabilities; CAP_NET_RAW is number 13.
    let words: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let path = std::ffi::CString::new(copy.to_str().expect("UTF-8")).expect("no zero byte");
    let name = c"security.capability";
    // SAFETY: both names are valid C strings, and the value is as long as it says.
    let set = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if set != 0 {
        return skipped(
            "programs_with_file_capabilities_are_refused",
            "no file capabilities on this file system",
        );
    }
    refused(&copy, &["file capabilities"]);
    let by_script = script(&scratch, "script", &format!("#!{}\n", copy.display()));
    refused(&by_script, &["capable has file capabilities"]);
}

#[test]
fn programs_that_cannot_be_read_are_refused() {
    let scratch = Scratch::new();
    let copy = scratch.file("unreadable");
    std::fs::copy(program("count"), &copy).expect("scratch directory is writable");
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o111)).expect("own file");
    let without = "--bounding-set=-dac_override,-dac_read_search";
    Debox::command(&copy)
        .options(["--tap", "user"])
        .finish_under(&["setpriv", without])
        .code(125)
        .says(&[
            "cannot read",
            "unreadable",
            "Permission denied",
            "--tap kernel",
        ]);
}

#[test]
fn go_programs_are_refused() {
    let scratch = Scratch::new();
    let (source, built) = (scratch.file("small.go"), scratch.file("small"));
    std::fs::write(&source, "package main\n\nfunc main() {}\n").expect("writable");
    let go = Command::new("go")
        .args(["build", "-o"])
        .args([&built, &source])
        .env("GOCACHE", scratch.file("cache"))
        .env("GO111MODULE", "off")
        .output();
    match go {
        Ok(output) if output.status.success() => refused(&built, &["Go program"]),
        _ => skipped("go_programs_are_refused", "no Go compiler here"),
    }
}

/// Runs a command alone and under the tap: same output, same status, a report that adds up.
#[track_caller]
fn runs_as_alone(command: &[&str]) {
    let Ok(alone) = Command::new(command[0]).args(&command[1..]).output() else {
        return skipped(command[0], "not installed here");
    };
    let scratch = Scratch::new();
    let report = scratch.file("report.json");
    let finished = Debox::command(command[0])
        .args(&command[1..])
        .options(["--tap", "user", "--format", "json", "--output"])
        .options([report.as_os_str()])
        .finish()
        .code(alone.status.code().expect("it ends by itself"));
    assert_eq!(
        finished.stdout,
        String::from_utf8_lossy(&alone.stdout),
        "{command:?}"
    );
    finished.measured(&report);
}

#[test]
fn shells_and_pipelines_run_as_alone() {
    runs_as_alone(&[
        "bash",
        "-c",
        "trap 'echo term' TERM; trap 'echo exit' EXIT; (sleep 0.1; kill -TERM $$) & wait; \
         for i in $(seq 20); do x=$(echo $i | tr 0-9 a-j); done; echo $x; exit 7",
    ]);
    runs_as_alone(&["sh", "-c", "tar cf - -C /usr/include . | gzip -1 | cksum"]);
    runs_as_alone(&[
        "sh",
        "-c",
        "seq 100 | xargs -P4 -n1 true; find /etc -name passwd",
    ]);
    runs_as_alone(&["timeout", "0.2", "sleep", "5"]);
}

#[test]
fn interpreters_run_as_alone() {
    runs_as_alone(&[
        "python3",
        "-c",
        "import threading, subprocess, time, queue, os\n\
         q = queue.Queue()\n\
         def work():\n\
         \x20   for i in range(200): os.getppid(); q.put(i)\n\
         \x20   time.sleep(0.02)\n\
         threads = [threading.Thread(target=work) for _ in range(8)]\n\
         [t.start() for t in threads]; [t.join() for t in threads]\n\
         print(q.qsize(), subprocess.check_output(['echo', 'hi']))\n\
         print(subprocess.run('exit 3', shell=True).returncode)\n",
    ]);
    runs_as_alone(&[
        "perl",
        "-e",
        "use Time::HiRes qw(ualarm sleep); for (1..5) { \
         eval { local $SIG{ALRM} = sub { die \"late\\n\" }; ualarm(10000); sleep 1 }; print $@ } \
         open(my $f, '-|', 'echo from a child'); print <$f>; exit 5",
    ]);
}

#[test]
fn a_database_and_a_compiler_run_as_alone() {
    let scratch = Scratch::new();
    let (base, source, object) = (
        scratch.file("base"),
        scratch.file("a.c"),
        scratch.file("a.o"),
    );
    std::fs::write(
        &source,
        "#include <stdio.h>\nint main(void) { return puts(\"a\"); }\n",
    )
    .expect("writable");
    runs_as_alone(&[
        "sh",
        "-c",
        &format!(
            "rm -f {0}; (echo 'pragma synchronous=full; create table t(x);'; for i in $(seq 50); \
             do echo \"insert into t values($i);\"; done; echo 'select sum(x) from t;') \
             | sqlite3 {0}",
            base.display()
        ),
    ]);
    runs_as_alone(&[
        "sh",
        "-c",
        &format!(
            "gcc -O2 -c {} -o {1} && cksum < {1}",
            source.display(),
            object.display()
        ),
    ]);
}
