// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server with an application in Python.

use std::path::Path;
use std::sync::LazyLock;

use super::program::{Answer, Program};

/// Does what the path says, by the library.
const GOOD: &str = include_str!("good.py");
/// Speaks the protocol without the library, and wrongly where the path says so.
const BAD: &str = include_str!("bad.py");

/// `settings`: further ones of the application, each with a comma in front. `above`: settings in front of the server's.
pub fn application(program: &str, settings: &str, above: &str) -> Program {
    let config = config(program, settings, above);
    Program::start(&config, &files())
}

/// What is below the directory of the configuration.
pub fn files() -> [(&'static str, &'static str); 4] {
    static LARGE: LazyLock<String> = LazyLock::new(|| "x".repeat(1 << 20));
    [
        ("good.py", GOOD),
        ("bad.py", BAD),
        ("root/file", "a file\n"),
        ("root/large", LARGE.as_str()),
    ]
}

pub fn config(program: &str, settings: &str, above: &str) -> String {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../application/python");
    let library = library.canonicalize().expect("it is there");
    let library = library.display();
    format!(
        "{above}log = \"access.log\"\nlog_format = \"json\"\n[[server]]\nheaders = {{ X-Own = \"1\" }}\n\
         [[server.location]]\npath = \"/app\"\n\
         application = {{ command = [\"python3\", \"{program}\"], environment = {{ PYTHONPATH = \"{library}\", \
         PYTHONDONTWRITEBYTECODE = \"1\" }}{settings} }}\n"
    )
}

/// Its connection ends with its answer.
pub fn get(program: &Program, target: &str) -> Answer {
    program.ask("GET", target, "")
}
