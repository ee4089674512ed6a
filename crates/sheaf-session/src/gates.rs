//! The gates of a session: sockets on its hosts, by which its user's programs there are clients of
//! it.
//!
//! A gate is `SESSION@HOST+KEEPER.gate` beside the sockets of the user's own sessions. Hosts have them as
//! soon as a session stays and has servers on other machines; whoever connects proves by the kernel
//! who he is, and needs neither a configuration nor a second login.
//!
//! The keeper is the machine that a session was started on, with the user who did. Sessions of one
//! name that have different keepers are different ones: neither takes the gate of the other, nor the
//! word that it has left.
//!
//! Servers that run as root have gates for other users, too, where the session's configuration
//! names these (`users`): below `/run/sheaf`, a directory for each user, or one for all. What such
//! a user's programs ask for is done with that user's rights.
use crate::audit::{AuditMode, HostAudit};
use crate::config::{Config, own_name};
use crate::environment::Environment;
use crate::error::{SessionError, one_line};
use crate::seat::{SOCKET_PATH_BYTES_MAX, bind};
use crate::sessions::{Sessions, is_name};
pub use crate::users::SHARED;
use crate::users::{Users, shared_with_this};
use rustix::process::getuid;
use sheaf_core::machine_names;
use sheaf_tree::service::{Configs, Services, Site};
use sheaf_tree::{Admits, GATE, GATE_LOST, HostGates, Listener};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// What the file of a gate is called.
const GATE_FILE: &str = "gate";

/// What is between the host and the keeper in the name of that file; no [`short`] name of a host has it.
const KEEPER: char = '+';

/// What is said to servers that have no gates.
const HERE: &str = "here";

/// How hosts are reached without the session that this one is in.
const OUTSIDE: &str = ", or reach hosts outside of it with -w HOSTS --launch ssh";

/// How many hexadecimal digits of a keeper's digest are in the name of a gate's file.
const KEEPER_DIGITS: usize = 8;

/// The longest name of a host in the name of a gate's file; longer ones are cut.
const HOST_BYTES_MAX: usize = 32;

/// What servers of the session of this name are told, so that they have gates.
#[must_use]
pub fn config(session: &str, users: Option<&Users>, audit: AuditMode) -> Configs {
    let users = users.map(ToString::to_string).unwrap_or_default();
    let config = format!("{session}\0{users}\0{}\0{}", audit.name(), keeper());
    [(GATE.to_owned(), config.into_bytes())].into()
}

/// What servers on the root's own machine are told: they have no gates, and send the lines of the audit to the
/// root only, which has the session's log and the machine's journal.
#[must_use]
pub fn config_here(session: &str, audit: AuditMode) -> Configs {
    if audit == AuditMode::Off {
        return Configs::default();
    }
    let config = format!("{session}\0\0{}\0{}\0{HERE}", AuditMode::Log.name(), keeper());
    [(GATE.to_owned(), config.into_bytes())].into()
}

/// What tells this machine and user from others that keep sessions, in the names of gates. It stays
/// the same when the machine or the session is started anew, as long as the machine has its names and the
/// network device whose name is the first: clones of a machine may have its names.
pub(crate) fn keeper() -> String {
    // A process has one, though the machine be called otherwise by then.
    static KEEPER: OnceLock<String> = OnceLock::new();
    KEEPER.get_or_init(new_keeper).clone()
}

fn new_keeper() -> String {
    let mut hasher = blake3::Hasher::new();
    let link = ("sheaf link", hardware_address().map(Vec::from).unwrap_or_default());
    for (of, name) in machine_names().into_iter().chain([link]) {
        hasher.update(of.as_bytes());
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(&name);
    }
    hasher.update(&getuid().as_raw().to_le_bytes());
    hasher.finalize().to_hex()[..KEEPER_DIGITS].to_owned()
}

/// That of the network device whose name is the first; software makes others, which are taken where there are
/// no devices.
fn hardware_address() -> Option<[u8; 6]> {
    let is_made = |name: &str| !Path::new("/sys/class/net").join(name).join("device").exists();
    let links = nix::ifaddrs::getifaddrs().ok()?.filter_map(|link| {
        let address = link.address?.as_link_addr()?.addr().filter(|address| *address != [0; 6])?;
        Some((is_made(&link.interface_name), link.interface_name, address))
    });
    links.min().map(|(.., address)| address)
}

/// `services` with the gate of a host, for a server that runs in this environment.
#[must_use]
pub(crate) fn register(
    services: Services,
    environment: &Environment,
    audit: &Arc<HostAudit>,
) -> Services {
    let (environment, audit) = (environment.clone(), Arc::clone(audit));
    let open = move |site: &Site<'_>| {
        open(site, &environment, &audit).map_err(|error| io::Error::other(error.to_string()))
    };
    services.with(GATE, sheaf_tree::Gate::new(open))
}

/// What a [`config`] says.
#[derive(Debug, PartialEq, Eq)]
struct Told<'a> {
    session: &'a str,
    users: &'a str,
    audit: AuditMode,
    keeper: &'a str,
    /// The server is on the root's machine.
    is_here: bool,
}

fn read_config(config: &[u8]) -> Result<Told<'_>, SessionError> {
    let config = std::str::from_utf8(config).map_err(|_| {
        SessionError::Name("what its root says of the session is not UTF-8".to_owned())
    })?;
    let mut parts = config.split('\0');
    let mut part = || parts.next().unwrap_or_default();
    let (session, users, audit, keeper, place) = (part(), part(), part(), part(), part());
    if !is_name(session) {
        let text = format!("its root says {session:?}, which cannot be the name of a session");
        return Err(SessionError::Name(text));
    }
    let is_digit = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
    if keeper.len() != KEEPER_DIGITS || !keeper.bytes().all(is_digit) {
        let text = format!("its root says {keeper:?}, which is no digest of who keeps a session");
        return Err(SessionError::Name(text));
    }
    let audit = audit.parse().unwrap_or_default();
    Ok(Told { session, users, audit, keeper, is_here: place == HERE })
}

/// Opens the gates of a host; none where the session has none.
fn open(
    site: &Site<'_>,
    environment: &Environment,
    audit: &HostAudit,
) -> Result<HostGates, SessionError> {
    if site.config.is_empty() {
        return Ok(HostGates::default());
    }
    let Told { session: name, users, audit: mode, keeper, is_here } = read_config(site.config)?;
    if is_here {
        audit.begin(name, &short(site.host), mode, None)?;
        return Ok(HostGates::default());
    }
    let place = Sessions::of_server(environment);
    let mut gates = HostGates::default();
    // The root has each line of the audit, also where this host can keep none.
    let begun = audit.begin(name, &short(site.host), mode, place.as_ref().ok());
    gates.unaudited = match (&place, begun) {
        (_, Err(error)) => Some(one_line(&error)),
        (Err(error), Ok(())) if mode != AuditMode::Off => Some(one_line(error)),
        _ => None,
    };
    let file = file_name(name, site.host, keeper);
    let place = place.unwrap_or_else(|_| Sessions::of(environment));
    let (own, at) = listener(places(&place, environment), environment, &file);
    gates.listeners.push(own);
    // A caller of another environment would take this host for a machine of its own.
    if let Some(usual) = at.unwrap_or(place).of_callers(environment) {
        gates.listeners.push(listener(vec![usual], environment, &file).0);
    }
    let mut admits_login_user = false;
    if !users.is_empty() {
        match users.parse::<Users>() {
            Ok(users) => {
                admits_login_user = environment.login_user().is_some_and(|uid| users.has(uid));
                users.open(&file, &mut gates);
            }
            Err(why) => gates.shut_to_others = Some(why),
        }
    }
    // Through sudo the server is root's. Its login user finds the session all the same, and is told
    // by the root that it is not admitted; otherwise a command of that user would mean this host alone.
    if let Some(uid) = environment.login_user().filter(|_| !admits_login_user) {
        Users::These(vec![uid]).open_if_root(&file, &mut gates);
    }
    Ok(gates)
}

/// What the gate of a session's host is called.
fn file_name(session: &str, host: &str, keeper: &str) -> String {
    format!("{session}@{}{KEEPER}{keeper}.{GATE_FILE}", short(host))
}

/// That a session of this name can have gates on these hosts.
///
/// # Errors
/// [`SessionError::NoPlace`] when the name is too long for that.
pub(crate) fn check_length(session: &str, hosts: &[String]) -> Result<(), SessionError> {
    let Some(host) = hosts.iter().max_by_key(|host| short(host).len()) else { return Ok(()) };
    let user = getuid().as_raw();
    let path = format!("/run/user/{user}/sheaf/{}", file_name(session, host, &keeper()));
    if path.len() <= SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    Err(SessionError::NoPlace(format!(
        "its socket on {host} would have a path of {} bytes, and {SOCKET_PATH_BYTES_MAX} are the most: \
         give a shorter --session NAME",
        path.len()
    )))
}

/// Where a gate can be whose place is this one.
fn places(place: &Sessions, environment: &Environment) -> Vec<Sessions> {
    let mut places = place.and_those_that_last(environment);
    // Machines that share a directory for temporary files would take root's gates there for their own.
    places.retain(|other| !getuid().is_root() || other == place || *other == Sessions::roots());
    places
}

/// A gate of this user in the first of these places that can have one, and that place.
fn listener(
    all: Vec<Sessions>,
    environment: &Environment,
    file: &str,
) -> (Listener, Option<Sessions>) {
    let path = |place: &Sessions| place.directory().join(file);
    let mut made = Err(String::new());
    for place in &all {
        let bound = place.make_directory().and_then(|()| bind(&path(place)));
        match bound.map_err(|error| one_line(&error)) {
            Ok(socket) => {
                made = Ok((socket, place.clone()));
                break;
            }
            Err(why) if made.as_ref().is_err_and(String::is_empty) => made = Err(why),
            Err(_) => {}
        }
    }
    let (socket, at, all) = match made {
        Ok((socket, at)) => (Ok(socket), Some(at.clone()), places(&at, environment)),
        Err(why) => (Err(why), None, all),
    };
    let path = at.as_ref().or(all.first()).map(path).unwrap_or_default();
    let again = Box::new(listening_again(all, file.to_owned()));
    (Listener { socket, path, admits: Admits::Own, again }, at)
}

/// Makes a gate of this name in the first of these places that can have one, and has none.
fn listening_again(
    places: Vec<Sessions>,
    file: String,
) -> impl Fn() -> io::Result<(UnixListener, PathBuf)> {
    move || {
        let mut why = None;
        for sessions in &places {
            let path = sessions.directory().join(&file);
            let made =
                sessions.make_directory().map_err(|error| io::Error::other(one_line(&error)));
            match made.and_then(|()| UnixListener::bind(&path)) {
                Ok(socket) => {
                    socket.set_nonblocking(true)?;
                    return Ok((socket, path));
                }
                // A server that was killed has left one.
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse
                        && UnixStream::connect(&path).is_err_and(|error| {
                            error.kind() == io::ErrorKind::ConnectionRefused
                        }) =>
                {
                    match bind(&path) {
                        Ok(socket) => return Ok((socket, path)),
                        Err(error) => why = why.or(Some(io::Error::other(one_line(&error)))),
                    }
                }
                Err(error) => why = why.or(Some(error)),
            }
        }
        Err(why.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }
}

/// The name of a host as part of a file's name.
fn short(host: &str) -> String {
    host.chars()
        .filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c))
        .take(HOST_BYTES_MAX)
        .collect()
}

/// A gate of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GateSocket {
    /// The name of the session.
    pub session: String,
    /// The host that it is for.
    pub host: String,
    /// Who keeps the session; nothing is known of the keeper of a gate that an earlier version has made.
    keeper: String,
    path: PathBuf,
    sessions: Sessions,
}

impl GateSocket {
    /// Connects to it; `None` when nobody listens there any more, as after its server was killed.
    pub fn connect(&self) -> Result<Option<UnixStream>, SessionError> {
        self.sessions.connect(&self.path, &self.session)
    }

    /// That nobody listens there, though it is there, or its server has lost the session: whose
    /// host this is must not be taken for a machine of its own.
    pub fn check_left(&self) -> Result<(), SessionError> {
        let who = if self.is_shared() { "have root remove" } else { "remove" };
        if std::fs::symlink_metadata(&self.path).is_err() {
            let word = self.path.with_extension(GATE_LOST);
            let Ok(about) = std::fs::symlink_metadata(&word) else { return Ok(()) };
            let since = about.modified().map(|at| format!(" at {}", utc(at))).unwrap_or_default();
            let (session, word) = (&self.session, word.display());
            return Err(SessionError::Absent(format!(
                "this host was in session {session}, whose server here has lost its root{since}: \
                 {who} {word} if that session is over{OUTSIDE}"
            )));
        }
        let (session, path) = (&self.session, self.path.display());
        Err(SessionError::Absent(format!(
            "this host is in session {session}, whose server here is gone: {who} {path} if that \
             session is over{OUTSIDE}"
        )))
    }

    /// Whether an error of connecting says that it is another container's: one that is named after
    /// this host is not, though its server be in another PID namespace than this process.
    pub fn is_elsewhere(&self, error: &SessionError) -> bool {
        error.is_elsewhere() && self.host != short(&own_name())
    }

    /// That this host is in a session, though it cannot be known who listens.
    pub fn of_this_host(&self, error: &SessionError) -> SessionError {
        SessionError::Absent(format!(
            "this host is in session {}, but {error}: --embedded 1 is for this host alone{OUTSIDE}",
            self.session
        ))
    }

    /// Whether both lead to the same session.
    pub fn is_of_session_of(&self, other: &Self) -> bool {
        (&self.session, &self.keeper) == (&other.session, &other.keeper)
    }

    /// Whether this user keeps its session on this machine, where `own` has its sockets.
    pub fn is_own(&self, own: &Sessions) -> bool {
        let began = own.socket(&self.session).map(|socket| socket.with_extension("lock"));
        let began = began.ok().and_then(|lock| std::fs::read_to_string(lock).ok());
        self.keeper == keeper() || began.is_some_and(|began| began == self.keeper)
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it leads to a session of root's that lets this user in.
    pub fn is_shared(&self) -> bool {
        self.sessions.is_shared()
    }
}

/// The names of the sessions that have a server on this host, by which they can be joined.
///
/// # Errors
/// When the directory of sockets is not to be trusted, or cannot be read.
pub fn here(environment: &Environment) -> Result<Vec<String>, SessionError> {
    let mut names: Vec<String> = Vec::new();
    for gate in gates_in(environment)? {
        // What cannot be entered is none.
        if names.last() != Some(&gate.session) && matches!(gate.connect(), Ok(Some(_))) {
            names.push(gate.session);
        }
    }
    Ok(names)
}

/// Why sessions that this host is in cannot be joined here, for each whose server
/// is gone or takes nobody in.
///
/// # Errors
/// As [`here`].
pub fn gone(environment: &Environment) -> Result<Vec<(String, SessionError)>, SessionError> {
    let mut gone: Vec<(String, SessionError)> = Vec::new();
    for gate in gates_in(environment)? {
        let checked = gate.connect().and_then(|stream| match stream {
            Some(_) => Ok(()),
            None => gate.check_left(),
        });
        match checked {
            Err(error) if gate.is_elsewhere(&error) => {
                tracing::info!("a gate is passed over: {error}");
            }
            checked => gone.extend(checked.err().map(|error| (gate.session, error))),
        }
    }
    gone.dedup_by(|one, other| one.0 == other.0);
    let here = here(environment)?;
    gone.retain(|(name, _)| !here.contains(name));
    Ok(gone)
}

impl Config {
    /// [`gates_in`] the environment of whoever has this configuration.
    pub(crate) fn gates(&self) -> Result<Vec<GateSocket>, SessionError> {
        gates_in(self.environment())
    }
}

/// The gates here, which need not lead anywhere: where the caller's sessions have their sockets,
/// and where those of a server are that has another environment, as one has that was started over
/// ssh. Those of the host of this name come first.
fn gates_in(environment: &Environment) -> Result<Vec<GateSocket>, SessionError> {
    let mut gates = gates_of(&Sessions::of(environment))?;
    for others in Sessions::of_servers(environment) {
        // Anybody can make a directory there, which keeps nobody from anything.
        match gates_of(&others) {
            Ok(more) => gates.extend(more),
            Err(error) => tracing::warn!(%error, "gates there are not used"),
        }
    }
    for shared in shared_with_this() {
        match gates_of(&shared) {
            Ok(more) => gates.extend(more),
            Err(error) => tracing::warn!(%error, "gates there are not used"),
        }
    }
    let own = short(&own_name());
    gates.sort_by_cached_key(|gate| {
        let GateSocket { session, host, keeper, .. } = gate;
        (session.clone(), keeper.clone(), gate.is_shared(), *host != own, host.clone())
    });
    Ok(gates)
}

/// A time as logs have it, without the fraction of the second: `2026-03-01T10:00:00Z`.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day is the last one, and repeat after 400.
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let day = day - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = cycle * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn gates_of(sessions: &Sessions) -> Result<Vec<GateSocket>, SessionError> {
    let mut gates = Vec::new();
    // Root alone makes the directories of shared ones. In a user namespace that has no root they seem
    // to be another user's: no gate there leads anywhere, and this host is in a session all the same.
    let files = |extension| match sessions.is_shared() {
        true => sessions.unchecked_files(extension),
        false => sessions.files(extension),
    };
    let mut paths = files(GATE_FILE)?;
    // Those that are gone, and have left a word behind.
    for word in files(GATE_LOST)? {
        let gate = word.with_extension(GATE_FILE);
        if !paths.contains(&gate) {
            paths.push(gate);
        }
    }
    for path in paths {
        let names =
            path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.rsplit_once('@'));
        let Some((session, host)) = names else {
            // No session has made it.
            tracing::debug!("{} is no gate: it is not named SESSION@HOST", path.display());
            continue;
        };
        let (host, keeper) = host.split_once(KEEPER).unwrap_or((host, ""));
        gates.push(GateSocket {
            session: session.to_owned(),
            host: host.to_owned(),
            keeper: keeper.to_owned(),
            path: path.clone(),
            sessions: sessions.clone(),
        });
    }
    Ok(gates)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What this test does is done by itself, in a namespace from which it is not seen.
    #[test]
    fn gate_of_another_container_is_passed_over() {
        const INSIDE: &str = "SHEAF_TEST_INSIDE";
        const NAME: &str = "gates::tests::gate_of_another_container_is_passed_over";
        if let Some(runtime) = std::env::var_os(INSIDE) {
            let sessions = Sessions::at(PathBuf::from(runtime));
            let gate = gates_of(&sessions).unwrap().pop().unwrap();
            let error = gate.connect().unwrap_err();
            let told = "z@h1.gate: whoever listens there is in another PID namespace";
            assert!(error.is_elsewhere() && error.to_string().contains(told), "{error}");
            return;
        }
        let unshare = |args: &[&str]| {
            let mut command = std::process::Command::new("unshare");
            command.args(["--pid", "--fork"]).args(args);
            command
        };
        if !unshare(&["true"]).output().is_ok_and(|run| run.status.success()) {
            return sheaf_testing::skipped("no PID namespace can be made here (that needs root)");
        }
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let _gate = UnixListener::bind(dir.path().join("z@h1.gate")).unwrap();
        let itself = std::env::current_exe().unwrap();
        let run = unshare(&[itself.to_str().unwrap(), "--exact", NAME])
            .env(INSIDE, dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && said.contains("1 passed"), "{run:?}");
    }

    /// The test runs itself where `/run` is its own.
    #[test]
    fn login_user_of_a_server_under_sudo_finds_its_session() {
        const INSIDE: &str = "SHEAF_TEST_INSIDE_SUDO";
        const NAME: &str = "gates::tests::login_user_of_a_server_under_sudo_finds_its_session";
        if let Some(temporary) = std::env::var_os(INSIDE) {
            let here = Environment::default().with("TMPDIR", &temporary);
            let opened = |users: Option<Users>, login: &str| {
                let config = &config("lab", users.as_ref(), AuditMode::Off)[GATE];
                let site = Site { leaf: Some(0), rank: 1, host: "h1", config };
                let environment = here.clone().with("SUDO_UID", login);
                let gates = open(&site, &environment, &HostAudit::default()).unwrap();
                assert_eq!((gates.shut, gates.shut_to_others), (None, None));
                gates.listeners.iter().map(|gate| gate.path.clone()).collect::<Vec<_>>()
            };
            let at = |who: &str| {
                PathBuf::from("/run/sheaf").join(who).join(format!("lab@h1+{}.gate", keeper()))
            };
            assert_eq!(opened(None, "4242"), [at("root"), at("4242")]);
            let place = crate::users::shared_with(4242).pop().unwrap();
            assert_eq!(gates_of(&place).unwrap().pop().unwrap().session, "lab");
            let both = Users::These(vec![7, 4242]);
            assert_eq!(opened(Some(both), "4242"), [at("root"), at("7"), at("4242")]);
            assert_eq!(opened(Some(Users::Any), "4242"), [at("root"), at("any")]);
            for login in ["0", "", "root", "-1"] {
                assert_eq!(opened(None, login), [at("root")], "{login}");
            }
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
        let itself = std::env::current_exe().unwrap();
        let run = inside(&[itself.to_str().unwrap(), "--exact", NAME])
            .env(INSIDE, dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && said.contains("1 passed"), "{run:?}");
    }

    #[test]
    fn keeper_is_the_same_whenever_it_is_asked_for() {
        assert_eq!((keeper().len(), keeper()), (KEEPER_DIGITS, keeper()));
        let loopback = nix::ifaddrs::getifaddrs().unwrap();
        let any = loopback.filter(|link| link.interface_name != "lo").count() > 0;
        assert!(!any || hardware_address().is_some());
    }

    #[test]
    fn time_of_a_lost_session_is_written_as_in_logs() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_772_359_200, "2026-03-01T10:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            assert_eq!(utc(time), expected);
        }
    }

    #[test]
    fn session_config_from_a_root_is_parsed_or_rejected() {
        let one = &config("lab", Some(&Users::These(vec![7, 8])), AuditMode::Log)[GATE];
        let (session, users, audit, by) = ("lab", "7,8", AuditMode::Log, keeper());
        assert_eq!(
            read_config(one).unwrap(),
            Told { session, users, audit, keeper: &by, is_here: false }
        );
        let here = &config_here("lab", AuditMode::Journald)[GATE];
        let expected = Told { session, users: "", audit, keeper: &by, is_here: true };
        assert_eq!(read_config(here).unwrap(), expected);
        assert!(config_here("lab", AuditMode::Off).is_empty());
        let least =
            Told { session, users: "", audit: AuditMode::Off, keeper: "0123cdef", is_here: false };
        assert_eq!(read_config(b"lab\0\0\x000123cdef").unwrap(), least);
        for (wrong, why) in [
            (&b"lab\xff"[..], "what its root says of the session is not UTF-8"),
            (b"../lab", "its root says \"../lab\", which cannot be the name of a session"),
            (b"\x007", "its root says \"\", which cannot be the name of a session"),
            (
                b"lab\0\0log\0../../a",
                "its root says \"../../a\", which is no digest of who keeps a session",
            ),
            (b"lab", "its root says \"\", which is no digest of who keeps a session"),
        ] {
            assert_eq!(read_config(wrong).unwrap_err().to_string(), why);
        }
    }
}
