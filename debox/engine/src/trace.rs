//! The call tree inside the kernel: which functions monitored calls enter, how they nest, and how
//! long each takes.
//!
//! The probes are an object of their own (`debox/probe/trace.bpf.c`) that shares the session's maps of
//! tasks, threads and slots. The method depends on what the kernel offers, which is tried ([`offers`]);
//! if the kernel offers none, clock samples and tracepoints are used instead ([`Method::Sampled`]).

mod attach;
mod attached;
mod choose;
mod descriptor_limit;
mod events;
mod kernel_functions;
mod method;
mod offer;
mod options;
mod pairs;
mod sampled;
mod skeleton;
mod tree;

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{bail, Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::OpenObject;

use crate::kernel;
use crate::signals::Blocked;
use attached::Attached;
use kernel_functions::KernelFunctions;
use skeleton::{OpenTraceSkel, TraceSkel, TraceSkelBuilder};

pub use choose::groups;
pub use method::{Method, Offer};
pub use offer::offers;
pub use options::{TraceOptions, DEPTH_MAX};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use {
    kernel_functions::KernelFunctions as AnyFunctions, skeleton::types::trace_node,
    tree::grow as any_tree,
};

/// The most threads traced at the same time (`TRACE_THREADS_MAX`); each takes 1.5 kB.
const THREADS_MAX: u32 = 4096;
/// The most nodes of the tree: a node is a function reached by one chain of callers in one call.
const NODES_MAX: u32 = 32768;
const STACKS_MAX: u32 = 16384;

/// The session's maps that the tree's probes use, too.
pub(crate) struct Shared<'a> {
    pub task_index: BorrowedFd<'a>,
    pub threads: BorrowedFd<'a>,
    pub slots: BorrowedFd<'a>,
    pub max_threads: u32,
    pub want_records: bool,
}

/// The tree's probes at work.
pub(crate) struct Trace {
    attached: Attached,
    skel: TraceSkel<'static>,
    // The object that `skel` borrows from; declared, and so dropped, after it.
    _object: Box<MaybeUninit<OpenObject>>,
    method: Method,
    options: TraceOptions,
    functions_attached: usize,
    denied: BTreeMap<String, Vec<String>>,
    kernel: Option<KernelFunctions>,
    /// Why a better method was not used.
    instead_of: Vec<Offer>,
    missed: u64,
}

impl Trace {
    /// Loads and attaches the probes of the best method that works.
    ///
    /// # Errors
    ///
    /// A requested function does not exist, or the requested method does not work here.
    pub fn start(options: &TraceOptions, shared: &Shared) -> Result<Trace> {
        if options.depth == 0 || options.depth > DEPTH_MAX {
            bail!("the depth of the call tree must be from 1 to {DEPTH_MAX}");
        }
        let mut instead_of = Vec::new();
        for offer in offers() {
            let is_asked_for = options.method == Some(offer.method);
            if options.method.is_some() && !is_asked_for {
                continue;
            }
            if let Some(lack) = &offer.lack {
                if is_asked_for {
                    bail!(
                        "this kernel does not offer the trace method {}: {lack}",
                        offer.method.name()
                    );
                }
                instead_of.push(offer);
                continue;
            }
            let mut trace = Trace::load(options, shared, offer.method)?;
            trace.attach()?;
            trace.instead_of = instead_of;
            return Ok(trace);
        }
        bail!("this kernel offers no method for tracing functions inside calls");
    }

    fn load(options: &TraceOptions, shared: &Shared, method: Method) -> Result<Trace> {
        let mut object = Box::new(MaybeUninit::uninit());
        // SAFETY: the box is kept, unmoved, beside the skeleton and is dropped after it.
        let storage: &'static mut MaybeUninit<OpenObject> =
            unsafe { &mut *std::ptr::from_mut(object.as_mut()) };
        let mut open = TraceSkelBuilder::default()
            .open(storage)
            .context("cannot open the probes of the call tree")?;
        configure(&mut open, options, shared, method)?;
        let symbols = match method {
            Method::Sampled => sampled::name_events(&mut open),
            _ => Some(KernelFunctions::read()?),
        };
        let blocked = Blocked::all();
        let skel = open
            .load()
            .context("the kernel did not accept the probes of the call tree")?;
        drop(blocked);
        Ok(Trace {
            attached: Attached::default(),
            skel,
            _object: object,
            method,
            options: options.clone(),
            functions_attached: 0,
            denied: BTreeMap::new(),
            kernel: symbols,
            instead_of: Vec::new(),
            missed: 0,
        })
    }

    fn attach(&mut self) -> Result<()> {
        if self.method == Method::Sampled {
            if let Some(kernel) = &self.kernel {
                choose::check(&self.options.functions, kernel)?;
            }
            return sampled::attach(&mut self.skel, &mut self.attached);
        }
        let kernel = self.kernel.as_ref().context("no list of functions")?;
        let choice = choose::choose(&self.options.functions, kernel)?;
        self.denied = choice.denied;
        let functions = choice.functions;
        let count = match self.method {
            Method::Pairs => {
                let (enter, leave) = (
                    &self.skel.progs.on_enter_one,
                    &self.skel.progs.on_return_one,
                );
                pairs::attach(
                    enter,
                    leave,
                    &functions,
                    kernel,
                    &mut self.attached,
                    &mut self.denied,
                )?
            }
            Method::Session => {
                let program = self.skel.progs.on_function.as_fd();
                attach::many(
                    &[(program, attach::Kind::Session)],
                    &functions,
                    &mut self.attached,
                    &mut self.denied,
                )?
            }
            _ => {
                let enter = self.skel.progs.on_enter.as_fd();
                let leave = self.skel.progs.on_return.as_fd();
                // Returns first, so that no entry is seen without its return.
                attach::many(
                    &[(leave, attach::Kind::Return), (enter, attach::Kind::Entry)],
                    &functions,
                    &mut self.attached,
                    &mut self.denied,
                )?
            }
        };
        self.functions_attached = count;
        Ok(())
    }

    /// Detaches the probes; their results stay in the tables.
    pub fn stop(&mut self) -> Result<()> {
        self.missed = self.count_missed()?;
        self.attached.links.clear();
        self.attached.descriptors.clear();
        self.attached.programs.clear();
        Ok(())
    }

    /// How often the kernel skipped a probe: because one was already running on that CPU, or because it
    /// had no place left to track a return.
    fn count_missed(&self) -> Result<u64> {
        let progs = &self.skel.progs;
        let own = [
            &progs.on_function,
            &progs.on_enter,
            &progs.on_return,
            &progs.on_sample,
        ];
        let mut missed = 0;
        for program in own {
            let fd = program.as_fd().as_raw_fd();
            if fd >= 0 {
                missed += kernel::recursion_misses(fd)?;
            }
        }
        for program in &self.attached.programs {
            missed += kernel::recursion_misses(program.as_raw_fd())?;
        }
        let links = self.attached.descriptors.iter();
        Ok(missed + links.map(attach::missed_by_link).sum::<u64>())
    }
}

fn configure(
    open: &mut OpenTraceSkel,
    options: &TraceOptions,
    shared: &Shared,
    method: Method,
) -> Result<()> {
    let thread_count = shared.max_threads.min(THREADS_MAX);
    let rodata = open
        .maps
        .rodata_data
        .as_deref_mut()
        .context("no .rodata in the probes")?;
    rodata.trace_depth = options.depth;
    rodata.trace_thread_count = thread_count;
    rodata.returns_always = matches!(method, Method::Multi | Method::Pairs);
    rodata.want_records = shared.want_records;
    let facts = kernel::type_facts();
    if let Some(area) = facts.and_then(|facts| facts.per_cpu_area.as_ref()) {
        rodata.runqueues_offset = area.runqueues;
        rodata.current_task_offset = area.current_task;
        rodata.preempt_count_offset = area.preempt_count;
        rodata.hardirq_or_nmi = area.hardirq_or_nmi;
    }
    let is_sampled = method == Method::Sampled;
    let size = |is_used: bool, entries: u32| if is_used { entries } else { 1 };
    open.maps.trace_threads.set_max_entries(thread_count)?;
    open.maps
        .trace_nodes
        .set_max_entries(size(!is_sampled, NODES_MAX))?;
    for map in [&mut open.maps.trace_samples, &mut open.maps.trace_stacks] {
        map.set_max_entries(size(is_sampled, STACKS_MAX))?;
    }
    open.maps
        .trace_passed
        .set_max_entries(size(is_sampled, STACKS_MAX))?;
    open.maps.task_index.reuse_fd(shared.task_index)?;
    open.maps.threads.reuse_fd(shared.threads)?;
    open.maps.slots.reuse_fd(shared.slots)?;
    for mut map in open.open_object_mut().maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let is_used = ["task_index", "threads", "slots"].contains(&name.as_str())
            || name.starts_with("trace_")
            || name.contains('.');
        if !is_used {
            map.set_autocreate(false)?;
        }
    }
    let wanted: &[&str] = match method {
        Method::Session => &["on_function"],
        Method::Multi => &["on_enter", "on_return"],
        Method::Pairs => &["on_enter_one", "on_return_one"],
        Method::Sampled => &["on_sample"],
    };
    let events = if is_sampled {
        events::existing()
    } else {
        Vec::new()
    };
    for mut program in open.open_object_mut().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let section = program.section().to_string_lossy().into_owned();
        let event = section.strip_prefix("raw_tp/");
        let is_event_here = event.is_some_and(|event| events.iter().any(|there| there == event));
        program.set_autoload(wanted.contains(&name.as_str()) || is_event_here);
    }
    Ok(())
}
