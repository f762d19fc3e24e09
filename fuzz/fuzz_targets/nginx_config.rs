//! A configuration of nginx: whatever its bytes are, it is read or refused, and what is translated is a configuration.
#![no_main]

use std::path::Path;
use std::rc::Rc;

use flash::nginx::{syntax, translate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let Ok(all) = syntax::parse(&text, &Rc::from(Path::new("nginx.conf"))) else {
        return;
    };
    let nowhere = Path::new("/nonexistent");
    if let Ok(made) = translate::translate(&all, nowhere, nowhere) {
        let read: Result<toml::Table, _> = made.text.parse();
        assert!(read.is_ok(), "{read:?}\n{}", made.text);
    }
});
