//! Texts for the numbers in the records, each looked up once.

use std::cell::Ref;
use std::hash::Hash;
use std::rc::Rc;

use foldhash::HashMap;

use crate::broker::RemoteSession;
use crate::calls;
use crate::collect::{certainty, doing, waker_kind};
use crate::explain::{Explained, Explainer};
use crate::frame::fold;
use crate::history::Text;
use crate::options::Detail;
use crate::session::{Events, Session};
use crate::sleep_place::SleepPlace;
use crate::stack_table::StackTable;
use crate::symbols::Symbols;
use crate::tables::{self, types};

/// The most entries of each of the tables below. A table that is full is cleared, and its entries are
/// looked up again.
const MAX_TEXTS: usize = 1 << 16;

/// A place in words.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub label: Text,
    pub class: Text,
    pub site: Text,
    pub stack: Option<Text>,
}

type Resource = (Option<Text>, Option<Text>);

/// A resource as the probes identify it: the place where it was waited for, and the resource.
type ResourceId = (SleepPlace, (u32, u32, u32, u32, u64));

/// What texts are made of.
pub(crate) trait Lookups {
    /// What has been received from the probes.
    fn events(&self) -> Ref<'_, Events>;
    /// The kernel stack of that name.
    fn kernel_stack(&self, name: u64) -> Option<types::kernel_stack>;
    fn resource_row(&self, key: &types::resource_key) -> Option<types::resource_row>;
    /// The symbols that know the places of these stacks.
    fn symbols(&self) -> Rc<Symbols>;
}

impl Lookups for Session {
    fn events(&self) -> Ref<'_, Events> {
        Session::events(self)
    }

    fn kernel_stack(&self, name: u64) -> Option<types::kernel_stack> {
        Session::kernel_stack(self, name).ok()?
    }

    fn resource_row(&self, key: &types::resource_key) -> Option<types::resource_row> {
        Session::resource_row(self, key)
    }

    fn symbols(&self) -> Rc<Symbols> {
        Rc::default()
    }
}

impl Lookups for RemoteSession {
    fn events(&self) -> Ref<'_, Events> {
        RemoteSession::events(self)
    }

    fn kernel_stack(&self, name: u64) -> Option<types::kernel_stack> {
        RemoteSession::kernel_stack(self, name)
    }

    fn resource_row(&self, key: &types::resource_key) -> Option<types::resource_row> {
        RemoteSession::resource_row(self, key)
    }

    fn symbols(&self) -> Rc<Symbols> {
        RemoteSession::symbols(self)
    }
}

pub(crate) struct Texts {
    /// The stacks that were looked up.
    looked_up: StackTable,
    symbols: Rc<Symbols>,
    texts: HashMap<String, Text>,
    comms: HashMap<[i8; 16], Text>,
    calls: HashMap<u32, Text>,
    places: HashMap<SleepPlace, Named>,
    user_stacks: HashMap<u64, (Option<Text>, Option<Text>)>,
    resources: HashMap<ResourceId, Resource>,
}

impl Texts {
    #[cfg(test)]
    pub fn new(detail: Detail) -> Texts {
        Texts::with_symbols(detail, Rc::default())
    }

    pub fn with_symbols(detail: Detail, symbols: Rc<Symbols>) -> Texts {
        Texts {
            looked_up: StackTable::new(detail.callsites),
            symbols,
            texts: HashMap::default(),
            comms: HashMap::default(),
            calls: HashMap::default(),
            places: HashMap::default(),
            user_stacks: HashMap::default(),
            resources: HashMap::default(),
        }
    }

    /// A shared text: equal texts share one allocation, as far as there is room to remember them.
    fn text(&mut self, text: &str) -> Text {
        if let Some(known) = self.texts.get(text) {
            return Rc::clone(known);
        }
        let shared: Text = Rc::from(text);
        keep(&mut self.texts, text.to_string(), Rc::clone(&shared));
        shared
    }

    pub fn comm(&mut self, comm: &[i8; 16]) -> Text {
        if let Some(known) = self.comms.get(comm) {
            return Rc::clone(known);
        }
        let text = self.text(&tables::comm(comm));
        keep(&mut self.comms, *comm, Rc::clone(&text));
        text
    }

    pub fn call(&mut self, call: u32) -> Text {
        if let Some(known) = self.calls.get(&call) {
            return Rc::clone(known);
        }
        let text = self.text(&calls::name(call));
        keep(&mut self.calls, call, Rc::clone(&text));
        text
    }

    pub fn waker_kind(&mut self, kind: u32) -> Text {
        self.text(waker_kind(kind).as_str())
    }

    pub fn cpu_owner(&mut self, kind: &str) -> Text {
        self.text(kind)
    }

    pub fn certainty(&mut self, of: u32) -> Text {
        self.text(certainty(of).as_str())
    }

    /// What the owner was doing; if it was asleep, the label of its sleep.
    pub fn doing(&mut self, session: &dyn Lookups, owner: &types::owner) -> Option<Text> {
        if owner.certainty == 0 {
            return None;
        }
        if owner.doing == tables::DOING_ASLEEP {
            return Some(self.place(session, owner.into()).label);
        }
        let events = session.events();
        let explainer = self.explainer(&events);
        let text = doing(&explainer, owner.doing, owner.into());
        text.map(|text| self.text(&text))
    }

    fn explainer<'a>(&'a self, events: &'a Events) -> Explainer<'a> {
        Explainer::with_symbols(
            &self.looked_up,
            &events.processes,
            &events.stacks,
            Rc::clone(&self.symbols),
        )
    }

    pub fn place(&mut self, session: &dyn Lookups, place: SleepPlace) -> Named {
        if let Some(known) = self.places.get(&place) {
            return known.clone();
        }
        self.fetch_kernel_stack(session, place.stack);
        let explained = {
            let events = session.events();
            self.explainer(&events).sleep(place)
        };
        let named = self.named(&explained);
        keep(&mut self.places, place, named.clone());
        named
    }

    /// The place where a call that has not returned sleeps. `frames` are innermost first.
    pub fn open_place(
        &mut self,
        session: &dyn Lookups,
        (call, lock_flags): (u32, u32),
        args: Option<[u64; 3]>,
        frames: &[u64],
    ) -> Named {
        let explained = {
            let events = session.events();
            self.explainer(&events)
                .stack(call, args, frames, lock_flags)
        };
        self.named(&explained)
    }

    fn named(&mut self, explained: &Explained) -> Named {
        let folded = fold(&explained.frames, true);
        Named {
            label: self.text(&explained.label),
            class: self.text(&explained.class),
            site: self.text(&explained.site.to_string()),
            stack: (!folded.is_empty()).then(|| self.text(&folded)),
        }
    }

    fn fetch_kernel_stack(&mut self, session: &dyn Lookups, name: u64) {
        if name == 0 || self.looked_up.kernel.contains_key(&name) {
            return;
        }
        if self.looked_up.kernel.len() >= MAX_TEXTS {
            self.looked_up.kernel.clear();
            self.looked_up.args.clear();
        }
        let Some(stack) = session.kernel_stack(name) else {
            return;
        };
        self.looked_up.add_kernel(name, &stack);
    }

    /// The caller, and the whole stack.
    pub fn user_stack(&mut self, session: &dyn Lookups, name: u64) -> (Option<Text>, Option<Text>) {
        if name == 0 {
            return (None, None);
        }
        if let Some(known) = self.user_stacks.get(&name) {
            return known.clone();
        }
        let stack = {
            let events = session.events();
            self.explainer(&events).user_stack(name)
        };
        let caller = stack.caller.map(|caller| self.text(&caller.to_string()));
        let folded = fold(&stack.frames, false);
        let whole = (!folded.is_empty()).then(|| self.text(&folded));
        // A stack that is missing may still arrive.
        if whole.is_some() {
            keep(&mut self.user_stacks, name, (caller.clone(), whole.clone()));
        }
        (caller, whole)
    }

    pub fn resource(&mut self, session: &dyn Lookups, sleep: &types::kept_sleep) -> Resource {
        let resource = &sleep.resource;
        if resource.kind == tables::RESOURCE_NONE {
            return (None, None);
        }
        let what = (
            resource.kind,
            resource.what,
            resource.device,
            resource.tgid,
            resource.id,
        );
        let id = (SleepPlace::from(sleep), what);
        if let Some(known) = self.resources.get(&id) {
            return known.clone();
        }
        let key = types::resource_key {
            stack: sleep.stack,
            call: sleep.call,
            lock_flags: sleep.lock_flags,
            resource: *resource,
        };
        let row = session.resource_row(&key);
        let described = session.events().resources.describe(
            resource,
            sleep.lock_flags,
            &row.unwrap_or_default(),
        );
        let named = self.of_resource(&described);
        keep(&mut self.resources, id, named.clone());
        named
    }

    pub fn of_resource(&mut self, resource: &crate::report::Resource) -> Resource {
        let name = resource.name.as_deref().map(|name| self.text(name));
        (Some(self.text(&resource.kind)), name)
    }
}

fn keep<K: Hash + Eq, V>(table: &mut HashMap<K, V>, key: K, value: V) {
    if table.len() >= MAX_TEXTS {
        table.clear();
    }
    table.insert(key, value);
}
