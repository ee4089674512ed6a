//! The sessions of a user: each a process that runs a tree, with a socket for those who join.
//!
//! The socket is `NAME.sock` in a directory that only this user can enter. Both ends check who the
//! other is: a client trusts no socket of somebody else's, a session lets nobody else in.
use crate::config::{nearest, some_of};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::trust::{self, NotTrusted};
use crate::users::SHARED;
use rustix::fs::Access;
use rustix::process::{Pid, Signal, Uid, getuid, kill_process};
use sheaf_tree::link::peer::socket_owner;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long [`Sessions::end`] waits for a session to be gone.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest reason for the end of a session that is told.
const ENDED_CHARS_MAX: usize = 300;

/// The longest name of a session. The paths of its sockets bound most of them to less.
const NAME_BYTES_MAX: usize = 128;

/// What the file is called, beside a session's socket, that says why it has ended.
pub(crate) const ENDED: &str = "ended";

/// The directory of root's servers below [`SHARED`]. It is the name of no other user there, as these
/// are numbers.
const ROOT: &str = "root";

/// The directory in which a user's sessions have their sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sessions {
    directory: PathBuf,
    /// They are root's, for others to use.
    is_shared: bool,
    /// In a directory in which every user can make one of this name.
    is_temporary: bool,
}

impl Sessions {
    /// Those of whoever has this environment.
    #[must_use]
    pub fn of(environment: &Environment) -> Self {
        match runtime(environment) {
            Some(directory) => {
                Self { directory: directory.join("sheaf"), is_shared: false, is_temporary: false }
            }
            None => Self::without_runtime(environment),
        }
    }

    /// The directory for temporary files has it, unless another user has made one of this name there:
    /// then it is in a place in which other users cannot make any, if there is one.
    fn without_runtime(environment: &Environment) -> Self {
        let temporary = Self::temporary(environment);
        if !temporary.is_foreign() {
            return temporary;
        }
        let roots = Self::roots();
        // In a user namespace it may be that of the machine's root.
        let is_others = || {
            let about = std::fs::symlink_metadata(&roots.directory);
            about.is_ok_and(|about| about.uid() != getuid().as_raw())
        };
        if getuid().is_root() && !is_others() {
            return roots;
        }
        let runtime = PathBuf::from(format!("/run/user/{}", getuid().as_raw()));
        if trust::check_private(&runtime).is_err() || !runtime.is_dir() {
            return temporary;
        }
        Self { directory: runtime.join("sheaf"), is_shared: false, is_temporary: false }
    }

    /// Where they are for whoever has no runtime directory, as a server that was started over ssh.
    pub(crate) fn temporary(environment: &Environment) -> Self {
        let temporary = environment.path("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
        let directory = temporary.join(format!("sheaf-{}", getuid().as_raw()));
        Self { directory, is_shared: false, is_temporary: true }
    }

    /// Other places where this user's sessions may have their sockets, or a word of them. A caller
    /// without a runtime directory (of cron, of sudo, of a service), or with that of another user (of
    /// su), is not the only one of its user.
    #[must_use]
    pub fn elsewhere(environment: &Environment) -> Vec<Self> {
        let own = Self::of(environment);
        let mut places = vec![Self::temporary(environment)];
        if !is_apart(environment) {
            let usual = Self::usual();
            let temporary = places[0].directory.clone();
            places.extend(usual.into_iter().filter(|usual| usual.directory != temporary));
        }
        places.retain(|place| place.directory != own.directory);
        places
    }

    /// Other places where servers of this user may have their gates. Whoever started a server may
    /// have had any environment, so its gate is in a usual place, too ([`Sessions::of_callers`]).
    pub(crate) fn of_servers(environment: &Environment) -> Vec<Self> {
        let (own, mut places) = (Self::of(environment), Self::elsewhere(environment));
        for usual in Self::usual() {
            if usual != own && !places.contains(&usual) {
                places.push(usual);
            }
        }
        places
    }

    /// Where sessions and servers of this user are in a usual environment: callers of any
    /// environment look there.
    fn usual() -> Vec<Self> {
        let user = getuid().as_raw();
        let place = |directory: String, is_temporary| Self {
            directory: directory.into(),
            is_shared: false,
            is_temporary,
        };
        let mut places = vec![
            place(format!("/run/user/{user}/sheaf"), false),
            place(format!("/tmp/sheaf-{user}"), true),
        ];
        if getuid().is_root() && Self::roots().directory.is_dir() {
            places.push(Self::roots());
        }
        places
    }

    /// Where callers of other environments look for a session or a server that has its sockets here:
    /// `None` when that is here. One that is [apart](is_apart) keeps to callers that are, too.
    pub(crate) fn of_callers(&self, environment: &Environment) -> Option<Self> {
        let usual = Self::usual();
        if usual.contains(self) || *self == Self::roots() {
            return None;
        }
        let temporary = Self::temporary(environment);
        if is_apart(environment) {
            return (*self != temporary).then_some(temporary);
        }
        if getuid().is_root() {
            return Some(Self::roots());
        }
        // The runtime directory of the login, where there is one.
        let is_there = |place: &Self| place.directory.parent().is_some_and(Path::is_dir);
        usual.into_iter().find(is_there).or(Some(temporary))
    }

    /// Those of root's servers that have no runtime directory: no other user can make it first.
    pub(crate) fn roots() -> Self {
        let directory = Path::new(SHARED).join(ROOT);
        Self { directory, is_shared: false, is_temporary: false }
    }

    /// Where a server puts its sockets and its audit: the first that it can use.
    pub(crate) fn of_server(environment: &Environment) -> Result<Self, SessionError> {
        let own = Self::of(environment);
        if own.is_temporary && getuid().is_root() {
            let roots = Self::roots();
            match roots.make_directory() {
                Ok(()) => return Ok(roots),
                Err(error) => tracing::warn!(%error, "sockets and audit go elsewhere"),
            }
        }
        own.make_directory().map(|()| own)
    }

    /// This place, and others in which callers look: a session whose directory is removed goes to one of those.
    pub(crate) fn and_those_that_last(&self, environment: &Environment) -> Vec<Self> {
        let is_apart = is_apart(environment);
        let roots = (getuid().is_root() && !is_apart).then(Self::roots);
        let all = [Some(self.clone()), roots, Some(Self::temporary(environment))];
        let usual = if is_apart { Vec::new() } else { Self::usual() };
        all.into_iter().flatten().chain(usual).collect()
    }

    /// Another place in which callers look, and which is there as long as the machine runs, or as another login does.
    /// None of those that are left out (`but`).
    pub(crate) fn one_that_lasts<'a>(
        environment: &Environment,
        but: impl Iterator<Item = &'a Self>,
    ) -> Option<Self> {
        if is_apart(environment) {
            return None;
        }
        let is_there = |place: &Self| {
            *place == Self::roots() || place.directory.parent().is_some_and(Path::is_dir)
        };
        // Root's is this machine's alone, where containers may share directories for temporary files.
        let all = if getuid().is_root() { vec![Self::roots()] } else { Self::usual() };
        let but: Vec<&Path> = but.map(Self::directory).collect();
        let others = all.into_iter().filter(|place| !but.contains(&place.directory()));
        others.filter(is_there).find(|place| place.make_directory().is_ok())
    }

    /// The directories in which sessions and servers of this user can have sockets: a server that
    /// was started over ssh has no runtime directory.
    #[must_use]
    pub fn places(environment: &Environment) -> Vec<Self> {
        let mut places = vec![Self::of(environment)];
        let (temporary, roots) = (Self::temporary(environment), Self::roots());
        if places[0] != temporary && !temporary.is_foreign() {
            places.push(temporary);
        }
        if places[0] != roots && getuid().is_root() && roots.directory.is_dir() {
            places.push(roots);
        }
        places
    }

    /// This user's, with their sockets in this directory.
    pub(crate) fn in_directory(directory: PathBuf) -> Self {
        Self { directory, is_shared: false, is_temporary: false }
    }

    /// [`Sessions::in_directory`], under a short name.
    #[cfg(test)]
    pub(crate) fn at(directory: PathBuf) -> Self {
        Self { directory, is_shared: false, is_temporary: false }
    }

    /// Those of root's that have their sockets here for other users.
    pub(crate) fn shared(directory: PathBuf) -> Self {
        Self { directory, is_shared: true, is_temporary: false }
    }

    /// Whose they are.
    fn owner(&self) -> Uid {
        if self.is_shared { Uid::ROOT } else { getuid() }
    }

    /// Whether they are root's, for others to use.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether another user has made the directory, where every user can, or has moved something there that is none.
    /// No session of this user can be there, so it is passed over.
    pub(crate) fn is_foreign(&self) -> bool {
        let is_foreign = self.is_temporary
            && std::fs::symlink_metadata(&self.directory)
                .is_ok_and(|about| about.uid() != self.owner().as_raw() || !about.is_dir());
        if is_foreign {
            let directory = self.directory.display();
            tracing::warn!("{directory} is no directory of this user, and is passed over");
        }
        is_foreign
    }

    /// Whether the directory is this user's, be it fit or not.
    pub(crate) fn is_this_users(&self) -> bool {
        let about = std::fs::symlink_metadata(&self.directory);
        about.is_ok_and(|about| about.uid() == getuid().as_raw())
    }

    /// The same, and nobody else can have moved it there.
    pub(crate) fn is_surely_this_users(&self) -> bool {
        !self.is_temporary && self.is_this_users()
    }

    /// Where the sockets are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the directory, if there is none.
    ///
    /// # Errors
    /// When that cannot be done, or somebody else can put sockets there.
    pub fn make_directory(&self) -> Result<(), SessionError> {
        if *self == Self::roots() {
            crate::users::directory(Path::new(SHARED))?;
        }
        crate::seat::prepare(self)
    }

    /// Whether nobody else can put sockets where this user's sessions have theirs.
    ///
    /// # Errors
    /// When somebody can, which makes it a directory that is not used.
    pub(crate) fn check_directory(&self) -> Result<(), SessionError> {
        let check = if self.is_shared { trust::check_roots } else { trust::check_private };
        check(&self.directory).map_err(|why| {
            let text = why.text(&self.directory);
            match why {
                NotTrusted::Distrust(_) => SessionError::Foreign(text),
                NotTrusted::Io(_) => SessionError::NoPlace(text),
            }
        })
    }

    /// The socket of a session of this name.
    ///
    /// # Errors
    /// When none can be called so.
    pub(crate) fn socket(&self, name: &str) -> Result<PathBuf, SessionError> {
        if !is_name(name) {
            return Err(SessionError::Name(format!(
                "{name:?} cannot be the name of a session: one has letters, digits and . _ @ -, begins with neither \
                 . nor -, and is no longer than {NAME_BYTES_MAX}"
            )));
        }
        Ok(self.directory.join(format!("{name}.sock")))
    }

    /// The names of those that run.
    ///
    /// # Errors
    /// When the directory is not to be trusted, or cannot be read.
    pub fn running(&self) -> Result<Vec<String>, SessionError> {
        let files = self.files("sock")?;
        let names = files.iter().filter_map(|path| path.file_stem()?.to_str());
        // One that cannot be reached is named too; joining it says why.
        Ok(names.filter(|name| self.is_running(name)).map(ToOwned::to_owned).collect())
    }

    /// The files with this extension, in the order of their names.
    pub(crate) fn files(&self, extension: &str) -> Result<Vec<PathBuf>, SessionError> {
        if self.is_foreign() {
            return Ok(Vec::new());
        }
        self.check_directory()?;
        self.unchecked_files(extension)
    }

    /// The same, also where others can put files. [`Self::connect`] says so of each.
    pub(crate) fn unchecked_files(&self, extension: &str) -> Result<Vec<PathBuf>, SessionError> {
        let mut files = Vec::new();
        let unreadable = |error| SessionError::file(&self.directory, error);
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(files),
            entries => entries.map_err(unreadable)?,
        };
        for entry in entries {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().is_some_and(|have| have == extension) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// Whether a session of this name runs, or something is there that cannot be told from one.
    #[must_use]
    pub fn is_running(&self, name: &str) -> bool {
        !matches!(self.open(name), Ok(None))
    }

    /// The process of a session of this name; `None` when none runs.
    ///
    /// # Errors
    /// When something is there that is not this user's session.
    pub fn process(&self, name: &str) -> Result<Option<i32>, SessionError> {
        let Some(stream) = self.open(name)? else { return Ok(None) };
        Ok(Some(peer(&stream)?.as_raw_nonzero().get()))
    }

    /// The error of a session that does not run: the name that was meant, or those that there are.
    /// `command` is what takes the name of one that runs; without it the session can be started as
    /// well.
    #[must_use]
    pub fn absent(&self, name: &str, command: Option<&str>) -> SessionError {
        self.absent_and(name, command, &format!("sheaf up --session {name}"))
    }

    /// [`Sessions::absent`], with what starts it.
    pub(crate) fn absent_and(
        &self,
        name: &str,
        command: Option<&str>,
        start: &str,
    ) -> SessionError {
        let running = match self.running() {
            Ok(running) => running,
            Err(error) => return error,
        };
        let near = nearest(name, running.iter().map(String::as_str));
        let others =
            (!running.is_empty()).then(|| format!("; running: {}", some_of(running.iter())));
        let hint = match (near, command, &running[..]) {
            (Some(near), ..) => format!("; did you mean {near}?"),
            (None, None, _) => format!("; start it with: {start}"),
            (None, Some(_), []) => "; none is: sheaf up starts one".to_owned(),
            (None, Some(command), [one]) => format!(" ({command} {one})"),
            (None, Some(command), _) => format!(" ({command} NAME)"),
        };
        let why = self.end_of(name).map(|why| format!(" any more ({why})"));
        // What has run under this name is what was meant.
        if let (None, Some(past)) = (&why, self.past(name)) {
            // The name may be that of the configuration, and another be meant.
            let next = match (command, others) {
                (None, _) => format!("; start it with: {start}"),
                (Some(_), Some(others)) => format!("{others}{hint}"),
                (Some(_), None) => String::new(),
            };
            return SessionError::Absent(format!("{past}{next}"));
        }
        let why = why.unwrap_or_default();
        let others = others.unwrap_or_default();
        SessionError::Absent(format!("no session {name} is running{why}{others}{hint}"))
    }

    /// Keeps why a session of this name ends by itself, for those who look for it later.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn keep_end(&self, name: &str, why: &str) -> Result<(), SessionError> {
        let path = self.socket(name)?.with_extension(ENDED);
        std::fs::write(&path, why).map_err(|error| SessionError::file(&path, error))
    }

    /// Why the last session of this name has ended by itself, if it has.
    fn end_of(&self, name: &str) -> Option<String> {
        let path = self.socket(name).ok()?.with_extension(ENDED);
        let why = std::fs::read_to_string(path).ok()?;
        Some(why.chars().filter(|c| !c.is_control()).take(ENDED_CHARS_MAX).collect())
    }

    /// The error of a name under which a session runs already.
    pub(crate) fn taken(name: &str, why: &str) -> SessionError {
        SessionError::Taken(format!(
            "{why}: end it with sheaf down {name}, or name another with --session"
        ))
    }

    /// That no session of this name runs, so that one can begin.
    ///
    /// # Errors
    /// [`SessionError::Taken`] when one does.
    pub fn check_free(&self, name: &str) -> Result<(), SessionError> {
        match self.process(name)? {
            None => Ok(()),
            Some(pid) => {
                Err(Self::taken(name, &format!("session {name} runs already, as process {pid}")))
            }
        }
    }

    /// Connects to a session of this user; `None` when none listens.
    pub(crate) fn open(&self, name: &str) -> Result<Option<UnixStream>, SessionError> {
        self.connect(&self.socket(name)?, name)
    }

    /// Connects to a socket of this user, which leads to the session `name`; `None` when nobody
    /// listens there.
    pub(crate) fn connect(
        &self,
        path: &Path,
        name: &str,
    ) -> Result<Option<UnixStream>, SessionError> {
        if self.is_foreign() {
            return Ok(None);
        }
        self.check_directory()?;
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            // What is in root's directory is root's, though it be made another's to be connected
            // to.
            Ok(_) if self.is_shared => {}
            about => check_own(path, &about.map_err(|error| SessionError::file(path, error))?)?,
        }
        let stream = match connect_at_once(path) {
            Ok(stream) => stream,
            // A session that was killed leaves its socket behind; nobody listens there.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let text = format!(
                    "session {name}: its process takes in no clients: it is stopped, or hangs"
                );
                return Err(SessionError::Unresponsive(text));
            }
            Err(error) => return Err(SessionError::file(path, error)),
        };
        let user = listening_user(&stream, path)?;
        if user != self.owner() {
            return Err(foreign(path, user.as_raw()));
        }
        Ok(Some(stream))
    }

    /// Ends a session and waits for that; returns whether one was running.
    ///
    /// # Errors
    /// When it cannot be ended, or does not end in time.
    pub fn end(&self, name: &str) -> Result<bool, SessionError> {
        let Some(mut stream) = self.open(name)? else { return Ok(false) };
        let pid = peer(&stream)?;
        // The process is the one that holds the other end of this socket, so it is no other's
        // number.
        kill_process(pid, Signal::TERM).map_err(|errno| {
            SessionError::io(format!("cannot end process {}", pid.as_raw_nonzero()))(errno.into())
        })?;
        // One that is stopped would not hear of it.
        let _ = kill_process(pid, Signal::CONT);
        let deadline = Instant::now() + END_TIMEOUT;
        stream.set_read_timeout(Some(END_TIMEOUT)).map_err(SessionError::io("session"))?;
        let mut rest = [0; 4096];
        while Instant::now() < deadline {
            match stream.read(&mut rest) {
                Ok(0) => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(true),
                Err(_) => break,
            }
        }
        Err(SessionError::StillThere { name: name.to_owned(), seconds: END_TIMEOUT.as_secs() })
    }
}

/// Whether a caller has both a runtime directory that no login gives it and a directory for temporary
/// files of its own: its sessions are then apart from all others of its user.
fn is_apart(environment: &Environment) -> bool {
    let runtime = runtime(environment);
    let is_own = runtime.is_some_and(|runtime| runtime.parent() != Some(Path::new("/run/user")));
    is_own && environment.path("TMPDIR").is_some_and(|temporary| temporary != Path::new("/tmp"))
}

/// In a directory of this mode every user can make names.
const OTHERS_WRITE: u32 = 0o002;

/// The caller's runtime directory; none where it is another user's, as after `su`, which keeps the variable.
fn runtime(environment: &Environment) -> Option<PathBuf> {
    let own = getuid().as_raw();
    let may_make =
        |runtime: &Path| rustix::fs::access(runtime, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    let is_others = |runtime: &Path| match std::fs::metadata(runtime) {
        Ok(about) if about.uid() == own || about.uid() == 0 => {
            match std::fs::symlink_metadata(runtime.join("sheaf")) {
                // Such as `/tmp`, in containers, where every user may have made it.
                Ok(sessions) => {
                    let is_theirs = about.uid() != own || about.mode() & OTHERS_WRITE != 0;
                    is_theirs && sessions.uid() != own
                }
                Err(_) => about.uid() != own && !may_make(runtime),
            }
        }
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    };
    let runtime = environment.path("XDG_RUNTIME_DIR")?;
    (runtime.is_absolute() && !is_others(&runtime)).then_some(runtime)
}

/// Whose process listens at this socket.
///
/// # Errors
/// [`SessionError::OtherNamespace`] for a process that has no number here.
pub(crate) fn listening_user(stream: &UnixStream, path: &Path) -> Result<Uid, SessionError> {
    let owner = socket_owner(stream).map_err(|error| SessionError::file(path, error))?;
    if owner.pid.is_none() {
        return Err(other_namespace(&path.display().to_string()));
    }
    Ok(owner.uid)
}

fn other_namespace(what: &str) -> SessionError {
    let why = "whoever listens there is in another PID namespace (a container, say)";
    SessionError::OtherNamespace(format!("{what}: {why}"))
}

/// Whether a session can be called so: its name is a file's, an argument of commands that takes no
/// option's place, and stands in lines that are read again.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._@-".contains(c);
    let may_be_long = (1..=NAME_BYTES_MAX).contains(&name.len());
    may_be_long && !name.starts_with(['.', '-']) && name.chars().all(is_plain)
}

/// The process at the other end.
pub(crate) fn peer(stream: &UnixStream) -> Result<Pid, SessionError> {
    let who = "who listens at the session's socket";
    let owner = socket_owner(stream).map_err(SessionError::io(who))?;
    owner.pid.ok_or_else(|| other_namespace("the session's socket"))
}

/// Connects without waiting: where a process is stopped, nobody makes room for those who wait.
fn connect_at_once(path: &Path) -> std::io::Result<UnixStream> {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn check_own(path: &Path, about: &std::fs::Metadata) -> Result<(), SessionError> {
    use std::os::unix::fs::MetadataExt;
    if about.uid() == getuid().as_raw() { Ok(()) } else { Err(foreign(path, about.uid())) }
}

fn foreign(path: &Path, uid: u32) -> SessionError {
    SessionError::Foreign(format!(
        "{}: the session's socket belongs to user {uid}, not to you; it is not used",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory as another user makes it, below `temporary`.
    fn make_foreign(temporary: &Path) {
        let foreign = temporary.join(format!("sheaf-{}", getuid().as_raw()));
        std::fs::create_dir(&foreign).unwrap();
        std::os::unix::fs::chown(&foreign, Some(4711), None).unwrap();
    }

    #[test]
    fn caller_without_runtime_directory_looks_where_others_are() {
        let user = getuid().as_raw();
        let places = |environment: &Environment| {
            let places = Sessions::elsewhere(environment).into_iter();
            places.map(|place| place.directory.display().to_string()).collect::<Vec<_>>()
        };
        let servers = |environment: &Environment| {
            let places = Sessions::of_servers(environment).into_iter();
            places.map(|place| place.directory.display().to_string()).collect::<Vec<_>>()
        };
        let own = Environment::default().with("TMPDIR", "/t");
        let runtime = own.clone().with("XDG_RUNTIME_DIR", "/r");
        assert_eq!(places(&runtime), [format!("/t/sheaf-{user}")]);
        // What `su` or a login gives is no runtime directory of the caller's own.
        let su = own.clone().with("XDG_RUNTIME_DIR", "/run/user/4711");
        let usual = [format!("/run/user/{user}/sheaf"), format!("/tmp/sheaf-{user}")];
        assert_eq!(places(&su)[..3], [&places(&runtime)[..], &usual].concat());
        let unusual = Environment::default().with("XDG_RUNTIME_DIR", "/r");
        assert_eq!(places(&unusual)[..2], [usual[1].clone(), usual[0].clone()]);
        let others = [format!("/run/user/{user}/sheaf"), format!("/tmp/sheaf-{user}")];
        assert_eq!(places(&own)[..2], others);
        assert_eq!(places(&Environment::default())[..1], others[..1]);
        // Servers are where whoever started them had them.
        assert_eq!(servers(&runtime)[..3], [&places(&runtime)[..], &others].concat());
        assert_eq!(servers(&own)[..2], others);
    }

    #[test]
    fn runtime_directory_of_another_user_is_passed_over() {
        if !getuid().is_root() {
            return sheaf_testing::skipped("no directory of another user can be made here");
        }
        let dir = tempfile::tempdir().unwrap();
        let temporary = Environment::default().with("TMPDIR", dir.path());
        let here = temporary.clone().with("XDG_RUNTIME_DIR", dir.path());
        assert_eq!(Sessions::of(&here).directory, dir.path().join("sheaf"));
        let sessions = dir.path().join("sheaf");
        std::fs::create_dir(&sessions).unwrap();
        // In a directory of the caller's alone it is a mistake, which is told.
        std::os::unix::fs::chown(&sessions, Some(4711), None).unwrap();
        assert_eq!(Sessions::of(&here).directory, sessions);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(dir.path(), open).unwrap();
        for of in [dir.path(), &sessions] {
            std::os::unix::fs::chown(of, Some(4711), None).unwrap();
            assert_eq!(Sessions::of(&here), Sessions::of(&temporary));
            std::os::unix::fs::chown(of, Some(0), None).unwrap();
        }
        assert_eq!(Sessions::of(&here).directory, sessions);
    }

    #[test]
    fn foreign_temporary_directory_is_passed_over() {
        if !getuid().is_root() {
            return sheaf_testing::skipped("no directory of another user can be made here");
        }
        let dir = tempfile::tempdir().unwrap();
        make_foreign(dir.path());
        let here = Environment::default().with("TMPDIR", dir.path());
        let sessions = Sessions::temporary(&here);
        assert_eq!(sessions.running().unwrap(), [""; 0]);
        assert!(sessions.open("lab").unwrap().is_none());
        assert!(sessions.make_directory().is_err(), "no session begins there");
        assert_eq!(
            Sessions::of(&here),
            Sessions::roots(),
            "another user stops no session of root's"
        );
        // Nor by moving a link or a file of root's there.
        let moved = tempfile::tempdir().unwrap();
        let place = moved.path().join(format!("sheaf-{}", getuid().as_raw()));
        let here = Environment::default().with("TMPDIR", moved.path());
        std::os::unix::fs::symlink("elsewhere", &place).unwrap();
        assert_eq!(Sessions::of(&here), Sessions::roots());
        std::fs::remove_file(&place).unwrap();
        std::fs::write(&place, "").unwrap();
        assert_eq!(Sessions::of(&here), Sessions::roots());
        // A runtime directory is the user's own: there it is an error.
        let runtime = dir.path().join(format!("sheaf-{}", getuid().as_raw()));
        let named = Sessions { is_temporary: false, ..Sessions::at(runtime) };
        assert!(matches!(named.running(), Err(SessionError::Foreign(_))));
    }

    /// The test runs itself where `/run` is its own.
    #[test]
    fn roots_server_without_runtime_directory_uses_run_sheaf() {
        const INSIDE: &str = "SHEAF_TEST_INSIDE_RUN";
        const NAME: &str = "roots_server_without_runtime_directory_uses_run_sheaf";
        if let Some(temporary) = std::env::var_os(INSIDE) {
            let here = Environment::default().with("TMPDIR", &temporary);
            let there = here.clone().with("XDG_RUNTIME_DIR", &temporary);
            let place = |of: &Environment| Sessions::of_server(of).unwrap().directory().to_owned();
            assert_eq!(place(&here), Path::new("/run/sheaf/root"));
            let sessions = Sessions::of(&here);
            sessions.make_directory().unwrap();
            assert_eq!(sessions.directory(), Path::new("/run/sheaf/root"));
            assert_eq!(place(&there), Path::new(&temporary).join("sheaf"));
            assert_eq!(Sessions::places(&here), [Sessions::roots()]);
            return;
        }
        let script = "mount -t tmpfs none /run && exec \"$@\"";
        let inside = |words: &[&str]| {
            let mut command = std::process::Command::new("unshare");
            command.args(["--mount", "sh", "-c", script, "sh"]).args(words);
            command
        };
        if !inside(&["true"]).output().is_ok_and(|run| run.status.success()) {
            return sheaf_testing::skipped("no mount namespace can be made here (that needs root)");
        }
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        make_foreign(dir.path());
        let itself = std::env::current_exe().unwrap();
        let name = format!("sessions::tests::{NAME}");
        let run = inside(&[itself.to_str().unwrap(), "--exact", &name])
            .env(INSIDE, dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && said.contains("1 passed"), "{run:?}");
    }
}
