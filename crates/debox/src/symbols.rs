//! Names for addresses, of the kernel and of the monitored programs.

use std::cell::RefCell;
use std::collections::HashMap;

use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};

use crate::process::Processes;

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

/// Looks names up, once for each address.
pub struct Symbols {
    symbolizer: Symbolizer,
    kernel: RefCell<HashMap<u64, Frame>>,
    user: RefCell<HashMap<(u32, u64, bool), String>>,
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

    /// `function+0xOFF (file:line)` of a program's address, or its module and offset in that.
    /// `is_return`: the address is where a call returns to, so the call is just before it.
    pub(crate) fn user(
        &self,
        processes: &Processes,
        tgid: u32,
        address: u64,
        is_return: bool,
    ) -> String {
        if let Some(known) = self.user.borrow().get(&(tgid, address, is_return)) {
            return known.clone();
        }
        let name = self.look_up_user(processes, tgid, address, is_return);
        self.user
            .borrow_mut()
            .insert((tgid, address, is_return), name.clone());
        name
    }

    fn look_up_user(
        &self,
        processes: &Processes,
        tgid: u32,
        address: u64,
        is_return: bool,
    ) -> String {
        let Some(located) = processes.find(tgid, address) else {
            return format!("{address:#x} (process {tgid} ended before it could be read)");
        };
        let Some(module) = &located.module else {
            return format!("{}+{:#x}", located.name, located.file_offset);
        };
        let short = module
            .path
            .file_name()
            .unwrap_or(module.path.as_os_str())
            .to_string_lossy();
        let source = Source::Elf(Elf::new(module.open_path()));
        let back = u64::from(is_return);
        let input = Input::FileOffset(located.file_offset - back);
        match self.symbolizer.symbolize_single(&source, input) {
            Ok(Symbolized::Sym(sym)) => {
                let place = match line_of(sym.code_info.as_deref()) {
                    Some(line) => line,
                    None => short.into_owned(),
                };
                format!("{}+{:#x} ({place})", sym.name, sym.offset as u64 + back)
            }
            _ => format!("{short}+{:#x}", located.file_offset),
        }
    }
}
