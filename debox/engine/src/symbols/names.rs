//! The kernel's names as a table that is read once and then only searched: for signal handlers, which can
//! neither allocate nor wait.

use std::borrow::Cow;

use anyhow::{ensure, Context, Result};

use super::demangle;

/// The kernel's functions by address.
pub(crate) struct KernelNames {
    starts: Vec<u64>,
    /// The offset in `text` at which each name begins, and one more for the end.
    places: Vec<u32>,
    text: String,
}

impl KernelNames {
    /// Reads the running kernel's names, which takes some tenths of a second.
    pub fn read() -> Result<KernelNames> {
        const LIST: &str = "/proc/kallsyms";
        let list = std::fs::read_to_string(LIST).with_context(|| {
            format!("cannot read {LIST}, without which sleeps have no labels: mount /proc")
        })?;
        let names = KernelNames::parse(&list)?;
        ensure!(
            !names.starts.is_empty(),
            "{LIST} hides the addresses of the kernel's functions, without which sleeps have no labels: \
             see kernel.kptr_restrict in `debox doctor`"
        );
        Ok(names)
    }

    /// Parses the text of `/proc/kallsyms`: address, type, name, and possibly a module. Symbols without
    /// an address are left out. Of several names for one address, the first is used, as in
    /// [`super::Symbols`].
    fn parse(list: &str) -> Result<KernelNames> {
        let mut symbols: Vec<(u64, &str)> = list
            .lines()
            .filter_map(|line| {
                let mut words = line.split_ascii_whitespace();
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                let name = words.nth(1)?;
                (address != 0).then_some((address, name))
            })
            .collect();
        symbols.sort_by_key(|(address, _)| *address);
        symbols.dedup_by_key(|(address, _)| *address);
        let symbols: Vec<(u64, Cow<'_, str>)> = symbols
            .into_iter()
            .map(|(address, name)| (address, demangle(Cow::Borrowed(name))))
            .collect();
        let length = symbols.iter().map(|(_, name)| name.len()).sum();
        let mut names = KernelNames {
            starts: Vec::with_capacity(symbols.len()),
            places: Vec::with_capacity(symbols.len() + 1),
            text: String::with_capacity(length),
        };
        for (address, name) in symbols {
            names.starts.push(address);
            names.places.push(u32::try_from(names.text.len())?);
            names.text.push_str(&name);
        }
        names.places.push(u32::try_from(names.text.len())?);
        Ok(names)
    }

    /// The function that an address is in. No allocation.
    pub fn find(&self, address: u64) -> Option<&str> {
        let (function, _) = self.place(address)?;
        Some(function)
    }

    /// The same, with the offset of the address in the function.
    pub fn place(&self, address: u64) -> Option<(&str, u64)> {
        let at = self.starts.partition_point(|start| *start <= address);
        let at = at.checked_sub(1)?;
        let (from, to) = (*self.places.get(at)?, *self.places.get(at + 1)?);
        let function = self.text.get(from as usize..to as usize)?;
        Some((function, address - self.starts[at]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Symbols;
    use super::*;

    #[test]
    fn functions_are_found_by_any_of_their_addresses() {
        let list = "0000000000000000 A hidden\n\
                    ffffffff81000200 t second.isra.0\n\
                    ffffffff81000100 T first\n\
                    ffffffff81000100 T also_first\n\
                    ffffffffc0000000 t of_a_module\t[nbd]\n\
                    ffffffffc0000100 t i\t[nbd]\n\
                    ffffffffc0000200 t _RNvC9of_a_rust6module\n\
                    not a symbol\n";
        let names = KernelNames::parse(list).unwrap();
        assert_eq!(names.find(0), None);
        assert_eq!(names.find(0xffff_ffff_8100_00ff), None);
        assert_eq!(names.find(0xffff_ffff_8100_0100), Some("first"));
        assert_eq!(names.find(0xffff_ffff_8100_01ff), Some("first"));
        assert_eq!(names.find(0xffff_ffff_8100_0200), Some("second.isra.0"));
        assert_eq!(names.place(0xffff_ffff_8100_01ff), Some(("first", 0xff)));
        assert_eq!(names.find(0xffff_ffff_bfff_ffff), Some("second.isra.0"));
        assert_eq!(names.find(0xffff_ffff_c000_0001), Some("of_a_module"));
        // The names as in reports.
        assert_eq!(names.find(0xffff_ffff_c000_0101), Some("i"));
        assert_eq!(names.find(u64::MAX), Some("of_a_rust::module"));
        assert_eq!(KernelNames::parse("").unwrap().find(1), None);
    }

    /// Reports use another source of names; labels must be the same with both.
    #[test]
    fn names_are_those_of_reports() {
        let Ok(names) = KernelNames::read() else {
            debox_skipped::skipped("names_are_those_of_reports: no addresses in /proc/kallsyms");
            return;
        };
        let symbols = Symbols::default();
        let text = |name: &&str| !name.starts_with("bpf_prog_");
        // Skips the lowest address, which has several names: the other source uses the last of these.
        let functions = names.starts.iter().skip(1).step_by(97);
        let mut compared = 0;
        for address in functions.map(|start| start + 1) {
            let Some(name) = names.find(address).filter(text) else {
                continue;
            };
            assert_eq!(symbols.kernel(address).function, name, "{address:#x}");
            compared += 1;
        }
        assert!(compared > 100, "{compared} names");
    }
}
