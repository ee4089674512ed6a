//! Owners by name, as this host knows them.

use crate::Result;
use nix::unistd::{Gid, Group, Uid, User};
use rustix::thread::CapabilitySet;
use sheaf_core::Errno;

/// An owner and a group to give to a file; what is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    /// Numeric user.
    pub uid: Option<u32>,
    /// Numeric group.
    pub gid: Option<u32>,
}

/// Whether this thread may do with files of `uid` what their owner may: it is their owner's, or the
/// system lets it (`CAP_FOWNER`).
///
/// # Errors
/// What the system gives instead of the thread's capabilities.
pub fn acts_as_owner(uid: u32) -> Result<bool> {
    if rustix::process::geteuid().as_raw() == uid {
        return Ok(true);
    }
    Ok(rustix::thread::capabilities(None)?.effective.contains(CapabilitySet::FOWNER))
}

impl Owner {
    /// Reads what `chown(1)` takes: `user`, `user:group`, `:group`, or `user:` for the user's login
    /// group. Names are looked up in this host's user database before they are taken as numbers.
    ///
    /// # Errors
    /// `EINVAL` for a name this host does not know, and what its user database fails with.
    pub fn resolve(text: &str) -> Result<Self> {
        let (user, group) =
            text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        let mut owner = Self::default();
        let mut login_gid = None;
        if !user.is_empty() {
            let known = User::from_name(user).map_err(system)?;
            login_gid = known.as_ref().map(|known| known.gid.as_raw());
            owner.uid = Some(known.map_or_else(|| number(user), |known| Ok(known.uid.as_raw()))?);
        }
        owner.gid = match group {
            None => None,
            Some("") if user.is_empty() => None,
            // A number has no login group.
            Some("") => Some(login_gid.ok_or(Errno::INVAL)?),
            Some(group) => {
                let known = Group::from_name(group).map_err(system)?;
                Some(known.map_or_else(|| number(group), |known| Ok(known.gid.as_raw()))?)
            }
        };
        Ok(owner)
    }
}

/// The name of a user, if this host knows it.
#[must_use]
pub fn user_name(uid: u32) -> Option<String> {
    Some(User::from_uid(Uid::from_raw(uid)).ok()??.name)
}

/// The name of a group, if this host knows it.
#[must_use]
pub fn group_name(gid: u32) -> Option<String> {
    Some(Group::from_gid(Gid::from_raw(gid)).ok()??.name)
}

fn number(text: &str) -> Result<u32> {
    // The highest number means "leave as it is" to the system.
    text.parse().ok().filter(|&id| id != u32::MAX).ok_or(Errno::INVAL)
}

fn system(errno: nix::errno::Errno) -> Errno {
    Errno(errno as i32)
}
