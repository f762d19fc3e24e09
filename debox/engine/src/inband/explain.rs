//! Explains a sleep in a record, in words.

use std::sync::Arc;

use libbpf_rs::{MapCore, MapFlags};

use crate::broker::{self, client};
use crate::kernel;
use crate::labelled::Labelled;
use crate::record::{Record, Sleep};
use crate::stack_table::frames_of;
use crate::symbols::{Frame, Symbols};
use crate::tables::{self, types};

use super::explained::{Explanation, CACHE_MAX};
use super::own_work::left_out;
use super::state::{Source, State};
use super::{memory, Error};

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
    let mut state = super::state::state();
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
    let found = match &mut state.source {
        Source::Own { session, .. } => session.kernel_stack(name),
        Source::Joined(joined) => match joined.stacks() {
            Some(stacks) => stacks
                .lookup(&name.to_ne_bytes(), MapFlags::ANY)
                .map(|found| found.as_deref().and_then(tables::read_value)),
            None => Ok(None),
        },
        Source::Brokered(_) | Source::None => return Err(Error::NotEnabled),
    };
    found.map_err(|error| Error::System(format!("cannot read the stacks: {error}")))
}

/// The functions of the sleep's stack, innermost first.
fn find_frames(state: &mut State, sleep: &Sleep) -> Result<Vec<Frame>, Error> {
    match &state.source {
        Source::Brokered(brokered) => return brokered.frames(sleep.stack),
        // The stacks of a session without privilege are the broker's.
        Source::Joined(joined) if !joined.has_stacks() && !kernel::has_bpf_privilege() => {
            let path = broker::socket_path();
            let frames = path.and_then(|path| client::frames(&path, sleep.stack).ok());
            let frames = frames.unwrap_or_default().into_iter();
            return Ok(frames.map(Frame::from).collect());
        }
        Source::Joined(_) | Source::Own { .. } | Source::None => {}
    }
    let stack = find_stack(state, sleep.stack)?;
    let symbols = state.symbols.get_or_insert_with(Symbols::default);
    let mut addresses = stack.as_ref().map(frames_of).unwrap_or_default();
    if addresses.is_empty() && sleep.site != 0 {
        addresses.push(sleep.site); // the table was full
    }
    Ok(addresses
        .iter()
        .map(|address| symbols.kernel(*address))
        .collect())
}

fn explain_stack(record: &Record, sleep: &Sleep, frames: &[Frame]) -> Explanation {
    let labelled = Labelled::of(
        record.table_number(),
        Some(record.args),
        frames,
        sleep.lock_flags,
    );
    let site = labelled.site;
    let (file, line) = site
        .and_then(|site| site.place.as_deref())
        .map_or(("", 0), split_line);
    Explanation {
        label: labelled.label,
        class: labelled.class,
        function: site.map_or_else(|| "unknown".to_string(), |site| site.function.clone()),
        offset: site.and_then(|site| site.offset).unwrap_or(0),
        file: file.to_string(),
        line,
        frames: frames.to_vec(),
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
