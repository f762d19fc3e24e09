// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives up root's rights for those of another user.

use std::str::FromStr;

use anyhow::{bail, ensure, Context, Error, Result};
use nix::errno::Errno;
use nix::unistd::{
    getegid, geteuid, getresgid, getresuid, initgroups, seteuid, setgid, setuid, Gid, Group, Uid,
    User,
};
use rustix::thread::CapabilitySet;

/// A user and a group that exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    name: String,
    uid: Uid,
    gid: Gid,
}

impl FromStr for Identity {
    type Err = Error;

    /// `NAME` or `NAME:GROUP`.
    fn from_str(text: &str) -> Result<Identity> {
        let (name, group) = match text.split_once(':') {
            Some((name, group)) => (name, Some(group)),
            None => (text, None),
        };
        let user = User::from_name(name)
            .with_context(|| format!("cannot look for the user {name}"))?
            .with_context(|| format!("there is no user {name}"))?;
        ensure!(
            !user.uid.is_root(),
            "the server does not need to become root"
        );
        let gid = match group {
            Some(group) => {
                Group::from_name(group)
                    .with_context(|| format!("cannot look for the group {group}"))?
                    .with_context(|| format!("there is no group {group}"))?
                    .gid
            }
            None => user.gid,
        };
        Ok(Identity {
            name: user.name,
            uid: user.uid,
            gid,
        })
    }
}

impl Identity {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Becomes the user, with the groups that it is a member of. Call it before threads start.
    ///
    /// # Errors
    ///
    /// The process may not, or it could become root again.
    pub fn assume(&self) -> Result<()> {
        let name = &self.name;
        let is_already = geteuid() == self.uid && getegid() == self.gid;
        if !is_already && !geteuid().is_root() {
            bail!("only root can become {name}: start flash as root, or without --user");
        }
        let text = std::ffi::CString::new(name.as_str()).context("a name")?;
        // Groups first: the user may not change them.
        match initgroups(&text, self.gid) {
            // Who started the process as this user has chosen its groups.
            Err(Errno::EPERM) if is_already => {}
            done => done.with_context(|| format!("cannot take the groups of {name}"))?,
        }
        if !is_already {
            setgid(self.gid).with_context(|| format!("cannot take the group of {name}"))?;
            setuid(self.uid).with_context(|| format!("cannot become {name}"))?;
        }
        let (users, groups) = (getresuid()?, getresgid()?);
        let is_whole = [users.real, users.effective, users.saved] == [self.uid; 3]
            && [groups.real, groups.effective, groups.saved] == [self.gid; 3];
        let rights = rustix::thread::capabilities(None).context("cannot read the capabilities")?;
        // To open ports below 1024, as systemd can give it to a service that it starts as its user.
        let harmless = CapabilitySet::NET_BIND_SERVICE;
        let is_without_rights = harmless.contains(rights.effective | rights.permitted);
        ensure!(
            is_whole && is_without_rights && seteuid(Uid::from_raw(0)).is_err(),
            "the process has become {name} and could become root again"
        );
        Ok(())
    }
}

/// Whether the process has root's rights.
pub fn is_root() -> bool {
    geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also of a process that is this user already.
    #[test]
    fn who_could_become_root_again_is_refused() {
        let (uid, gid) = (geteuid(), getegid());
        let user = User::from_uid(uid).expect("users").expect("it exists");
        let own = Identity {
            name: user.name,
            uid,
            gid,
        };
        let assumed = own.assume();
        match uid.is_root() {
            true => assert!(assumed.is_err_and(|why| why.to_string().contains("root again"))),
            false => assert!(assumed.is_ok(), "{assumed:?}"),
        }
    }

    #[test]
    fn names_are_looked_up() {
        let error = |text: &str| Identity::from_str(text).expect_err(text).to_string();
        assert_eq!(error("no-such-user"), "there is no user no-such-user");
        assert_eq!(
            error("nobody:no-such-group"),
            "there is no group no-such-group"
        );
        assert_eq!(error("root"), "the server does not need to become root");
        let nobody = Identity::from_str("nobody:daemon").expect("both exist");
        assert_eq!(nobody.name(), "nobody");
        assert_ne!(
            nobody.gid,
            Identity::from_str("nobody").expect("it exists").gid
        );
    }
}
