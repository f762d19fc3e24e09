// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program linked statically has no dynamic linker that could load the user tap.

use debox_real::bare;
use debox_real::require;
use debox_real::take_turn;
use debox_real::Tap;
use debox_tests::Debox;
use debox_tests::Scratch;

use crate::golang::Refusal;

const SOURCE: &str =
    "#include <unistd.h>\nint main(void) { return write(1, \"ran\\n\", 4) != 4; }\n";

#[test]
fn a_static_program_has_the_kernel_tap_only() {
    let _turn = take_turn();
    let scratch = Scratch::new();
    let (source, program) = (scratch.file("static.c"), scratch.file("static"));
    std::fs::write(&source, SOURCE).expect("scratch directory is writable");
    let compile = [
        require("gcc"),
        "-static".into(),
        "-o".into(),
        program.clone(),
        source,
    ];
    bare(&compile, scratch.path());

    let story = Tap::Kernel.run(&[&program]);
    assert_eq!(story.output, "ran\n");
    Debox::bare(["run", "--tap", "user", "--"])
        .options([program.as_os_str()])
        .finish()
        .refuses_the_user_tap();
}
