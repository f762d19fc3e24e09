//! Names for addresses of the kernel and of the monitored programs.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer};
use blazesym::MaybeDefault;

pub use crate::frame::Frame;
use crate::frame::Kind;
use crate::module::Module;
use crate::packages::fetched_debug_information;
use crate::stacks::tables::Cache;

mod demangle;
mod names;

pub(crate) use demangle::demangle;
pub(crate) use names::KernelNames;

/// A file, an offset in it, and whether that is a return address.
type Place = (u32, u64, bool);

/// Looks up names, once for each address.
pub struct Symbols {
    symbolizer: Symbolizer,
    kernel: RefCell<HashMap<u64, Frame>>,
    user: RefCell<HashMap<Place, Rc<[Frame]>>>,
    tables: RefCell<Cache>,
    /// By file; see [`Symbols::fetched`].
    fetched: RefCell<HashMap<u32, Option<PathBuf>>>,
    /// Files whose functions have no names, by the last component of their paths.
    nameless: RefCell<HashMap<String, PathBuf>>,
    /// The kernel's names, if they are in memory already.
    names: Option<&'static KernelNames>,
    has_kernel_lines: bool,
}

impl Default for Symbols {
    fn default() -> Self {
        Symbols {
            // The symbolizer's own demangling mistakes names of C functions for types; see `demangle`.
            symbolizer: Symbolizer::builder().enable_demangling(false).build(),
            kernel: RefCell::default(),
            user: RefCell::default(),
            tables: RefCell::default(),
            fetched: RefCell::default(),
            nameless: RefCell::default(),
            names: None,
            has_kernel_lines: true,
        }
    }
}

fn line_of(code: Option<&CodeInfo<'_>>) -> Option<String> {
    let code = code?;
    let file = code.file.to_string_lossy();
    Some(match code.line {
        Some(line) => format!("{file}:{line}"),
        None => file.into_owned(),
    })
}

/// A function, and the offset of an address from its entry.
struct At<'a> {
    function: Cow<'a, str>,
    offset: u64,
}

/// The suffix that compilers give to the part of a function that they expect to run rarely and place
/// elsewhere.
const COLD: &str = ".cold";

/// The function that the debug information names, with the offset corrected by the symbol at the address.
///
/// Debug information has one name for all parts of a function, which may be far apart, and the symbolizer
/// takes the lowest address of all parts for the function's start. Each part has a symbol of its own, unless
/// it was stripped, and an entry in the unwinding tables: `part` returns the distance of the address from the
/// part's start.
fn at_part<'a>(
    described: &'a Sym<'_>,
    symbol: Option<&'a Sym<'_>>,
    part: impl Fn() -> Option<u64>,
) -> At<'a> {
    // A symbol without a size is only the nearest one, and may belong to another function.
    let symbol = symbol.filter(|symbol| symbol.size.is_some());
    let offset = match symbol {
        Some(symbol) if symbol.name.contains(COLD) => {
            return At {
                function: demangle(Cow::Borrowed(&symbol.name)),
                offset: symbol.offset as u64,
            };
        }
        Some(symbol) if symbol.addr <= described.addr => None,
        // A label inside the function is also a symbol, but has no entry in the tables.
        Some(symbol) => part().or(Some(symbol.offset as u64)),
        None => part(),
    };
    let lowest = described.offset as u64;
    let function = demangle(Cow::Borrowed(&described.name));
    At {
        function: whole_name(described, symbol, &function).unwrap_or(function),
        offset: offset.map_or(lowest, |offset| offset.min(lowest)),
    }
}

/// Debug information that only has lines names a function without its module or class; the symbol has them.
fn whole_name<'a>(
    described: &Sym<'_>,
    symbol: Option<&'a Sym<'_>>,
    function: &str,
) -> Option<Cow<'a, str>> {
    let same = symbol.filter(|symbol| symbol.addr == described.addr)?;
    let own = function.split('<').next().unwrap_or_default();
    let is_short = !own.is_empty() && !own.contains("::");
    let whole = demangle(Cow::Borrowed(&same.name));
    (is_short && whole.contains("::")).then_some(whole)
}

impl Symbols {
    /// Uses these names for the kernel's functions. Files are read only for source lines, if the machine has
    /// debug information of its kernel.
    pub(crate) fn with_names(names: &'static KernelNames) -> Symbols {
        let debug_information = Source::Kernel(Kernel {
            kallsyms: MaybeDefault::None,
            ..Kernel::default()
        });
        // A separate symbolizer: without the other source, it would assume that the kernel is not relocated,
        // and cache that.
        let input = Input::AbsAddr(0);
        let apart = Symbolizer::new();
        let found = apart.symbolize_single(&debug_information, input);
        Symbols {
            names: Some(names),
            has_kernel_lines: found.is_ok(),
            ..Symbols::default()
        }
    }

    /// The kernel function at an address.
    pub fn kernel(&self, address: u64) -> Frame {
        if let Some(known) = self.kernel.borrow().get(&address) {
            return known.clone();
        }
        let described = || {
            if self.names.is_some() && !self.has_kernel_lines {
                return None;
            }
            let source = Source::Kernel(Kernel::default());
            let input = Input::AbsAddr(address);
            let found = self.symbolizer.symbolize_single(&source, input);
            Some(self.kernel_frame(address, &found.ok()?.into_sym()?))
        };
        let named = || {
            let (function, offset) = self.names?.place(address)?;
            Some(Frame::function(function, offset))
        };
        let frame = described().or_else(named);
        let frame = frame.unwrap_or_else(|| Frame::address(address));
        self.kernel.borrow_mut().insert(address, frame.clone());
        frame
    }

    fn kernel_frame(&self, address: u64, sym: &Sym<'_>) -> Frame {
        let line = line_of(sym.code_info.as_deref());
        // Without debug information, the name already is the kernel's own symbol.
        let symbol = line.is_some().then(|| {
            let source = Source::Kernel(Kernel {
                vmlinux: MaybeDefault::None,
                ..Kernel::default()
            });
            let input = Input::AbsAddr(address);
            self.symbolizer
                .symbolize_single(&source, input)
                .ok()?
                .into_sym()
        });
        // The kernel does not list the sizes of its functions: the nearest symbol is the function's.
        let At { function, offset } = match symbol.flatten() {
            Some(symbol) => At {
                function: demangle(symbol.name),
                offset: symbol.offset as u64,
            },
            None => At {
                function: demangle(Cow::Borrowed(&sym.name)),
                offset: sym.offset as u64,
            },
        };
        Frame {
            place: line,
            ..Frame::function(function, offset)
        }
    }

    /// Sets the place of an address, or of a number that stands for one.
    pub(crate) fn know(&self, address: u64, frame: Frame) {
        self.kernel.borrow_mut().insert(address, frame);
    }

    /// The frames of a place in a program: its function, or its module and the offset in that. Functions that
    /// are inlined there come first, innermost first. `is_return`: the address is where a call returns to, so
    /// the call is just before it.
    pub(crate) fn user(&self, module: &Module, file_offset: u64, is_return: bool) -> Rc<[Frame]> {
        let key = (module.id, file_offset, is_return);
        if let Some(known) = self.user.borrow().get(&key) {
            return Rc::clone(known);
        }
        let names: Rc<[Frame]> = self.look_up_user(module, file_offset, is_return).into();
        self.user.borrow_mut().insert(key, Rc::clone(&names));
        names
    }

    /// The path of a file in which a place had no name.
    pub(crate) fn path_of_nameless(&self, file: &str) -> Option<PathBuf> {
        self.nameless.borrow().get(file).cloned()
    }

    /// Debug information of a file, if debuginfod's client has fetched it; looked up once.
    fn fetched(&self, module: &Module) -> Option<PathBuf> {
        let mut fetched = self.fetched.borrow_mut();
        let look = || fetched_debug_information(&module.open_path());
        fetched.entry(module.id).or_insert_with(look).clone()
    }

    fn look_up_user(&self, module: &Module, file_offset: u64, is_return: bool) -> Vec<Frame> {
        let short = module.short_name();
        let back = u64::from(is_return);
        let place_in_file = file_offset.saturating_sub(back);
        let look_up_by = |elf: Elf, input: Input<u64>| {
            let found = self.symbolizer.symbolize_single(&Source::Elf(elf), input);
            found.ok()?.into_sym()
        };
        let look_up = |elf: Elf| look_up_by(elf, Input::FileOffset(place_in_file));
        let own = look_up(Elf::new(module.open_path()));
        let is_whole = own.as_ref().is_some_and(|sym| sym.code_info.is_some());
        let fetched = (!is_whole).then(|| self.fetched(module)).flatten();
        let look_up_fetched = |path: PathBuf| {
            // Debug information in a file of its own has the addresses of the program, not its offsets.
            let address = self.tables.borrow_mut().of(module).address(place_in_file)?;
            look_up_by(Elf::new(path), Input::VirtOffset(address))
        };
        let Some(sym) = fetched.and_then(look_up_fetched).or(own) else {
            let mut nameless = self.nameless.borrow_mut();
            let path = || module.path.clone();
            nameless.entry(short.to_string()).or_insert_with(path);
            return vec![Frame::function(short, file_offset)];
        };
        let mut symbols_alone = Elf::new(module.open_path());
        symbols_alone.debug_syms = false;
        let symbol = look_up(symbols_alone);
        let part = || self.tables.borrow_mut().of(module).distance(place_in_file);
        let at = at_part(&sym, symbol.as_ref(), part);
        let place =
            |code: Option<&CodeInfo<'_>>| Some(line_of(code).unwrap_or_else(|| short.to_string()));
        let outermost = Frame {
            place: place(sym.code_info.as_deref()),
            ..Frame::function(at.function, at.offset + back)
        };
        let inlined = sym.inlined.iter().map(|function| Frame {
            function: demangle(Cow::Borrowed(&function.name)).into_owned(),
            offset: None,
            kind: Kind::Inlined,
            place: place(function.code_info.as_ref()),
        });
        [outermost].into_iter().chain(inlined).rev().collect()
    }
}
