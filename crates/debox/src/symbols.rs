//! Names for addresses, of the kernel and of the monitored programs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};

use crate::process::Module;

mod names;

pub(crate) use names::KernelNames;

/// A kernel function and where in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// Without offset; the address in hexadecimal when it has no name.
    pub function: String,
    pub offset: u64,
    /// `file.c:123` where there is debug information.
    pub line: Option<String>,
}

impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.function)?;
        if !self.function.starts_with("0x") {
            write!(f, "+{:#x}", self.offset)?;
        }
        if let Some(line) = &self.line {
            write!(f, " ({line})")?;
        }
        Ok(())
    }
}

/// A file, an offset in it, and whether that is a return address.
type Place = (u32, u64, bool);

/// Looks names up, once for each address.
pub struct Symbols {
    symbolizer: Symbolizer,
    kernel: RefCell<HashMap<u64, Frame>>,
    user: RefCell<HashMap<Place, Rc<[String]>>>,
}

impl Default for Symbols {
    fn default() -> Self {
        Symbols {
            symbolizer: Symbolizer::new(),
            kernel: RefCell::default(),
            user: RefCell::default(),
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

impl Symbols {
    /// The kernel function at an address.
    pub fn kernel(&self, address: u64) -> Frame {
        if let Some(known) = self.kernel.borrow().get(&address) {
            return known.clone();
        }
        let source = Source::Kernel(Kernel::default());
        let frame = match self
            .symbolizer
            .symbolize_single(&source, Input::AbsAddr(address))
        {
            Ok(Symbolized::Sym(sym)) => Frame {
                function: sym.name.into_owned(),
                offset: sym.offset as u64,
                line: line_of(sym.code_info.as_deref()),
            },
            _ => Frame {
                function: format!("{address:#x}"),
                offset: 0,
                line: None,
            },
        };
        self.kernel.borrow_mut().insert(address, frame.clone());
        frame
    }

    /// From now on the address, or what stands for it, is that place.
    pub(crate) fn know(&self, address: u64, frame: Frame) {
        self.kernel.borrow_mut().insert(address, frame);
    }

    /// `function+0xOFF (file:line)` of a place in a program, or its module and offset in that;
    /// functions that are inlined there come first, innermost first.
    /// `is_return`: the address is where a call returns to, so the call is just before it.
    pub(crate) fn user(&self, module: &Module, file_offset: u64, is_return: bool) -> Rc<[String]> {
        let key = (module.id, file_offset, is_return);
        if let Some(known) = self.user.borrow().get(&key) {
            return Rc::clone(known);
        }
        let names: Rc<[String]> = self.look_up_user(module, file_offset, is_return).into();
        self.user.borrow_mut().insert(key, Rc::clone(&names));
        names
    }

    fn look_up_user(&self, module: &Module, file_offset: u64, is_return: bool) -> Vec<String> {
        let short = module.short_name();
        let source = Source::Elf(Elf::new(module.open_path()));
        let back = u64::from(is_return);
        let input = Input::FileOffset(file_offset.saturating_sub(back));
        let Ok(Symbolized::Sym(sym)) = self.symbolizer.symbolize_single(&source, input) else {
            return vec![format!("{short}+{file_offset:#x}")];
        };
        let place = |code: Option<&CodeInfo<'_>>| match line_of(code) {
            Some(line) => line,
            None => short.to_string(),
        };
        let outermost = format!(
            "{}+{:#x} ({})",
            sym.name,
            sym.offset as u64 + back,
            place(sym.code_info.as_deref())
        );
        let inlined = sym.inlined.iter().map(|function| {
            let place = place(function.code_info.as_ref());
            format!("{} (inlined) ({place})", function.name)
        });
        [outermost].into_iter().chain(inlined).rev().collect()
    }
}
