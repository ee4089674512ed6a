//! Joining a session that runs.
use crate::config::{Config, Origin, own_name, some_of};
use crate::error::{SessionError, one_line};
use crate::gates::GateSocket;
use crate::session::{Lookup, Session};
use crate::sessions::{Sessions, is_name, peer};
use crate::start::limits;
use crate::wire::SessionInfo;
use rustix::process::Pid;
use sheaf_core::ProcessStat;
use sheaf_group::Client;
use sheaf_tree::filter::Registry;
use sheaf_tree::launch::{self, GREETING_TIMEOUT, ServeError};
use sheaf_tree::{CLIENTS_MAX, GUESTS_MAX};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A session is always given this long to greet.
const GREETING_TIME_MIN: Duration = Duration::from_millis(100);

/// [`Session::find`].
pub fn find(config: Config, filters: &Registry) -> Result<Lookup, SessionError> {
    let (stream, gate) = match open(&config)? {
        Some((stream, place)) => {
            check_no_other(&config, &place)?;
            (stream, None)
        }
        None => match through_gate(&config)? {
            Some((stream, gate)) => (stream, Some(gate)),
            None if config.session.is_some() => return Err(absent(&config)),
            None => return Ok(Lookup::Nothing(Box::new(config))),
        },
    };
    join(config, stream, gate, filters).map(|session| Lookup::Session(Box::new(session)))
}

fn absent(config: &Config) -> SessionError {
    config.sessions().absent_and(config.session_name(), None, &config.start_words())
}

/// [`Session::here`].
pub fn here(config: Config, filters: &Registry) -> Result<Session, SessionError> {
    match through_gate(&config)? {
        Some((stream, gate)) => join(config, stream, Some(gate), filters),
        None => Err(SessionError::Absent("no session has a server on this host".to_owned())),
    }
}

/// Joins what is at the other end, which may be the gate of this host.
fn join(
    mut config: Config,
    stream: UnixStream,
    gate: Option<GateSocket>,
    filters: &Registry,
) -> Result<Session, SessionError> {
    if let Some(gate) = &gate {
        config.session = Some(gate.session.clone());
    }
    let name = config.session_name();
    let (pid, begun) = (peer(&stream)?, Instant::now());
    let limit = greeting_time(&config);
    let joined = match launch::join_within(limit, OwnedFd::from(stream), filters) {
        Ok(joined) => joined,
        Err(ServeError::Refused(why)) => return Err(SessionError::Refused(why)),
        Err(error) if gate.is_some() => {
            let is_guest = gate.as_ref().is_some_and(GateSocket::is_shared);
            let why = not_greeted_here(pid, limit, is_guest, &error);
            let text = format!("session {name}: {why}");
            return Err(SessionError::Unresponsive(text));
        }
        Err(_) if !Sessions::runs_anywhere(config.environment(), name) => {
            let text = format!("session {name} is ending, and takes in nobody any more");
            return Err(SessionError::Unresponsive(text));
        }
        Err(error) => {
            let text = format!("session {name}: {}", not_greeted(pid, limit, &error));
            return Err(SessionError::Unresponsive(text));
        }
    };
    let about = SessionInfo::parse(&joined.about).map_err(|source| SessionError::Protocol {
        what: "the session does not say what it is".to_owned(),
        source,
    })?;
    check_cluster(&config, &about)?;
    if gate.is_some() {
        check_own(&config, name, &about)?;
    }
    config.use_topology(&joined.topology);
    if gate.is_some() && config.says_free_hosts() {
        config.take_from_session()?;
    }
    let client = Client::new(joined.network, joined.topology.leaf_hosts(), limits(&config))?;
    let is_guest = gate.as_ref().is_some_and(GateSocket::is_shared);
    let gate = gate.map(|gate| gate.host);
    let by = gate.as_ref().map(|host| format!(" by way of {host}")).unwrap_or_default();
    tracing::info!(
        "session {} is joined{by}: {} hosts",
        config.session_name(),
        joined.topology.leaves_len()
    );
    let (ms, nodes) = (begun.elapsed().as_secs_f64() * 1e3, joined.topology.nodes_len());
    tracing::debug!(
        "process {} has let this one in: {nodes} nodes: {ms:.1} ms",
        pid.as_raw_nonzero()
    );
    let (topology, about) = (joined.topology, Some(about));
    Ok(Session { client, config, topology, desk: None, about, gate, is_guest })
}

/// That this host is in no other session of the name of the one that is meant, which others keep.
fn check_no_other(config: &Config, own: &Sessions) -> Result<(), SessionError> {
    let name = config.session_name();
    let others =
        config.gates()?.into_iter().filter(|gate| gate.session == name && !gate.is_own(own));
    for gate in others {
        match gate.connect() {
            // Root's that is gone has no word for this user.
            Ok(None) if gate.is_shared() => continue,
            Ok(None) => gate.check_left()?,
            Err(error) if gate.is_elsewhere(&error) => continue,
            // One that takes nobody in is there all the same.
            Ok(Some(_)) | Err(_) => {
                return Err(SessionError::Choice(format!(
                    "this host is in two sessions {name}: its own, and one of another machine or user ({}): end one of \
                     them, or start it anew with another name (--session)",
                    gate.path().display()
                )));
            }
        }
    }
    Ok(())
}

/// That no session of this user's own runs here under the name of the one that this host is in.
fn check_own(config: &Config, name: &str, about: &SessionInfo) -> Result<(), SessionError> {
    let is_kept_here = about.kept_by == own_name();
    let is_it = |process: Option<i32>| {
        is_kept_here && process.is_some_and(|process| process.cast_unsigned() == about.pid)
    };
    if Sessions::processes_of(config.environment(), name).into_iter().all(is_it) {
        return Ok(());
    }
    Err(SessionError::Choice(format!(
        "this host is in two sessions {name}: its own, and one that is kept by {}: end one of them, or \
         start it anew with another name (--session)",
        about.kept_by
    )))
}

/// That a session that was named is one of the cluster that was, too: what is meant where both are
/// said cannot be told otherwise.
fn check_cluster(config: &Config, about: &SessionInfo) -> Result<(), SessionError> {
    let said = &config.cluster.name;
    let is_said = said.origin == Origin::Option("--cluster") && config.session.is_some();
    if !is_said || said.value == about.cluster {
        return Ok(());
    }
    let (name, cluster, other) = (config.session_name(), &said.value, &about.cluster);
    Err(SessionError::Choice(format!(
        "session {name} is one of cluster {other}, not of {cluster}: leave out --cluster {cluster}, \
         or name a session of that cluster"
    )))
}

/// Connects to the session that is meant; `None` when there is none to be asked, and need not be.
fn open(config: &Config) -> Result<Option<(UnixStream, Sessions)>, SessionError> {
    let (asked, name) = (config.session.is_some(), config.session_name());
    // A cluster may be called as no session is; one of its own has another name then.
    if !asked && !is_name(name) {
        return Ok(None);
    }
    // Whoever says the hosts has a tree of those; the hosts of a cluster are its session's, which may have others.
    if !asked && config.has_own_hosts() {
        return Ok(None);
    }
    if asked && let Some(option) = config.says_login() {
        let text = format!("session {name}: {option} is said when it is started");
        return Err(SessionError::Choice(text));
    }
    // One that was killed is not taken for another of its name, here or of this host, nor for all hosts of
    // the file; one that runs elsewhere is found.
    let named = Sessions::named(config.environment(), name, None, &config.start_words())?;
    let Some(stream) = named.open(name)? else {
        return Sessions::check_ended(config.environment(), name).map(|()| None);
    };
    if let Some(option) = config.says_login().or(config.says_start()) {
        let text = format!(
            "session {name} runs, and {option} holds for sessions that are started: `sheaf down {name}` first, or add \
             -w HOSTS --launch ssh, or --embedded 1 for this host alone, for a tree of its own"
        );
        return Err(SessionError::Choice(text));
    }
    Ok(Some((stream, named)))
}

/// Connects to the gate of this host, where it is one of a session that is meant, or none in
/// particular is.
fn through_gate(config: &Config) -> Result<Option<(UnixStream, GateSocket)>, SessionError> {
    let asked = config.session.is_some();
    // Where nothing says which hosts are meant, they are those of the session that this host is in.
    let any = config.says_no_hosts();
    // Those that no file knows are its hosts, too, or else over ssh if that is said.
    let free = !asked && config.says_free_hosts();
    if !asked && let Some(option) = config.says_free_hosts_with() {
        return check_no_gate(config, option).map(|()| None);
    }
    if !asked && !any && !free && config.has_own_hosts() {
        return Ok(None);
    }
    let is_meant = |gate: &GateSocket| any || free || gate.session == config.session_name();
    let gates = config.gates()?.into_iter().filter(is_meant);
    // Whoever says no session may mean any that this host is in, or was.
    let is_any = any || free;
    let mut open = Vec::<(UnixStream, GateSocket)>::new();
    let mut failed = Vec::new();
    for gate in gates {
        // Several hosts may be on one machine: one way to a session is enough.
        if open.iter().any(|(_, other)| other.is_of_session_of(&gate)) {
            continue;
        }
        match gate.connect() {
            Ok(Some(stream)) => open.push((stream, gate)),
            Ok(None) if is_any || !gate.is_shared() => {
                failed.extend(gate.check_left().err().map(|error| (gate, error)));
            }
            Ok(None) => {}
            // It is no way into a session that this host is in.
            Err(error) if !asked && gate.is_elsewhere(&error) => {
                tracing::info!("a gate is passed over: {error}");
            }
            Err(error) if is_any && (error.is_elsewhere() || gate.is_shared()) => {
                let error = gate.of_this_host(&error);
                failed.push((gate, error));
            }
            Err(error) => failed.push((gate, error)),
        }
    }
    check_one(config, (any, free), &open)?;
    // Another way led into a session; what is another container's is nothing beside one that is open.
    failed.retain(|(gate, error)| {
        !open.iter().any(|(_, other)| other.is_of_session_of(gate) || gate.is_elsewhere(error))
    });
    let failed = failed.into_iter().next();
    match (open.pop(), failed) {
        // One of the same name that another machine or user keeps, or this user beside root, may be meant as well.
        (Some((_, gate)), Some((other, error))) => {
            let name = &gate.session;
            let also = match other.session == *name {
                true => format!("another session {name} as well"),
                false => format!("{name} as well: say which with --session"),
            };
            Err(SessionError::Absent(format!("{error}; this host is in {also}")))
        }
        (Some((stream, gate)), None) => match config.says_login().or(config.says_start()) {
            Some(option) => {
                let text = format!(
                    "this host is in session {}, which runs, and {option} holds for sessions that \
                     are started: add -w HOSTS --launch ssh, or --embedded 1 for this host alone, \
                     for a tree of its own",
                    gate.session
                );
                Err(SessionError::Choice(text))
            }
            None => Ok(Some((stream, gate))),
        },
        // Files of this machine, or of hosts outside of the session, must not stand in for the
        // session's.
        (None, Some((_, error))) if asked || is_any || matches!(error, SessionError::Absent(_)) => {
            Err(error)
        }
        (None, Some((_, error))) => {
            tracing::warn!(%error, "the gates of this host are not used");
            Ok(None)
        }
        (None, None) => Ok(None),
    }
}

/// That this host is in no session, and has lost none, where an option beside hosts is not for one.
fn check_no_gate(config: &Config, option: &str) -> Result<(), SessionError> {
    for gate in config.gates()? {
        let leads_nowhere = match gate.connect() {
            Ok(Some(_)) => false,
            Ok(None) => gate.check_left().is_ok(),
            Err(error) => gate.is_elsewhere(&error),
        };
        if !leads_nowhere {
            return Err(SessionError::Choice(format!(
                "this host is in session {}, and {option} is for hosts outside of it, whose files begin at \
                 their own root: add --launch ssh for that, or leave out {option}",
                gate.session
            )));
        }
    }
    Ok(())
}

/// That the gates which are open lead to one session, and that no other one may be meant.
fn check_one(
    config: &Config,
    (any, free): (bool, bool),
    open: &[(UnixStream, GateSocket)],
) -> Result<(), SessionError> {
    let mut names: Vec<String> = open.iter().map(|(_, gate)| gate.session.clone()).collect();
    if (any || free) && !names.is_empty() {
        if let Some(ended) = Sessions::killed_anywhere(config.environment()) {
            return Err(SessionError::Absent(format!(
                "{ended}; this host is in {} as well: say which with --session, or have sheaf status \
                 forget the first",
                some_of(names.iter())
            )));
        }
        // Those that were started here, which a command has to name. Of one elsewhere its place is
        // behind its name.
        let own = Sessions::running_anywhere(config.environment()).unwrap_or_default();
        let is_open = |own: &String| names.iter().any(|name| own.split(' ').next() == Some(name));
        let others: Vec<String> = own.into_iter().filter(|own| !is_open(own)).collect();
        names.extend(others);
    }
    if let Some((one, other)) = of_one_name(open) {
        return Err(SessionError::Choice(format!(
            "this host is in two sessions {}, which different machines or users keep ({}, {}): end one of \
             them, or start it anew with another name (--session)",
            one.session,
            one.path().display(),
            other.path().display()
        )));
    }
    if let [_, _, ..] = names[..] {
        let text = format!(
            "this host is in several sessions: {}; say which with --session{}",
            some_of(names.iter()),
            if free { ", or that none is meant with --launch ssh" } else { "" }
        );
        return Err(SessionError::Choice(text));
    }
    Ok(())
}

/// Two gates of different sessions that have the same name.
fn of_one_name(open: &[(UnixStream, GateSocket)]) -> Option<(&GateSocket, &GateSocket)> {
    let mut pairs = open.iter().zip(open.iter().skip(1)).map(|((_, one), (_, other))| (one, other));
    pairs.find(|(one, other)| one.session == other.session)
}

/// How long a session may take to greet whoever joins it: so long that what it is can still be said
/// in the time of the command.
fn greeting_time(config: &Config) -> Duration {
    let left = config.deadline.map(|end| end.saturating_duration_since(Instant::now()));
    let share = left.map(|left| (left * 3 / 4).max(GREETING_TIME_MIN));
    share.map_or(GREETING_TIMEOUT, |share| share.min(GREETING_TIMEOUT))
}

/// Why a session's process has not let us in.
fn not_greeted(pid: Pid, limit: Duration, error: &ServeError) -> String {
    if !is_late(error) {
        return error.to_string();
    }
    let why = trouble(pid).unwrap_or_else(|| "it hangs, or has too much to do".to_owned());
    let (pid, seconds) = (pid.as_raw_nonzero(), limit.as_secs_f32().ceil());
    format!("its process {pid} has not answered within {seconds:.0} s: {why}")
}

/// Why the server of this host has not brought us to the session's root; as guests of root's, if
/// that is what we are.
fn not_greeted_here(pid: Pid, limit: Duration, is_guest: bool, error: &ServeError) -> String {
    let (trouble, pid) = (trouble(pid), pid.as_raw_nonzero());
    let server = format!("its server on this host, process {pid},");
    let seconds = limit.as_secs_f32().ceil();
    match (is_late(error), trouble) {
        (true, Some(why)) => {
            format!("{server} has not answered within {seconds:.0} s: {why}")
        }
        (true, None) => format!(
            "{server} has brought no answer within {seconds:.0} s: it or the session's root \
             hangs, or has too much to do"
        ),
        (false, Some(why)) => format!("{server} has let nobody in: {why}"),
        (false, None) if matches!(error, ServeError::Link(_)) => {
            let most = match is_guest {
                true => format!("{GUESTS_MAX} of one user"),
                false => format!("{CLIENTS_MAX}"),
            };
            format!(
                "{server} has hung up: it ends, or there are too many clients (at most {most}) or \
                 too few descriptors, there or at the session's root"
            )
        }
        (false, None) => one_line(error),
    }
}

fn is_late(error: &ServeError) -> bool {
    use ErrorKind::{TimedOut, WouldBlock};
    matches!(error, ServeError::Link(error) if matches!(error.kind(), WouldBlock | TimedOut))
}

/// What can be seen from outside that keeps a process from letting anybody in.
fn trouble(pid: Pid) -> Option<String> {
    let pid = pid.as_raw_nonzero();
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    if let Some(b'T' | b't') = ProcessStat::parse(&stat).and_then(ProcessStat::state) {
        return Some(format!("it is stopped; kill -CONT {pid} lets it go on"));
    }
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let most = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let most: usize = most.split_whitespace().next()?.parse().ok()?;
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    (open >= most).then(|| {
        format!("it has no descriptor left, of the {most} that it may have open (ulimit -n)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, kill_process};
    use std::process::{Command, Stdio};

    #[test]
    fn limit_that_counts_is_named() {
        let pid = rustix::process::getpid();
        let closed = ServeError::Link(std::io::Error::from(ErrorKind::UnexpectedEof));
        let why = |is_guest| not_greeted_here(pid, GREETING_TIMEOUT, is_guest, &closed);
        assert!(
            why(true).contains(" too many clients (at most 32 of one user) or "),
            "{}",
            why(true)
        );
        assert!(why(false).contains(" too many clients (at most 256) or "), "{}", why(false));
    }

    #[test]
    fn process_that_cannot_accept_connections_is_diagnosed() {
        let few = "ulimit -n 3 && read -r _";
        let mut child = Command::new("sh").args(["-c", few]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let within = |wanted: &str| {
            let end = Instant::now() + Duration::from_secs(20);
            while !trouble(pid).is_some_and(|why| why.contains(wanted)) {
                assert!(Instant::now() < end, "{wanted}: {:?}", trouble(pid));
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        within("it has no descriptor left, of the 3 that it may have open");
        kill_process(pid, Signal::STOP).unwrap();
        within("it is stopped; kill -CONT");
        child.kill().unwrap();
        child.wait().unwrap();
        let own = Pid::from_raw(std::process::id().cast_signed()).unwrap();
        assert_eq!(trouble(own), None);
    }
}
