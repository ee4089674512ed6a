//! Users beside the session's own whom a session of root's lets in, and where they find it.
use crate::error::{SessionError, io_text};
use crate::seat::bind;
use crate::sessions::Sessions;
use rustix::fs::{Gid, Mode, Uid, chmod, chown};
use sheaf_tree::{Admits, HostGates, Listener};
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where gates for other users are: `any/` for all, `NUMBER/` for one. All of it is root's.
pub const SHARED: &str = "/run/sheaf";
/// The word for every user.
const ANY: &str = "any";
/// The most users that can be named.
const USERS_MAX: usize = 256;

/// Who may use a session of root's, each with the rights that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    /// Everybody.
    Any,
    /// Those with these numbers, which are the same on all hosts.
    These(Vec<u32>),
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str(ANY),
            Self::These(uids) => {
                let uids: Vec<String> = uids.iter().map(u32::to_string).collect();
                f.write_str(&uids.join(","))
            }
        }
    }
}

/// Names are looked up where this is read; elsewhere there are numbers.
impl FromStr for Users {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == ANY {
            return Ok(Self::Any);
        }
        let words = text.split([',', ' ']).filter(|word| !word.is_empty());
        let uids = words.map(uid_of).collect::<Result<Vec<u32>, String>>()?;
        match uids.len() {
            0 => Err(format!("it names nobody; {ANY:?} is every user")),
            count if count > USERS_MAX => {
                Err(format!("{count} users, and {USERS_MAX} can be named; {ANY:?} is every user"))
            }
            _ => Ok(Self::These(uids)),
        }
    }
}

/// The number of a user of this machine.
fn uid_of(name: &str) -> Result<u32, String> {
    if let Ok(uid) = name.parse() {
        return Ok(uid);
    }
    let known = std::fs::read_to_string("/etc/passwd")
        .map_err(|error| format!("user {name:?} cannot be looked up: /etc/passwd: {error}"))?;
    let entry = known.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    });
    entry.ok_or_else(|| format!("no user {name:?} in /etc/passwd; say the number"))
}

impl Users {
    /// Opens the gates of this name for them, or says why there is none, of each whom that
    /// concerns: one user's keeps nobody else out.
    pub(crate) fn open(&self, file: &str, gates: &mut HostGates) {
        gates.shut_to_others = if rustix::process::geteuid().is_root() {
            gates.listeners.extend(self.each(file));
            None
        } else {
            Some("only servers that run as root can serve other users".to_owned())
        };
    }

    /// Whether a user of this number is one of them.
    pub(crate) fn has(&self, uid: u32) -> bool {
        match self {
            Self::Any => true,
            Self::These(uids) => uids.contains(&uid),
        }
    }

    /// Opens the gates of this name for them where this is root. What is in the way of that keeps
    /// nobody from what was asked for, and is logged.
    pub(crate) fn open_if_root(&self, file: &str, gates: &mut HostGates) {
        if rustix::process::geteuid().is_root() {
            let open = |listener: &Listener| {
                let why = listener.socket.as_ref().err();
                why.inspect(|why| tracing::warn!("no gate for the login user: {why}")).is_none()
            };
            gates.listeners.extend(self.each(file).filter(open));
        }
    }

    fn each(&self, file: &str) -> impl Iterator<Item = Listener> {
        let users: Vec<Option<u32>> = match self {
            Self::Any => vec![None],
            Self::These(uids) => uids.iter().copied().map(Some).collect(),
        };
        users.into_iter().map(move |user| gate_of(file, user))
    }
}

/// A gate for one user, or for all.
fn gate_of(file: &str, user: Option<u32>) -> Listener {
    let name = user.map_or(ANY.to_owned(), |uid| uid.to_string());
    let path = Path::new(SHARED).join(&name).join(file);
    let admits = user.map_or(Admits::Anybody, Admits::User);
    let at = path.clone();
    let make = move || match open_at(&at, user) {
        Ok(socket) => Ok((socket, at.clone())),
        Err(error) => Err(io::Error::other(format!("user {name}: {error}"))),
    };
    let socket = make().map(|(socket, _)| socket).map_err(|error| error.to_string());
    Listener { socket, path, admits, again: Box::new(make) }
}

/// The kernel lets nobody else connect.
fn open_at(path: &Path, user: Option<u32>) -> Result<UnixListener, SessionError> {
    for place in [SHARED.as_ref()].into_iter().chain(path.parent()) {
        directory(place)?;
    }
    let socket = bind(path)?;
    let failed = |errno: rustix::io::Errno| no_place(path, &errno.into());
    match user {
        Some(uid) => {
            chmod(path, Mode::from_raw_mode(0o600)).map_err(failed)?;
            chown(path, Some(Uid::from_raw(uid)), None::<Gid>).map_err(failed)?;
        }
        None => chmod(path, Mode::from_raw_mode(0o666)).map_err(failed)?,
    }
    Ok(socket)
}

pub(crate) fn directory(path: &Path) -> Result<(), SessionError> {
    match std::fs::DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(no_place(path, &error)),
        Err(_) => Sessions::shared(path.to_owned()).check_directory(),
        // The umask may have kept others out.
        Ok(()) => {
            chmod(path, Mode::from_raw_mode(0o755)).map_err(|errno| no_place(path, &errno.into()))
        }
    }
}

fn no_place(path: &Path, error: &io::Error) -> SessionError {
    SessionError::NoPlace(io_text(path, error))
}

/// Where the gates are that this user may use, in sessions of root's. Root's own may be there, too.
pub(crate) fn shared_with_this() -> Vec<Sessions> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    shared_with(outside(rustix::process::geteuid().as_raw(), &map))
}

/// The number that a user has outside of a user namespace with this map, in which it may be root.
fn outside(uid: u32, map: &str) -> u32 {
    let found = map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse);
        let (first, beyond, count): (u32, u32, u32) =
            (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        let at = uid.checked_sub(first).filter(|at| *at < count)?;
        beyond.checked_add(at)
    });
    found.unwrap_or(uid)
}

pub(crate) fn shared_with(uid: u32) -> Vec<Sessions> {
    if uid == 0 {
        return vec![Sessions::roots()];
    }
    let places: [PathBuf; 2] =
        [uid.to_string(), ANY.to_owned()].map(|name| Path::new(SHARED).join(name));
    places.into_iter().filter(|place| place.is_dir()).map(Sessions::shared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_a_user_namespace_is_the_user_who_made_it() {
        for (uid, map, expected) in [
            (0, "         0       1001          1\n", 1001),
            (0, "         0          0 4294967295\n", 0),
            (1001, "         0          0 4294967295\n", 1001),
            (5, "0 100000 5\n5 7 1\n", 7),
            (6, "0 100000 5\n5 7 1\n", 6),
            (9, "4 4294967295 9\n", 9),
            (3, "", 3),
        ] {
            assert_eq!(outside(uid, map), expected, "{uid} {map:?}");
        }
    }

    #[test]
    fn users_are_said_by_names_and_numbers() {
        assert_eq!("any".parse(), Ok(Users::Any));
        assert_eq!("1001, 7 root".parse(), Ok(Users::These(vec![1001, 7, 0])));
        assert_eq!(
            Users::These(vec![1001, 7]).to_string().parse(),
            Ok(Users::These(vec![1001, 7]))
        );
        for wrong in ["", ",", "nobody-of-that-name", "-1", "4294967296"] {
            assert!(wrong.parse::<Users>().is_err(), "{wrong:?}");
        }
    }
}
