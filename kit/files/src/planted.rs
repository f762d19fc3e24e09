//! Files that another user may have planted where output is to be written. In a world-writable directory
//! such as `/tmp`, any user can take a name before root writes to it. The kernel refuses to follow such a
//! link if `fs.protected_symlinks` is on, but not every system has that.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{bail, Result};

const SHARED: u32 = libc::S_ISVTX | libc::S_IWOTH;

/// Returns an error if the name, or a link on the way to it, belongs to another user in a world-writable
/// directory.
pub fn refuse(path: &Path) -> Result<()> {
    // SAFETY: it takes nothing and always succeeds.
    let user = unsafe { libc::geteuid() };
    for (at, name) in path.ancestors().enumerate() {
        let parent = match name.parent() {
            Some(parent) if parent == Path::new("") => Path::new("."),
            Some(parent) => parent,
            None => continue,
        };
        let (Ok(found), Ok(directory)) = (fs::symlink_metadata(name), fs::metadata(parent)) else {
            continue;
        };
        // Entering a directory of another user by its name is intentional.
        if (at == 0 && !found.is_dir() || found.is_symlink())
            && is_anothers(&found, &directory, user)
        {
            bail!(
                "{} is another user's {}, in a directory that all users can write to: it is left as it is",
                name.display(),
                if found.is_symlink() {
                    "symbolic link"
                } else {
                    "file"
                }
            );
        }
    }
    Ok(())
}

/// The kernel's rule for `fs.protected_symlinks` and `fs.protected_regular`.
fn is_anothers(found: &Metadata, directory: &Metadata, user: u32) -> bool {
    directory.mode() & SHARED == SHARED && found.uid() != user && found.uid() != directory.uid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, lchown, symlink, PermissionsExt};

    #[test]
    fn what_another_user_put_into_a_shared_directory_is_refused() {
        // SAFETY: it takes nothing and always succeeds.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        for name in ["victim", "theirs", "own"] {
            fs::write(at(name), "x").expect("a file");
        }
        chown(at("theirs"), Some(65534), None).expect("root may");
        for name in ["link", "mine"] {
            symlink("victim", at(name)).expect("a link");
        }
        symlink(".", at("way")).expect("a link");
        for name in ["link", "way"] {
            lchown(at(name), Some(65534), None).expect("root may");
        }
        let refused = |name: &str| refuse(&at(name)).is_err();
        assert!(!refused("link") && !refused("theirs"));
        let shared = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(directory.path(), shared).expect("root may");
        for name in ["link", "theirs", "way/victim"] {
            assert!(refused(name), "{name}");
        }
        for name in ["mine", "own", "victim", "none"] {
            assert!(!refused(name), "{name}");
        }
    }
}
