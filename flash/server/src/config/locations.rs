// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which paths a location is for, and what answers there if no file does.

use std::path::{Path, PathBuf};

use toml::Spanned;

use super::content;
use super::file::Part;
use super::upstream::FastCgi;
use super::values::{directory, Wrong};
use crate::sites::Location;
use crate::upstream::{Plan, Protocol};

const MOST_ENDINGS: usize = 256;

/// Fills in what the location says of the paths that it is for, and of what answers there if no file does.
pub(super) fn complete(part: &Part, location: &mut Location, below: &Path) -> Result<(), Wrong> {
    location.is_exact = part.exact;
    let is_ending = |text: &String| text.len() > 1 && text.starts_with('.') && !text.contains('/');
    if let Some(endings) = &part.endings {
        let all = endings.get_ref();
        if !(1..=MOST_ENDINGS).contains(&all.len()) || !all.iter().all(is_ending) {
            let what =
                format!("`endings` are 1 to {MOST_ENDINGS} ends of names, as [\".css\", \".js\"]");
            return Err(Wrong::at(endings.span(), what));
        }
        location.endings = all.iter().map(|end| end.to_ascii_lowercase()).collect();
    }
    location.fixed = part.answer.as_ref().map(content::answer).transpose()?;
    if let Some(alias) = &part.alias {
        if part.root.is_some() {
            let what = "`alias` and `root` are two places for the same files: remove one";
            return Err(Wrong::at(alias.span(), what));
        }
        location.directory = Some(directory(alias, below, "alias")?);
        let names = location.path.split('/').filter(|name| !name.is_empty());
        location.files.left_out = names.count();
    }
    fallback(part, location)
}

fn fallback(part: &Part, location: &mut Location) -> Result<(), Wrong> {
    let files = &mut location.files;
    if let Some(path) = &part.fallback {
        let name = path.get_ref().trim_start_matches('/');
        let is_wrong = |segment: &str| matches!(segment, "" | "." | "..");
        if !path.get_ref().starts_with('/') || name.split('/').any(is_wrong) {
            let what = "`fallback` is the path of a file below `root`, as \"/index.html\"";
            return Err(Wrong::at(path.span(), what));
        }
        files.fallback = Some(name.to_string());
    }
    let wrong = |what: &str| Err(Wrong::at(part.path.span(), what));
    if let Some(Plan {
        protocol: Protocol::FastCgi(options),
        ..
    }) = &location.upstream
    {
        if let (Some((ending, index)), Some(fastcgi)) = (&options.scripts, &part.fastcgi) {
            if files.left_out > 0 {
                return wrong("scripts are found below a `root`: use it in place of `alias`");
            }
            let list = fastcgi.get_ref().index_list();
            if list.is_some() || files.fallback.is_some() {
                files.index = list.unwrap_or_else(|| vec![index.clone()]);
                files.scripts = Some(ending.clone());
            }
        }
    }
    files.before_upstream = part.files_first;
    let has_upstream = location.upstream.is_some();
    let has_scripts = files.scripts.is_some();
    let is_of_scripts = |fastcgi: &Spanned<FastCgi>| !fastcgi.get_ref().is_application();
    let has_own = part.cgi.is_some() || part.fastcgi.as_ref().is_some_and(is_of_scripts);
    match (part.files_first, files.fallback.is_some()) {
        (true, _) if !has_upstream || has_own => {
            let what = "`files_first` needs a `proxy`, or the `fastcgi` of an `application`, behind the files";
            return wrong(what);
        }
        (true, true) => {
            return wrong("with `files_first` the upstream is the fallback: remove `fallback`")
        }
        (false, true) if has_upstream && !has_scripts => {
            return wrong(
                "all is answered by the upstream here: set `files_first` in place of `fallback`",
            );
        }
        _ => {}
    }
    let of_scripts = location.upstream.as_ref().is_some_and(has_files);
    let is_for_files = !has_upstream || of_scripts || part.files_first;
    let needs_root = is_for_files && location.redirect.is_none() && location.fixed.is_none();
    match location.directory.is_none() && needs_root {
        true => wrong("there is no `root` for files: set it here or in the server"),
        false => Ok(()),
    }
}

/// Paths that are no script's are files.
fn has_files(plan: &Plan) -> bool {
    matches!(&plan.protocol, Protocol::FastCgi(options) if options.scripts.is_some())
}

/// The file of an error page, as a request for its path would find it. `path`: without a slash at its begin.
pub(super) fn file_of(locations: &[Location], path: &Path) -> Option<PathBuf> {
    let name = path.to_string_lossy();
    let has = |location: &&Location| {
        let prefix = location.path.trim_matches('/');
        let rest = name.strip_prefix(prefix);
        let is_in = rest.is_some_and(|rest| {
            prefix.is_empty() || rest.is_empty() || (rest.starts_with('/') && !location.is_exact)
        });
        is_in && (!location.is_exact || name == prefix) && location.endings.is_empty()
    };
    let all = locations.iter().filter(has);
    let location =
        all.max_by_key(|location| (location.path.trim_matches('/').len(), location.is_exact))?;
    let mut names = name.splitn(location.files.left_out + 1, '/');
    let rest = names.nth(location.files.left_out).unwrap_or_default();
    Some(location.directory.as_ref()?.join(rest))
}
