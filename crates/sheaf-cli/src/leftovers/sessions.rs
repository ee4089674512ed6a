//! The directories of sessions: sockets, locks, logs and last messages of those that have ended.
use super::directory::{OpenDirectory, bytes_of, is_directory, is_symlink};
use super::{LeftoverKind, Sweep, YOUNG};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use sheaf_session::Sessions;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

const KIND: LeftoverKind = LeftoverKind::Session;
/// The files of a session, by what follows its name. The lock is removed last.
const ENDS: [&str; 6] = [".sock", ".token", ".ended", ".log.1", ".log", LOCK];
const LOCK: &str = ".lock";
const GATE: &str = ".gate";
/// What a gate has left whose server has lost the session.
const GATE_LOST: &str = ".lost";

pub fn sweep(sweep: &mut Sweep, sessions: &Sessions) {
    let path = sessions.directory();
    let swept = OpenDirectory::open_own(path).and_then(|directory| {
        directory.map_or(Ok(()), |directory| sweep_directory(sweep, sessions, &directory))
    });
    if let Err(error) = swept {
        sweep.fail(KIND, path.to_owned(), &error);
    }
}

/// Removes the words of lost sessions for other users, and keeps gates: `gates` has a directory for each
/// user.
pub fn sweep_shared(sweep: &mut Sweep, gates: &Path) {
    let swept = OpenDirectory::open_own(gates).and_then(|gates| {
        let Some(gates) = gates else { return Ok(()) };
        for name in gates.names()? {
            if !gates.stat(&name)?.is_some_and(|stat| is_directory(&stat)) {
                continue;
            }
            let directory = match gates.open_within(&name) {
                Ok(directory) => directory,
                Err(error) => {
                    sweep.fail(KIND, gates.path().join(&name), &error);
                    continue;
                }
            };
            for name in directory.names()? {
                let has_end = |end| name.to_str().is_some_and(|name| name.ends_with(end));
                if has_end(GATE) {
                    sweep_gate(sweep, &directory, &name)?;
                } else if has_end(GATE_LOST) {
                    sweep_word(sweep, &directory, &name)?;
                }
            }
        }
        Ok(())
    });
    if let Err(error) = swept {
        sweep.fail(KIND, gates.to_owned(), &error);
    }
}

fn sweep_directory(
    sweep: &mut Sweep,
    sessions: &Sessions,
    directory: &OpenDirectory,
) -> io::Result<()> {
    let mut files: BTreeMap<String, Vec<OsString>> = BTreeMap::new();
    for name in directory.names()? {
        let Some(text) = name.to_str() else { continue };
        let session = ENDS.iter().find_map(|end| text.strip_suffix(end));
        if let Some(session) = session.filter(|session| !session.is_empty()) {
            files.entry(session.to_owned()).or_default().push(name);
        } else if text.ends_with(GATE_LOST) {
            if let Err(error) = sweep_word(sweep, directory, &name) {
                sweep.fail(KIND, directory.path().join(&name), &error);
            }
        } else if text.ends_with(GATE)
            && let Err(error) = sweep_gate(sweep, directory, &name)
        {
            sweep.fail(KIND, directory.path().join(&name), &error);
        }
    }
    for (session, mut names) in files {
        // Its files are listed in the order in which they are removed.
        let place = |name: &OsString| {
            ENDS.iter().position(|end| name.to_str().is_some_and(|name| name.ends_with(end)))
        };
        names.sort_by_key(place);
        if let Err(error) = sweep_session(sweep, sessions, directory, (&session, &names)) {
            sweep.fail(KIND, directory.path().join(&session), &error);
        }
    }
    Ok(())
}

fn sweep_session(
    sweep: &mut Sweep,
    sessions: &Sessions,
    directory: &OpenDirectory,
    (session, names): (&str, &[OsString]),
) -> io::Result<()> {
    let is = |name: &OsString, end| name.to_str().is_some_and(|name| name.ends_with(end));
    let has_socket = names.iter().any(|name| is(name, ".sock"));
    let lock = match lock_of(directory, session, sweep.removal.dry_run)? {
        SessionLock::Held => None,
        // A session of a version without locks has a socket only.
        _ if has_socket && sessions.is_running(session) => None,
        lock => Some(lock),
    };
    let Some(lock) = lock else {
        let path = directory.path().join(format!("{session}.sock"));
        sweep.keep(KIND, path, format!("session {session} runs"));
        return Ok(());
    };
    for name in names {
        // Until somebody is told of its end, a command that is meant for it is for no other hosts.
        if has_socket {
            let path = directory.path().join(format!("{session}.sock"));
            sweep.keep(
                KIND,
                path,
                format!("session {session} was killed: sheaf status forgets it"),
            );
            break;
        }
        let Some(stat) = directory.stat(name)? else { continue };
        let path = directory.path().join(name);
        // A session that begins opens its log before it takes its lock.
        let is_log = name.to_str().is_some_and(|name| name.contains(".log"));
        if is_log && !is_symlink(&stat) && sweep.is_young(&stat) {
            sweep.keep(KIND, path, YOUNG);
        } else {
            sweep.remove(KIND, (path, bytes_of(&stat)), || directory.remove(name));
        }
    }
    // The lock that was made for the removal alone.
    if matches!(lock, SessionLock::Taken(_)) && !names.iter().any(|name| is(name, LOCK)) {
        directory.remove(format!("{session}{LOCK}").as_ref())?;
    }
    Ok(())
}

/// The lock of a session's name.
enum SessionLock {
    /// A process has it, which runs the session or starts it.
    Held,
    /// No process has it, and none can take it.
    Taken(#[expect(dead_code, reason = "it is locked as long as it is open")] OwnedFd),
    /// No process has it; in a dry run it is not made.
    Absent,
}

fn lock_of(directory: &OpenDirectory, session: &str, dry_run: bool) -> io::Result<SessionLock> {
    let name = OsString::from(format!("{session}{LOCK}"));
    if directory.stat(&name)?.is_some_and(|stat| is_symlink(&stat)) {
        return Ok(SessionLock::Absent);
    }
    let made = if dry_run { OFlags::empty() } else { OFlags::CREATE };
    let flags = made | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    loop {
        let file = match openat(directory, &name, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::NOENT) => return Ok(SessionLock::Absent),
            file => file?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(SessionLock::Held),
            locked => locked?,
        }
        // A session that ended in between has removed the file that is locked now.
        let locked = fstat(&file)?.st_ino;
        if directory.stat(&name)?.is_some_and(|there| there.st_ino == locked) {
            return Ok(SessionLock::Taken(file));
        }
    }
}

/// Keeps the socket by which a session is reached on this host. The server of one that runs may be
/// started anew this moment, and a command would mean this machine alone until then.
fn sweep_gate(sweep: &mut Sweep, directory: &OpenDirectory, name: &OsStr) -> io::Result<()> {
    let Some(stat) = directory.stat(name)? else { return Ok(()) };
    let path = directory.path().join(name);
    if is_symlink(&stat) {
        sweep.remove(KIND, (path, bytes_of(&stat)), || directory.remove(name));
    } else if listens(directory, name)? {
        sweep.keep(KIND, path, "a server of a session listens there");
    } else {
        sweep.keep(KIND, path, "its server is gone: remove it if that session is over");
    }
    Ok(())
}

/// Removes the word that this host was in a session.
fn sweep_word(sweep: &mut Sweep, directory: &OpenDirectory, name: &OsStr) -> io::Result<()> {
    let Some(stat) = directory.stat(name)? else { return Ok(()) };
    let path = directory.path().join(name);
    sweep.remove(KIND, (path, bytes_of(&stat)), || directory.remove(name));
    Ok(())
}

/// Whether a process listens at a socket; it is not waited for.
fn listens(directory: &OpenDirectory, name: &OsStr) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(directory.stable_path().join(name))?;
    match connect(&socket, &address) {
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        // What cannot be reached may still be used.
        _ => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LeftoverPlaces, LeftoverState, Removal, remove};
    use std::os::unix::net::UnixListener;

    #[test]
    fn gates_for_other_users_stay_and_words_of_lost_ones_go() {
        let home = tempfile::tempdir().unwrap();
        let (user, any) = (home.path().join("1000"), home.path().join("any"));
        std::fs::create_dir(&user).unwrap();
        std::fs::create_dir(&any).unwrap();
        let (left, used) = (user.join("lab@h1.lost"), any.join("lab@h1.gate"));
        std::fs::write(&left, "").unwrap();
        let gone = user.join("other@h1.gate");
        drop(UnixListener::bind(&gone).unwrap());
        let _listener = UnixListener::bind(&used).unwrap();
        std::fs::write(any.join("other"), "x").unwrap();
        let places = LeftoverPlaces {
            caches: Vec::new(),
            sessions: Vec::new(),
            shared_gates: Some(home.path().to_owned()),
            buffers: home.path().join("none"),
            temporary: home.path().join("none"),
        };
        let mut found = remove(&places, Removal::default());
        found.sort_by(|one, other| one.path.cmp(&other.path));
        let paths = found.iter().map(|found| &found.path).collect::<Vec<_>>();
        assert_eq!(paths, [&left, &gone, &used]);
        assert_eq!(found[0].state, LeftoverState::Removed);
        assert!(found[1..].iter().all(|found| matches!(found.state, LeftoverState::Kept(_))));
        assert!(!left.exists() && gone.exists() && used.exists() && any.join("other").exists());
    }
}
