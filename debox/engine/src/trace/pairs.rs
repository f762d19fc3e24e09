//! fentry and fexit: a pair of programs for each function, copies of the two in the skeleton.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;

use anyhow::{bail, Result};
use libbpf_rs::btf::types::Func;
use libbpf_rs::btf::Btf;
use libbpf_rs::{libbpf_sys, ProgramMut};

use super::attach::to_its_function;
use super::attached::Attached;
use super::choose::SAME_NAME;
use super::descriptor_limit::DescriptorLimit;
use super::kernel_functions::{Function, KernelFunctions};
use crate::kernel::objects::owned;

/// The most functions: each takes two programs of its own and some milliseconds to attach.
const FUNCTIONS_MAX: usize = 600;
/// Descriptors per function: a program and its link, for the entry and for the return.
const DESCRIPTORS_EACH: usize = 4;

const IN_MODULE: &str = "in a module, which fentry does not look into yet";
const NO_TYPE: &str = "the kernel's types (BTF) do not describe it";

/// Attaches to the functions, in their order, and returns to how many.
pub(super) fn attach(
    enter: &ProgramMut,
    leave: &ProgramMut,
    functions: &[Function],
    kernel: &KernelFunctions,
    attached: &mut Attached,
    denied: &mut BTreeMap<String, Vec<String>>,
) -> Result<usize> {
    let types = Btf::from_vmlinux()?;
    let room = DescriptorLimit::make(FUNCTIONS_MAX * DESCRIPTORS_EACH)?;
    let most = room.count() / DESCRIPTORS_EACH;
    let mut count = 0;
    for function in functions {
        let refusal = if count == most {
            Some(if most == FUNCTIONS_MAX {
                format!("more functions than fentry can take at once ({most})")
            } else {
                format!(
                    "more functions than there may be open files for fentry ({most}; ulimit -H -n)"
                )
            })
        } else if function.module.is_some() {
            Some(IN_MODULE.to_string())
        } else if !kernel.is_unique(function) {
            Some(SAME_NAME.to_string())
        } else if let Some(id) = type_of(&types, &function.name) {
            // The return first, so that no entry is seen without its return.
            let pair = [
                (leave, libbpf_sys::BPF_TRACE_FEXIT),
                (enter, libbpf_sys::BPF_TRACE_FENTRY),
            ];
            let done = pair
                .iter()
                .try_for_each(|(program, kind)| attach_one(program, *kind, id, &room, attached));
            done.err()
                .map(|error| format!("refused by the kernel: {error}"))
        } else {
            Some(NO_TYPE.to_string())
        };
        match refusal {
            Some(why) => denied.entry(why).or_default().push(function.name.clone()),
            None => count += 1,
        }
    }
    if count == 0 {
        bail!("none of the functions can be probed with fentry");
    }
    Ok(count)
}

fn type_of(types: &Btf, name: &str) -> Option<u32> {
    let function: Func = types.type_by_name(name)?;
    Some(function.type_id().into())
}

fn attach_one(
    template: &ProgramMut,
    kind: libbpf_sys::bpf_attach_type,
    id: u32,
    room: &DescriptorLimit,
    attached: &mut Attached,
) -> io::Result<()> {
    let options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
        expected_attach_type: kind,
        attach_btf_id: id,
        ..Default::default()
    };
    let name = CString::new(template.name().as_encoded_bytes()).unwrap_or_default();
    let instructions = template.insns();
    // SAFETY: names, instructions and options outlive the call, which only reads them. The
    // instructions are those that the kernel has already accepted, with the maps' descriptors.
    let program = owned(unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_TRACING,
            name.as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as _,
            std::ptr::from_ref(&options).cast_mut(),
        )
    })?;
    let link = to_its_function(program.as_fd())?;
    attached.descriptors.push(room.take(link)?);
    attached.programs.push(room.take(program)?);
    Ok(())
}
