//! Whose programs are asked for: what they record is below a directory of that user alone, and is
//! taken with that user's rights.
use nix::unistd::{Uid, User};
use rustix::process::geteuid;
use sheaf_core::Errno;
use sheaf_tree::service::identity::Identity;

/// The group of users that have none here: theirs is of no matter to what they own.
const NO_GROUP: u32 = 65_534;

/// Does something as this user, by name or number; as whoever asks, if none is named. Threads that
/// are begun meanwhile have the same rights.
///
/// # Errors
/// `EINVAL` for a name that is nobody's here, `EPERM` for another user than the one who asks, who is
/// not root; and those of `act`.
pub(super) fn as_user<T>(
    user: Option<&str>,
    act: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let Some(user) = user else { return act() };
    let (uid, gid) = numbers(user)?;
    if geteuid().as_raw() == uid {
        return act();
    }
    if !geteuid().is_root() {
        return Err(Errno::PERM);
    }
    let identity = Identity::of_user(uid, gid, &[gid])?;
    let _acting = identity.ok_or(Errno::PERM)?.assume()?;
    act()
}

/// Of the user and the user's group.
fn numbers(user: &str) -> Result<(u32, u32), Errno> {
    let system = |errno: nix::errno::Errno| Errno(errno as i32);
    match user.parse::<u32>() {
        Ok(uid) => {
            let known = User::from_uid(Uid::from_raw(uid)).map_err(system)?;
            Ok((uid, known.map_or(NO_GROUP, |known| known.gid.as_raw())))
        }
        Err(_) => {
            let known = User::from_name(user).map_err(system)?.ok_or(Errno::INVAL)?;
            Ok((known.uid.as_raw(), known.gid.as_raw()))
        }
    }
}
