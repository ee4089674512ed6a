//! Requests of other users, done as those users.
//!
//! A server that runs as root may be asked by any user whom its session admits. What it does for
//! one it does with that user's numbers: the kernel says what may be read and written, as it would
//! for any program of that user. Only the thread that works for the request changes: threads begun
//! meanwhile have the numbers of the one that begins them, and the tree's own work ([`as_process`])
//! is done as the process's user again. What `/proc` shows of the process itself the kernel shows
//! to each of its threads, whatever its rights: whoever opens files for users keeps them from that.
use crate::proto::control::Caller;
use rustix::process::{Gid, Uid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use sheaf_core::Errno;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

/// A user, as whom requests are done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    uid: Uid,
    gid: Gid,
    gids: Vec<Gid>,
}

/// What the process itself is.
struct ProcessRights {
    gid: Gid,
    gids: Vec<Gid>,
}

thread_local! {
    /// As whom this thread works, if not as the process's user.
    static ACTING: RefCell<Option<Arc<Identity>>> = const { RefCell::new(None) };
}

/// Read once, before any thread acts for anybody.
fn own() -> Result<&'static ProcessRights, Errno> {
    static OWN: OnceLock<ProcessRights> = OnceLock::new();
    if let Some(own) = OWN.get() {
        return Ok(own);
    }
    let (gid, gids) = (rustix::process::getegid(), getgroups().map_err(Errno::from)?);
    Ok(OWN.get_or_init(|| ProcessRights { gid, gids }))
}

impl Identity {
    /// As whom a caller's requests are done; `None` is the process's user.
    ///
    /// # Errors
    /// `EPERM` for whoever is another user than the process's, which is not root; and for a client
    /// that would be root here and may not ([`ClientRights::may_be_root`]).
    ///
    /// [`ClientRights::may_be_root`]: super::ClientRights::may_be_root
    pub fn of(caller: &Caller) -> Result<Option<Arc<Self>>, Errno> {
        let may_be_root = caller.rights().may_be_root;
        let Caller::User { uid, gid, gids, is_owner: false, .. } = caller else {
            let is_refused = !may_be_root && geteuid().is_root();
            return if is_refused { Err(Errno::PERM) } else { Ok(None) };
        };
        if !may_be_root && (*uid == 0 || *gid == 0 || gids.contains(&0)) {
            return Err(Errno::PERM);
        }
        Self::of_user(*uid, *gid, gids)
    }

    /// The same, of a user with these groups.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_user(uid: u32, gid: u32, gids: &[u32]) -> Result<Option<Arc<Self>>, Errno> {
        let process = geteuid();
        if process.as_raw() == uid {
            return Ok(None);
        }
        // These mean "unchanged" to the kernel.
        if !process.is_root() || uid == u32::MAX || gid == u32::MAX || gids.contains(&u32::MAX) {
            return Err(Errno::PERM);
        }
        own()?;
        let gids = gids.iter().copied().map(Gid::from_raw).collect();
        Ok(Some(Arc::new(Self { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid), gids })))
    }

    /// The user's number.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid.as_raw()
    }

    /// The same, of a process, of which also root's groups matter: what it makes has its group.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_process(uid: u32, gid: u32, gids: &[u32]) -> Result<Option<Arc<Self>>, Errno> {
        if uid != 0 || !geteuid().is_root() {
            return Self::of_user(uid, gid, gids);
        }
        let own = own()?;
        let gid = Gid::from_raw(gid);
        let gids: Vec<Gid> = gids.iter().copied().map(Gid::from_raw).collect();
        if gid == own.gid && (gids.is_empty() || gids == own.gids) {
            return Ok(None);
        }
        if [&[gid], &gids[..]].concat().iter().any(|gid| gid.as_raw() == u32::MAX) {
            return Err(Errno::PERM);
        }
        Ok(Some(Arc::new(Self { uid: Uid::ROOT, gid, gids })))
    }

    /// From here on this thread works as that user, until what is returned is dropped.
    ///
    /// # Errors
    /// `EPERM` when the system does not allow it, or the thread works for somebody else.
    pub fn assume(self: &Arc<Self>) -> Result<Acting, Errno> {
        let at_work = ACTING.with_borrow(Clone::clone);
        match at_work {
            Some(other) if other == *self => return Ok(Acting::new(false)),
            Some(_) => return Err(Errno::PERM),
            None if !geteuid().is_root() => return Err(Errno::PERM),
            None => {}
        }
        ACTING.set(Some(Arc::clone(self)));
        // Whatever of it was done is undone when this is dropped.
        let acting = Acting::new(true);
        self.put_on().map_err(|_| Errno::PERM)?;
        Ok(acting)
    }

    /// The user last, as only root may change the rest. What the kernel remembers as the saved user
    /// stays root's, and gives everything back; meanwhile no capability has any effect.
    fn put_on(&self) -> rustix::io::Result<()> {
        set_thread_groups(&self.gids)?;
        set_thread_res_gid(None, self.gid, None)?;
        set_thread_res_uid(None, self.uid, None)
    }
}

/// The user that this thread works for, unless it is the process's.
pub(super) fn acting_uid() -> Option<u32> {
    ACTING.with_borrow(|identity| identity.as_ref().map(|identity| identity.uid.as_raw()))
}

/// The process's user again.
fn take_off() -> rustix::io::Result<()> {
    set_thread_res_uid(None, Uid::ROOT, None)?;
    let own = own().map_err(|errno| rustix::io::Errno::from_raw_os_error(errno.0))?;
    set_thread_res_gid(None, own.gid, None)?;
    set_thread_groups(&own.gids)
}

/// Ends the process: a thread that has somebody else's rights, or root's where it should not, must
/// do nothing any more.
#[cold]
fn give_up(what: &str, errno: rustix::io::Errno) -> ! {
    tracing::error!(%errno, "{what}: the process ends");
    std::process::abort()
}

/// This thread works as somebody until this is dropped.
#[must_use]
pub struct Acting {
    is_outermost: bool,
    /// Another thread's rights are another matter.
    _here: PhantomData<*const ()>,
}

impl Acting {
    fn new(is_outermost: bool) -> Self {
        Self { is_outermost, _here: PhantomData }
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        if self.is_outermost {
            if let Err(errno) = take_off() {
                give_up("a thread cannot be the process's user again", errno);
            }
            ACTING.set(None);
        }
    }
}

/// Does something as the process's user, whomever this thread works for.
pub fn as_process<R>(act: impl FnOnce() -> R) -> R {
    /// Goes back also when `act` panics.
    struct ActingAgain(Arc<Identity>);
    impl Drop for ActingAgain {
        fn drop(&mut self) {
            if let Err(errno) = self.0.put_on() {
                give_up("a thread cannot be somebody else again", errno);
            }
            ACTING.set(Some(Arc::clone(&self.0)));
        }
    }
    let Some(identity) = ACTING.take() else { return act() };
    if let Err(errno) = take_off() {
        give_up("a thread cannot be the process's user again", errno);
    }
    let _back = ActingAgain(identity);
    act()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::ClientRights;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    const NOBODY: u32 = 65_534;

    fn caller(uid: u32, gids: &[u32]) -> Caller {
        let host = "n1".to_owned();
        let rights = ClientRights::FULL;
        Caller::User { uid, gid: uid, gids: gids.to_vec(), host, is_owner: false, rights }
    }

    /// The user of the server on another host, which may also be lying about who it is.
    #[test]
    fn root_of_one_host_is_not_root_on_others_without_the_right() {
        let limited = ClientRights { may_write: true, may_be_root: false };
        let own = |rights| {
            let (host, gids) = ("n1".to_owned(), Vec::new());
            Caller::User { uid: 1001, gid: 1001, gids, host, is_owner: true, rights }
        };
        let is_root = geteuid().is_root();
        let other = Caller::Host { host: "n1".to_owned(), rights: limited };
        for caller in [own(limited), other] {
            let expected = if is_root { Err(Errno::PERM) } else { Ok(None) };
            assert_eq!(Identity::of(&caller), expected);
        }
        assert_eq!(Identity::of(&own(ClientRights::FULL)), Ok(None));
        let guest = |uid, gid, gids: &[u32]| {
            let (host, gids) = ("n1".to_owned(), gids.to_vec());
            Caller::User { uid, gid, gids, host, is_owner: false, rights: limited }
        };
        for caller in [guest(0, 7, &[]), guest(7, 0, &[]), guest(7, 7, &[8, 0])] {
            assert_eq!(Identity::of(&caller), Err(Errno::PERM), "{caller:?}");
        }
    }

    #[test]
    fn thread_is_somebody_else_and_itself_again() {
        if !geteuid().is_root() {
            assert_eq!(Identity::of(&caller(geteuid().as_raw() + 1, &[])), Err(Errno::PERM));
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "root's").unwrap();
        std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
        let shared = dir.path().join("shared");
        std::fs::write(&shared, "of a group").unwrap();
        std::os::unix::fs::chown(&shared, None, Some(4711)).unwrap();
        std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o640)).unwrap();
        let may_read = |path: &std::path::Path| std::fs::read(path).is_ok();
        let (before, groups) = (geteuid(), getgroups().unwrap());

        let nobody = Identity::of(&caller(NOBODY, &[4711])).unwrap().unwrap();
        let acting = nobody.assume().unwrap();
        assert!(!may_read(&secret) && may_read(&shared));
        // Once more is the same; somebody else is nobody else.
        drop(nobody.assume().unwrap());
        let other = Identity::of(&Caller::Owner).unwrap();
        assert!(other.is_none() && !may_read(&secret));
        as_process(|| assert!(may_read(&secret)));
        assert!(!may_read(&secret));
        // A thread that is begun has the same rights, one that was there before has its own.
        let read = secret.clone();
        assert!(!std::thread::spawn(move || may_read(&read)).join().unwrap());
        std::fs::write(dir.path().join("own"), "").unwrap();
        assert_eq!(std::fs::metadata(dir.path().join("own")).unwrap().uid(), NOBODY);
        drop(acting);
        assert!(may_read(&secret));
        assert_eq!((geteuid(), getgroups().unwrap()), (before, groups));
        assert!(
            rustix::thread::capabilities(None)
                .unwrap()
                .effective
                .contains(rustix::thread::CapabilitySet::SETUID)
        );
    }

    #[test]
    fn numbers_that_mean_nothing_and_panics() {
        if !geteuid().is_root() {
            return;
        }
        assert_eq!(Identity::of(&caller(u32::MAX, &[])), Err(Errno::PERM));
        assert_eq!(Identity::of(&caller(NOBODY, &[u32::MAX])), Err(Errno::PERM));
        assert_eq!(Identity::of(&caller(0, &[])), Ok(None));
        let nobody = Identity::of(&caller(NOBODY, &[])).unwrap().unwrap();
        let panicked = std::panic::catch_unwind(|| {
            let _acting = nobody.assume().unwrap();
            panic!("in the middle");
        });
        assert!(panicked.is_err() && geteuid().is_root());
    }
}
