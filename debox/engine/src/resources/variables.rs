//! Names for the kernel's own variables: the locks that belong to no file and no process.

use std::cell::OnceCell;

/// The kernel and its modules are above this address; allocated memory is below.
const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// The largest kernel; modules follow beyond it.
const IMAGE_SIZE: u64 = 256 << 20;

/// A lock is in the variable that begins below it, unless that is farther away than any variable is
/// large.
const VARIABLE_SIZE: u64 = 64 << 10;

/// Read when the first name is requested: that takes as long as a short session.
#[derive(Default)]
pub(super) struct KernelVariables {
    symbols: OnceCell<Symbols>,
}

#[derive(Default)]
struct Symbols {
    /// By address. Empty where the kernel lists functions only (CONFIG_KALLSYMS_ALL is not set).
    variables: Vec<(u64, Box<str>)>,
    first_function: Option<u64>,
    first_of_modules: Option<u64>,
}

impl KernelVariables {
    /// The variable at an address, or the address relative to `_stext`, as in the kernel's build;
    /// `None` for allocated memory.
    pub fn name(&self, address: u64) -> Option<String> {
        if address < IMAGE {
            return None;
        }
        let read = || {
            let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
            Symbols::of(&text)
        };
        self.symbols.get_or_init(read).name(address)
    }
}

impl Symbols {
    fn of(text: &str) -> Symbols {
        let mut symbols = Symbols::default();
        let mut lists_static = false;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let address = u64::from_str_radix(address, 16).unwrap_or(0);
            if address == 0 {
                continue; // hidden
            }
            if name == "_stext" {
                symbols.first_function = Some(address);
            }
            if words.next().is_some() {
                let first = symbols.first_of_modules.get_or_insert(address);
                *first = address.min(*first);
            }
            lists_static |= matches!(kind, "d" | "b");
            if matches!(kind, "d" | "D" | "b" | "B") {
                symbols.variables.push((address, name.into()));
            }
        }
        // Otherwise the list only has a few markers, such as the beginnings of sections.
        if !lists_static {
            symbols.variables.clear();
        }
        symbols.variables.sort_unstable();
        symbols
    }

    fn name(&self, address: u64) -> Option<String> {
        let after = self.variables.partition_point(|(at, _)| *at <= address);
        if let Some((at, name)) = self.variables[..after].last() {
            match address - at {
                0 => return Some(name.to_string()),
                offset if offset < VARIABLE_SIZE => return Some(format!("{name}+{offset:#x}")),
                _ => {}
            }
        }
        if self.first_of_modules.is_some_and(|first| address >= first) {
            return None;
        }
        let offset = address.checked_sub(self.first_function?)?;
        (offset < IMAGE_SIZE).then(|| format!("_stext+{offset:#x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTIONS: &str = "\
ffffffff81000000 T _stext
ffffffff82000000 T last_function
ffffffff82400000 D __start_rodata
ffffffffc0001000 t in_module\t[module]
";

    #[test]
    fn a_variable_has_its_name() {
        let text = format!(
            "{FUNCTIONS}ffffffff83000100 d console_sem\n\
             ffffffff83000200 B table\n\
             ffffffffc0002000 d module_lock\t[module]\n"
        );
        let symbols = Symbols::of(&text);
        let name = |address| symbols.name(address);
        assert_eq!(name(0xffffffff83000100).as_deref(), Some("console_sem"));
        assert_eq!(name(0xffffffff83000208).as_deref(), Some("table+0x8"));
        assert_eq!(name(0xffffffffc0002000).as_deref(), Some("module_lock"));
        let far_off = name(0xffffffff83100000);
        assert_eq!(far_off.as_deref(), Some("_stext+0x2100000"));
        assert_eq!(name(0xffffffffc0001000), None);
    }

    #[test]
    fn where_only_functions_are_listed_the_build_tells() {
        let symbols = Symbols::of(FUNCTIONS);
        let name = symbols.name(0xffffffff83000100);
        assert_eq!(name.as_deref(), Some("_stext+0x2000100"));
        assert_eq!(symbols.name(0xffffffffc0002000), None);
        assert_eq!(Symbols::of("").name(0xffffffff83000100), None);
    }

    #[test]
    fn what_was_allocated_has_no_name() {
        let variables = KernelVariables::default();
        assert_eq!(variables.name(0xffff888012345678), None);
        assert_eq!(variables.name(0), None);
        assert!(variables.symbols.get().is_none(), "nothing was read");
    }
}
