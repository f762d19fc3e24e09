//! Explains a sleep in a record, in words.

use std::collections::HashMap;
use std::sync::Arc;

use libbpf_rs::{MapCore, MapFlags};

use crate::broker::{self, client};
use crate::calls;
use crate::explain::lock_frame;
use crate::kernel;
use crate::labels::{Class, Labels};
use crate::record::{Record, Sleep};
use crate::symbols::{Frame, Symbols};
use crate::tables::{self, types};

use super::join::Joined;
use super::own_work::left_out;
use super::{memory, Error, State};

/// One sleep, explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The wait's human-readable name, such as `page read`.
    pub label: String,
    pub class: Class,
    /// The kernel function that decided to wait, and the offset in it; an address if the kernel's symbols
    /// are hidden.
    pub function: String,
    pub offset: u64,
    /// Source file and line of the site; empty and 0 where the kernel has no debug information.
    pub file: String,
    pub line: u32,
    /// The whole kernel stack, innermost first, as `function+0xOFF`.
    pub frames: Vec<String>,
}

impl Explanation {
    /// `function+0xOFF`.
    pub fn site(&self) -> String {
        if self.function.starts_with("0x") {
            return self.function.clone();
        }
        format!("{}+{:#x}", self.function, self.offset)
    }
}

/// Explanations so far, in that generation: equal sleeps have equal explanations.
pub(super) struct Cache(u64, Option<HashMap<Key, Arc<Explanation>>>);

/// Everything that an explanation depends on. Labels look at the arguments of one call only (`fcntl`).
type Key = (u64, u32, u32, u64);

/// The cache is cleared when it has this many entries, as many as the session's table of stacks.
const CACHE_MAX: usize = 16384;

impl Cache {
    pub const fn new() -> Cache {
        Cache(0, None)
    }

    pub fn clear(&mut self) {
        self.1 = None;
    }

    fn get(&self, generation: u64, key: &Key) -> Option<&Arc<Explanation>> {
        let known = self.1.as_ref().filter(|_| self.0 == generation);
        known.and_then(|known| known.get(key))
    }

    /// The same name means another stack with another broker.
    fn of_generation(&mut self, generation: u64) -> &mut HashMap<Key, Arc<Explanation>> {
        if self.0 != generation {
            (self.0, self.1) = (generation, None);
        }
        self.1.get_or_insert_with(HashMap::new)
    }
}

/// Explains `record.sleeps()[index]`. The label depends on the call and its arguments, so the whole
/// record is needed.
///
/// The first time a site is seen this reads the session's table of stacks; after that it is a look-up.
/// The kernel's symbols were read by [`super::enable`], so that they are also available in a `chroot` and
/// without privilege. Meanwhile the thread's records are paused, so that the library's own calls do not
/// overwrite the record that is being explained, and scopes leave this work out. Allocates and locks: not
/// for signal handlers.
///
/// # Errors
///
/// [`Error::Argument`] if there is no such sleep, [`Error::NotEnabled`], [`Error::System`].
pub fn explain(record: &Record, index: usize) -> Result<Arc<Explanation>, Error> {
    let sleep = record
        .sleeps()
        .get(index)
        .ok_or(Error::Argument("no such sleep in the record"))?;
    super::require_enabled()?;
    let mut state = super::state();
    if !super::is_enabled() {
        return Err(super::not_enabled());
    }
    let argument = if i64::from(record.call) == libc::SYS_fcntl {
        record.args[1]
    } else {
        0
    };
    let key = (
        sleep.stack,
        sleep.lock_flags,
        record.table_number(),
        argument,
    );
    let generation = memory::generation();
    if let Some(known) = state.explained.get(generation, &key) {
        return Ok(Arc::clone(known));
    }

    left_out(|| {
        let frames = find_frames(&mut state, sleep)?;
        let explained = Arc::new(explain_stack(record, sleep, &frames));
        if !frames.is_empty() {
            // Otherwise a broker may know more about it the next time.
            let cache = state.explained.of_generation(generation);
            if cache.len() >= CACHE_MAX {
                cache.clear();
            }
            cache.insert(key, Arc::clone(&explained));
        }
        Ok(explained)
    })
}

/// Reads the session's table of stacks. That of a joined session may be out of reach; then only the site
/// is explained.
fn find_stack(state: &mut State, name: u64) -> Result<Option<types::kernel_stack>, Error> {
    let key = name.to_ne_bytes();
    let bytes = match (&state.session, &mut state.joined) {
        (Some(session), _) => session.skel.maps.kernel_stacks.lookup(&key, MapFlags::ANY),
        (None, Some(joined)) => match joined.stacks() {
            Some(stacks) => stacks.lookup(&key, MapFlags::ANY),
            None => Ok(None),
        },
        (None, None) => return Err(Error::NotEnabled),
    };
    let bytes = bytes.map_err(|error| Error::System(format!("cannot read the stacks: {error}")))?;
    Ok(bytes
        .as_deref()
        .and_then(tables::read_value::<types::kernel_stack>))
}

/// The functions of the sleep's stack, innermost first.
fn find_frames(state: &mut State, sleep: &Sleep) -> Result<Vec<Frame>, Error> {
    if let Some(brokered) = &state.brokered {
        return brokered.frames(sleep.stack);
    }
    let is_out_of_reach = |joined: &Joined| !joined.has_stacks() && !kernel::has_bpf_privilege();
    if state.joined.as_ref().is_some_and(is_out_of_reach) {
        // The stacks of a session without privilege are the broker's.
        let path = broker::socket_path();
        let frames = path.and_then(|path| client::frames(&path, sleep.stack).ok());
        return Ok(frames
            .unwrap_or_default()
            .into_iter()
            .map(Frame::from)
            .collect());
    }
    let stack = find_stack(state, sleep.stack)?;
    let symbols = state.symbols.get_or_insert_with(Symbols::default);
    let mut addresses: Vec<u64> = stack
        .map(|stack| {
            stack
                .frames
                .iter()
                .copied()
                .take_while(|frame| *frame != 0)
                .collect()
        })
        .unwrap_or_default();
    if addresses.is_empty() && sleep.site != 0 {
        addresses.push(sleep.site); // the table was full
    }
    Ok(addresses
        .iter()
        .map(|address| symbols.kernel(*address))
        .collect())
}

fn explain_stack(record: &Record, sleep: &Sleep, frames: &[Frame]) -> Explanation {
    let mut functions: Vec<&str> = lock_frame(sleep.lock_flags).into_iter().collect();
    let before = functions.len();
    functions.extend(frames.iter().map(|frame| frame.function.as_str()));
    let name = calls::name(record.table_number());
    let explained = Labels::builtin().explain(&name, Some(record.args), &functions);
    let site = explained
        .site_index
        .and_then(|index| index.checked_sub(before))
        .and_then(|index| frames.get(index))
        .or(frames.first());
    let (file, line) = site
        .and_then(|site| site.line.as_deref())
        .map_or(("", 0), split_line);
    Explanation {
        label: explained.label,
        class: explained.class,
        function: site.map_or_else(|| "unknown".to_string(), |site| site.function.clone()),
        offset: site.map_or(0, |site| site.offset),
        file: file.to_string(),
        line,
        frames: frames.iter().map(Frame::to_string).collect(),
    }
}

/// Splits `file.c:123` into its parts; a file without a line has line 0.
pub fn split_line(text: &str) -> (&str, u32) {
    match text.rsplit_once(':') {
        Some((file, line)) => line.parse().map_or((text, 0), |line| (file, line)),
        None => (text, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_from_files() {
        assert_eq!(split_line("filemap.c:123"), ("filemap.c", 123));
        assert_eq!(split_line("filemap.c"), ("filemap.c", 0));
        assert_eq!(split_line("a:b"), ("a:b", 0));
    }
}
