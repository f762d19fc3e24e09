//! The arguments of a slice, shown when it is selected. Zeros and unknown values are left out;
//! readers can sum the others directly.

use debox_model::history::{Call, Sleep, Text};

use super::interned::Interned;
use super::messages::DebugAnnotation;

pub struct Arguments<'a> {
    interned: &'a mut Interned,
    list: Vec<DebugAnnotation>,
}

impl<'a> Arguments<'a> {
    pub fn new(interned: &'a mut Interned) -> Arguments<'a> {
        Arguments {
            interned,
            list: Vec::new(),
        }
    }

    pub fn take(self) -> Vec<DebugAnnotation> {
        self.list
    }

    fn push(&mut self, name: &'static str, annotation: DebugAnnotation) {
        self.list.push(DebugAnnotation {
            name_iid: Some(self.interned.argument_name(name)),
            ..annotation
        });
    }

    pub fn number(&mut self, name: &'static str, value: u64) {
        if value != 0 {
            let annotation = DebugAnnotation {
                uint_value: Some(value),
                ..DebugAnnotation::default()
            };
            self.push(name, annotation);
        }
    }

    fn maybe(&mut self, name: &'static str, value: Option<impl Into<u64>>) {
        self.number(name, value.map_or(0, Into::into));
    }

    fn flag(&mut self, name: &'static str, value: bool) {
        if value {
            let annotation = DebugAnnotation {
                bool_value: Some(true),
                ..DebugAnnotation::default()
            };
            self.push(name, annotation);
        }
    }

    pub fn text(&mut self, name: &'static str, value: Option<&Text>) {
        if let Some(text) = value {
            let annotation = DebugAnnotation {
                string_value_iid: Some(self.interned.text(text)),
                ..DebugAnnotation::default()
            };
            self.push(name, annotation);
        }
    }

    pub fn call(&mut self, call: &Call) {
        if call.number >= 0 {
            if !call.in_flight {
                let ret = DebugAnnotation {
                    int_value: Some(call.ret),
                    ..DebugAnnotation::default()
                };
                self.push("ret", ret);
            }
            self.text("error", call.error().map(Text::from).as_ref());
            for (name, value) in ["arg0", "arg1", "arg2"].into_iter().zip(call.args) {
                let address = DebugAnnotation {
                    pointer_value: Some(value),
                    ..DebugAnnotation::default()
                };
                self.push(name, address);
            }
        }
        self.number("cpu_ns", call.budget.cpu_ns);
        self.number("blocked_ns", call.budget.blocked_ns);
        self.number("runqueue_ns", call.budget.runqueue_ns);
        self.number("preempted_ns", call.budget.preempted_ns);
        let wait = call.cpu_wait.as_ref();
        self.maybe("throttled_ns", wait.map(|wait| wait.throttled_ns));
        if let Some(owner) = wait.and_then(|wait| wait.owner.as_ref()) {
            self.text("cpu_owner_kind", Some(&owner.kind));
            self.text("cpu_owner", owner.comm.as_ref());
            self.maybe("cpu_owner_pid", owner.pid);
            self.number("cpu_owner_ns", owner.ns);
        }
        self.maybe("irq_ns", call.budget.irq_ns);
        self.number("spin_ns", call.spin_ns);
        self.number("faults_minor", call.faults_minor.into());
        self.number("faults_major", call.faults_major.into());
        self.maybe("read_bytes", call.read_bytes);
        self.maybe("write_bytes", call.write_bytes);
        self.flag("ia32", call.ia32);
        self.flag("restarted", call.restarted);
        self.flag("partial", call.partial);
        self.flag("in_flight", call.in_flight);
        self.text("caller", call.caller.as_ref());
        self.text("stack", call.stack.as_ref());
        self.number("sleeps_left_out", call.sleeps_left_out.into());
        self.number("ordinal", call.ordinal);
    }

    pub fn sleep(&mut self, sleep: &Sleep) {
        self.number("blocked_ns", sleep.blocked_ns);
        self.text("class", Some(&sleep.class));
        self.text("site", Some(&sleep.site));
        self.text("resource_kind", sleep.resource_kind.as_ref());
        self.text("resource", sleep.resource.as_ref());
        self.text("owner_certainty", sleep.owner_certainty.as_ref());
        self.maybe("owner_tid", sleep.owner_tid);
        self.text("owner_comm", sleep.owner_comm.as_ref());
        self.text("owner_doing", sleep.owner_doing.as_ref());
        self.text("waker_kind", Some(&sleep.waker_kind));
        self.maybe("waker_tid", sleep.waker_tid);
        self.text("waker_comm", sleep.waker_comm.as_ref());
        self.maybe("waiters_entry", sleep.waiters_entry);
        self.maybe("waiters_exit", sleep.waiters_exit);
        self.text("stack", sleep.stack.as_ref());
    }
}
