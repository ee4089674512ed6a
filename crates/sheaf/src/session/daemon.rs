//! Sessions that stay: a process of this user with a tree, and a socket for later commands.
//!
//! The socket is `NAME.sock` in a directory that only this user can enter. Both ends check who
//! the other is: a client trusts no socket of somebody else's, a session lets nobody else in.
use super::wire::About;
use super::{Connected, Signals, TokenFile, connect, deadline, runtime};
use crate::cli::GlobalArgs;
use crate::config::{Config, Launch, nearest, some_of};
use crate::exit::{Exit, Stop};
use crate::trust;
use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags, flock};
use rustix::process::{Pid, Signal};
use sheaf_group::Session;
use sheaf_tree::launch;
use sheaf_tree::topology::Role;
use std::cell::Cell;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long `down` waits for a session to be gone.
const DOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long those may take to say so that have started in time, where others have not.
const COUNT_TIME: Duration = Duration::from_millis(400);

/// The longest reason for the end of a session that is told.
const ENDED_CHARS_MAX: usize = 300;

/// How long a session waits after it could not let a client in.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The longest path that the system takes for a socket.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// What can be done where the session `name` runs already.
fn another_name(name: &str) -> String {
    format!("end it with sheaf down {name}, or name another with --session")
}

/// Name of the session that the configuration means.
pub fn name(config: &Config) -> &str {
    config.session.as_deref().unwrap_or(&config.cluster.name.value)
}

/// The session that is meant, by its name alone or by the configuration.
pub fn named(name: Option<&String>, global: &GlobalArgs) -> Result<String> {
    match name.or(global.session.as_ref()) {
        Some(name) => Ok(name.clone()),
        None => Ok(self::name(&Config::load(global)?).to_owned()),
    }
}

/// Where this user's sessions have their sockets.
fn directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute()) {
        Some(dir) => PathBuf::from(dir).join("sheaf"),
        None => std::env::temp_dir().join(format!("sheaf-{}", rustix::process::getuid().as_raw())),
    }
}

/// Whether nobody else can put sockets where this user's sessions have theirs.
pub fn check_directory() -> Result<()> {
    let directory = directory();
    trust::check_private(&directory).map_err(|why| Stop::usage(why.text(&directory)).into())
}

/// Whether a session can be called so: its name is a file's, and stands in lines that are read again.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._@-".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain)
}

/// The socket of a session of this name.
pub fn socket_path(name: &str) -> Result<PathBuf> {
    if !is_name(name) {
        let text = "one has letters, digits and . _ @ -, and does not begin with a dot";
        return Err(Stop::usage(format!("{name:?} cannot be the name of a session: {text}")).into());
    }
    Ok(directory().join(format!("{name}.sock")))
}

/// Joins the session that is meant, if it runs. One that was asked for by name must.
pub fn join(config: &Config) -> Result<Option<Connected>> {
    Ok(join_with_about(config)?.map(|(connected, _)| connected))
}

/// [`join`], with what the session says of itself.
pub fn join_with_about(config: &Config) -> Result<Option<(Connected, About)>> {
    let asked = config.session.is_some();
    // A cluster may be called as no session is; one of its own has another name then.
    if !asked && !is_name(name(config)) {
        return Ok(None);
    }
    // What a running session cannot heed, whoever has not asked for one gets from a tree of their own.
    if !asked && (config.is_ad_hoc() || config.says_login().is_some() || config.says_start().is_some()) {
        return Ok(None);
    }
    if let Some(option) = config.says_login() {
        let text = format!("session {}: {option} is said when it is started", name(config));
        return Err(Stop::usage(text).into());
    }
    let Some(stream) = open(name(config))? else {
        if asked {
            return Err(absent(name(config), None)?.into());
        }
        return Ok(None);
    };
    if let Some(option) = config.says_start() {
        let text = format!(
            "session {}: {option} says nothing to a running session; it is said when that is started",
            name(config)
        );
        return Err(Stop::usage(text).into());
    }
    let pid = peer_pid(&stream)?;
    let joined = match launch::join(OwnedFd::from(stream), &super::registry()) {
        Ok(joined) => joined,
        Err(_) if !is_running(name(config)) => {
            let text = format!("session {} is ending, and takes in nobody any more", name(config));
            return Err(Stop::unreachable(text).into());
        }
        Err(error) => {
            let text = format!("session {}: {}", name(config), not_greeted(pid, &error));
            return Err(Stop::unreachable(text).into());
        }
    };
    let about = About::parse(&joined.about).context("the session does not say what it is")?;
    config.use_topology(&joined.topology);
    let session = Session::new(joined.network, joined.topology.leaf_hosts(), super::limits(config))?;
    Ok(Some((Connected { session, topology: joined.topology, desk: None, own: false }, about)))
}

/// The error of a session that does not run: the name that was meant, or those that there are. `command`
/// is what takes the name of one that runs; without it the session can be started as well.
pub fn absent(name: &str, command: Option<&str>) -> Result<Stop> {
    let running = running()?;
    let near = nearest(name, running.iter().map(String::as_str));
    let others = (!running.is_empty()).then(|| format!("; running: {}", some_of(running.iter())));
    let hint = match (near, command, &running[..]) {
        (Some(near), ..) => format!("; did you mean {near}?"),
        (None, None, _) => format!("; start it with: sheaf up --session {name}"),
        (None, Some(_), []) => String::new(),
        (None, Some(command), [one]) => format!(" ({command} {one})"),
        (None, Some(command), _) => format!(" ({command} NAME)"),
    };
    let why = end_of(name).map(|why| format!(" any more ({why})")).unwrap_or_default();
    let others = others.unwrap_or_default();
    Ok(Stop::unreachable(format!("no session {name} is running{why}{others}{hint}")))
}

/// Whether a session of this name runs, or something is there that cannot be told from one.
pub fn is_running(name: &str) -> bool {
    !matches!(open(name), Ok(None))
}

/// Why a session's process has not let us in.
fn not_greeted(pid: Pid, error: &launch::ServeError) -> String {
    let late = matches!(error, launch::ServeError::Link(error)
        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    if late { silent_process(pid, launch::GREETING_TIMEOUT) } else { error.to_string() }
}

fn silent_process(pid: Pid, after: Duration) -> String {
    let pid = pid.as_raw_nonzero();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    let why = match state {
        Some('T' | 't') => format!("it is stopped; kill -CONT {pid} lets it go on"),
        _ => "it hangs, or has too much to do".to_owned(),
    };
    format!("its process {pid} has not answered within {} s: {why}", after.as_secs())
}

/// Connects to a session of this user; `None` when none listens.
fn open(name: &str) -> Result<Option<UnixStream>> {
    let path = socket_path(name)?;
    check_directory()?;
    match std::fs::symlink_metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => bail!(crate::exit::io_text(&path, &error)),
        Ok(metadata) => own(&path, &metadata)?,
    }
    let stream = match connect_at_once(&path) {
        Ok(stream) => stream,
        // A session that was killed leaves its socket behind; nobody listens there.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            let text = format!("session {name}: its process takes in no clients: it is stopped, or hangs");
            return Err(Stop::unreachable(text).into());
        }
        Err(error) => bail!(crate::exit::io_text(&path, &error)),
    };
    let peer =
        rustix::net::sockopt::socket_peercred(&stream).context("who listens at the session's socket")?;
    if peer.uid != rustix::process::getuid() {
        return Err(foreign(&path, peer.uid.as_raw()));
    }
    Ok(Some(stream))
}

/// Connects without waiting: where a process is stopped, nobody makes room for those who wait.
fn connect_at_once(path: &Path) -> std::io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn own(path: &Path, metadata: &std::fs::Metadata) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    if metadata.uid() == rustix::process::getuid().as_raw() {
        Ok(())
    } else {
        Err(foreign(path, metadata.uid()))
    }
}

fn foreign(path: &Path, uid: u32) -> anyhow::Error {
    Stop::usage(format!(
        "{}: the session's socket belongs to user {uid}, not to you; it is not used",
        path.display()
    ))
    .into()
}

/// A session that was started.
pub struct Started {
    pub pid: u32,
    /// How many hosts run.
    pub hosts: u64,
}

/// Starts a session in the background and waits until it listens.
pub fn up(config: &Config, arguments: &[std::ffi::OsString]) -> Result<Started> {
    let name = name(config).to_owned();
    if let Some(stream) = open(&name)? {
        let pid = peer_pid(&stream)?;
        let pid = pid.as_raw_nonzero();
        let text = format!("session {name} runs already, as process {pid}: {}", another_name(&name));
        return Err(Stop::usage(text).into());
    }
    let (mut said, ours) = std::io::pipe()?;
    let mut command = Command::new(std::env::current_exe()?);
    // Errors come here and are told in one line. Once the session runs nobody reads them: it must
    // not hold on to this command's standard error, which may be a pipe that somebody reads to
    // its end.
    command.args(arguments).stdin(Stdio::null()).stdout(OwnedFd::from(ours)).stderr(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child = command.spawn().context("cannot start the session's process")?;
    drop(command);
    let mut ready = String::new();
    said.read_to_string(&mut ready)?;
    match ready.trim().parse() {
        Ok(hosts) => Ok(Started { pid: child.id(), hosts }),
        Err(_) => Err(not_started(&name, child)),
    }
}

/// Why a session's process ended before it listened, with the exit code that it ended with.
fn not_started(name: &str, child: Child) -> anyhow::Error {
    let output = match child.wait_with_output() {
        Ok(output) => output,
        Err(error) => return error.into(),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let cause = said.lines().find_map(|line| line.strip_prefix("sheaf: "));
    let cause = cause.map_or_else(|| output.status.to_string(), ToOwned::to_owned);
    let text = format!("session {name} did not start: {cause}");
    match output.status.code() {
        Some(code) if code == Exit::Usage as i32 => Stop::usage(text).into(),
        Some(code) if code == Exit::Unreachable as i32 => Stop::unreachable(text).into(),
        _ => anyhow::anyhow!(text),
    }
}

/// Goes to `/`: a session that stays must not keep the directory that it was started in.
///
/// # Errors
/// When there are no hosts to be found, which may be listed by a file that is named from here, or the
/// directory cannot be told that an export is named from.
pub fn leave_directory(config: &mut Config) -> Result<()> {
    // Their words may name files from here whenever a host is logged in to again.
    let has_words = config.cluster.ssh.is_some() || config.cluster.srun.is_some();
    if has_words || !directory().is_absolute() {
        return Ok(());
    }
    config.hosts()?;
    let export = &mut config.cluster.export.value;
    let is_here = matches!(config.cluster.launch.value, Launch::Embedded | Launch::Processes);
    if is_here && !export.is_empty() {
        // From `/` another directory would be served.
        let absolute = std::path::absolute(&*export).with_context(|| format!("export {export}"))?;
        let text = absolute.into_os_string().into_string();
        let why = "the working directory's name is not UTF-8: name the export from /";
        *export = text.map_err(|_| Stop::usage(why))?;
    }
    std::env::set_current_dir("/").context("/")
}

/// Runs a session until it is asked to end. Once it listens, `listening` is given the number of its hosts.
pub fn run(
    config: &Config,
    tokens: Option<&TokenFile>,
    listening: impl FnOnce(u64) -> Result<()>,
) -> Result<()> {
    let runtime = runtime()?;
    let servers = super::servers();
    let result = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let path = socket_path(name(config))?;
        let (lock, listener) = listen(&path)?;
        let requests = bind(&path.with_extension("token"))?;
        let connected = connect(config, 1, tokens, &servers).await?;
        let requests = tokio::net::UnixListener::from_std(requests)?;
        let desk = tokio::spawn(super::tokens::serve(requests, connected.desk.clone()));
        let (network, listens) = (connected.session.network(), Cell::new(false));
        let listening = |hosts| {
            listens.set(true);
            listening(hosts)
        };
        let served = tokio::select! {
            biased;
            why = network.deserted() => Err(ended(name(config), &why, listens.get())),
            served = start_and_serve(&connected, config, listener, listening) => served,
            () = signals.heard() => Ok(()),
        };
        // The name goes first, so that nobody connects to a session that ends.
        drop(lock);
        desk.abort();
        connected.session.network().clone().shutdown().await;
        served
    });
    runtime.shutdown_background();
    servers.settle(super::UNDO_TIME);
    result
}

/// The error of a session whose hosts were ended by others. Of one that has run, later commands are told.
fn ended(name: &str, why: &str, has_run: bool) -> anyhow::Error {
    if !has_run {
        return Stop::unreachable(why.to_owned()).into();
    }
    if let Err(error) =
        socket_path(name).and_then(|path| Ok(std::fs::write(path.with_extension("ended"), why)?))
    {
        tracing::warn!(%error, "why the session has ended cannot be kept");
    }
    Stop::unreachable(format!("session {name} has ended: {why}")).into()
}

/// Why the last session of this name has ended by itself, if it has.
fn end_of(name: &str) -> Option<String> {
    let path = socket_path(name).ok()?.with_extension("ended");
    let why = std::fs::read_to_string(path).ok()?;
    Some(why.chars().filter(|c| !c.is_control()).take(ENDED_CHARS_MAX).collect())
}

async fn start_and_serve(
    connected: &Connected,
    config: &Config,
    listener: UnixListener,
    listening: impl FnOnce(u64) -> Result<()>,
) -> Result<()> {
    let hosts = match config.launch() {
        // Hosts come when they come.
        Launch::Attach => 0,
        _ => started(connected, config).await,
    };
    let about = about(config)?;
    listening(hosts)?;
    deadline::lift();
    serve(connected, listener, &about).await
}

/// How many hosts run once all have started or failed to, or their time to do so is over.
async fn started(connected: &Connected, config: &Config) -> u64 {
    let start_timeout = Duration::from_millis(config.tuning.start_timeout_ms.value);
    let left = config.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let patience = left.map_or(start_timeout, |left| left.min(start_timeout));
    let network = connected.session.network();
    if let Some(leaves) = network.ready(patience).await {
        return leaves.len();
    }
    let survey = network.survey(COUNT_TIME).await;
    let nodes = survey.reports.iter().filter_map(|report| connected.topology.node(report.rank));
    nodes.filter(|node| node.role() == Role::Leaf).count() as u64
}

fn about(config: &Config) -> Result<About> {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let cluster = &config.cluster;
    Ok(About {
        cluster: cluster.name.value.clone(),
        hosts: config.hosts()?.everyone(),
        launch: cluster.launch.value.to_string(),
        tree: cluster.tree.value.clone(),
        export: cluster.export.value.clone(),
        pid: std::process::id(),
        since,
        refused: Vec::new(),
    })
}

/// Says on standard output that the session runs, and closes it: the process that waits for it goes on.
pub fn announce(leaves: u64) -> Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{leaves}")?;
    out.flush()?;
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

/// Makes the socket; a lock beside it decides between two that start at once.
fn listen(path: &Path) -> Result<(Lock, UnixListener)> {
    use std::os::unix::fs::DirBuilderExt;
    let directory = path.parent().unwrap_or(Path::new("/"));
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(none_at(directory, &error)),
        _ => check_directory()?,
    }
    check_length(path)?;
    let lock = Lock::take(path)?;
    let _ = std::fs::remove_file(path.with_extension("ended"));
    Ok((lock, bind(path)?))
}

/// No session can be had because of this file.
fn none_at(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let text = crate::exit::io_text(path, error);
    Stop::unreachable(format!("{text}; sessions have their sockets there ($XDG_RUNTIME_DIR, or $TMPDIR)"))
        .into()
}

/// The system takes no long path for a socket.
fn check_length(path: &Path) -> Result<()> {
    let bytes = path.with_extension("token").as_os_str().len();
    if bytes <= SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "its sockets in {} would have paths of {bytes} bytes, and {SOCKET_PATH_BYTES_MAX} are the most: set \
         XDG_RUNTIME_DIR to a directory with a shorter path, or give a shorter --session NAME",
        path.parent().unwrap_or(path).display()
    );
    Err(Stop::unreachable(text).into())
}

/// Listens at a path that is ours; what an earlier session has left there goes.
fn bind(path: &Path) -> Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(none_at(path, &error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(|error| none_at(path, &error))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The file whose lock decides who is the session of a name; it and the socket go with the session.
struct Lock {
    path: PathBuf,
    socket: PathBuf,
    _file: OwnedFd,
}

impl Lock {
    fn take(socket: &Path) -> Result<Self> {
        let path = socket.with_extension("lock");
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        loop {
            let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
                .map_err(|errno| none_at(&path, &errno.into()))?;
            if flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
                let name = socket.file_stem().unwrap_or_default().to_string_lossy();
                let text = format!("another process starts or runs session {name}: {}", another_name(&name));
                return Err(Stop::usage(text).into());
            }
            // A session that ended in between has removed the file that is locked now.
            let locked = rustix::fs::fstat(&file)?.st_ino;
            if rustix::fs::lstat(&path).is_ok_and(|there| there.st_ino == locked) {
                return Ok(Self { path, socket: socket.to_owned(), _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
        let _ = std::fs::remove_file(self.socket.with_extension("token"));
        // Still locked: whoever opens it now finds another file, or none, under its name.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn serve(connected: &Connected, listener: UnixListener, about: &About) -> Result<()> {
    let mut others = 0;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Out of descriptors, say: those who are in go on, and may leave.
            Err(error) => {
                tracing::warn!(%error, "a client could not be let in");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let peer = stream.peer_cred()?;
        if peer.uid() != rustix::process::getuid().as_raw() {
            tracing::warn!(uid = peer.uid(), "a client of another user was refused");
            others += 1;
            continue;
        }
        let about = serde_json::to_vec(&About { refused: refused(connected, others), ..about.clone() })?;
        let link = OwnedFd::from(stream.into_std()?);
        if let Err(error) = connected.session.network().admit(link, &connected.topology, &about) {
            tracing::warn!(%error, "a client could not be let in");
        }
    }
}

/// Who was not let in so far: why, and how often.
fn refused(connected: &Connected, other_users: u64) -> Vec<(String, u64)> {
    let audit = connected.session.network().audit();
    let at_door = audit.refused.iter().map(|(why, count)| (why.phrase().to_owned(), *count));
    let clients = (other_users > 0).then(|| ("a client of another user".to_owned(), other_users));
    at_door.chain(clients).collect()
}

/// Ends the session; returns whether one was running.
pub fn down(name: &str) -> Result<bool> {
    let Some(mut stream) = open(name)? else { return Ok(false) };
    let pid = peer_pid(&stream)?;
    // The process is the one that holds the other end of this socket, so it is no other's number.
    rustix::process::kill_process(pid, Signal::TERM)
        .with_context(|| format!("cannot end process {}", pid.as_raw_nonzero()))?;
    // One that is stopped would not hear of it.
    let _ = rustix::process::kill_process(pid, Signal::CONT);
    let deadline = Instant::now() + DOWN_TIMEOUT;
    stream.set_read_timeout(Some(DOWN_TIMEOUT))?;
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
    bail!("session {} did not end within {} s", name, DOWN_TIMEOUT.as_secs())
}

fn peer_pid(stream: &UnixStream) -> Result<Pid> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.pid)
}

/// The sessions of this user that run, by name.
pub fn running() -> Result<Vec<String>> {
    let mut names = Vec::new();
    check_directory()?;
    let entries = match std::fs::read_dir(directory()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(names),
        Err(error) => bail!(crate::exit::io_text(&directory(), &error)),
        Ok(entries) => entries,
    };
    for entry in entries {
        let file = entry?.file_name();
        let Some(name) = file.to_str().and_then(|file| file.strip_suffix(".sock")) else { continue };
        // One that cannot be reached is named too; joining it says why.
        if is_running(name) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}
