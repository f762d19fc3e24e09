//! A program of which `debox run --tap user` must know whether the tap works in it.
#![no_main]

#[path = "../../debox/cli/src/tappable.rs"]
mod tappable;

/// No program is looked for in the directories of this machine.
mod command {
    pub fn find(name: &std::ffi::OsStr) -> anyhow::Result<std::path::PathBuf> {
        Ok(name.into())
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (_file, path) = debox::outside::memory_file(bytes);
    if let Err(refusal) = tappable::require_tappable(&path, tappable::USE_KERNEL_TAP) {
        assert!(!refusal.to_string().is_empty());
    }
});
