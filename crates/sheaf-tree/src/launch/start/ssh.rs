//! Nodes on other hosts, started by the system's `ssh`: the user's own configuration, keys, agent
//! and jump hosts are used.
//!
//! ```text
//! parent: ssh HOST sh -c …          host: looks for the program in its cache
//!                     <─ have | need
//!    program, if needed ─>
//!                     <─ ready ADDRESS    (the parent, as the host sees it)
//!            invitation ─>                connects to the parent, and detaches
//!                     <─ joined           ssh ends
//!                  or <─ linked           the connection is the link, for as long as the node lives
//! ```
//! What goes wrong until then comes over standard error, and is the cause that the tree reports.
use super::line::SshLine;
use super::logins::LoginPlace;
use super::push::{HAVE, JOINED, LINKED, MARK, NEED, NEED_PACKED, ProgramContent, READY};
use super::spawn::own_session;
use crate::launch::join::search::UNREACHED;
use crate::link::wire::Channel;
use bytes::BytesMut;
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, is_unprintable};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

/// The most that a host may say before what is waited for.
const NOISE_BYTES_MAX: u64 = 64 << 10;
/// What is kept of what a host says on standard error: its end.
const ERROR_BYTES_MAX: usize = 2 << 10;
/// The most that is told of what a host says on standard output.
const HEARD_CHARS_MAX: usize = 200;
/// Lines of it that are shown: through a gateway, the reason stands before three others.
const ERROR_LINES_MAX: usize = 4;
/// A connection that carries less than this is taken for one that hangs.
const PUSH_BYTES_PER_S_MIN: u64 = 128 << 10;
/// How long a program that has its invitation may take to connect.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
/// How long ssh may take to say why it fails.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(500);
/// How long ssh may stay once the node has joined: an inner node may need the agent that is
/// forwarded to it until it has started its children.
const STAY_TIMEOUT: Duration = Duration::from_secs(600);
/// Pause before the first repetition, on average; it doubles with each, up to the second.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(8);
/// Repetitions where an sshd is busy, for each that [`Ssh::retries`] allows.
const BUSY_RETRIES: u32 = 5;
/// What ssh exits with when the connection failed, and not what ran on the host.
pub(super) const SSH_FAILED: i32 = 255;
/// What is waited for first.
pub(super) const LOGIN: &str = "login";
/// Failures that the same try again does not mend.
const LASTING: [&str; 4] = [
    "Permission denied",
    "Host key verification failed",
    "Could not resolve hostname",
    "IDENTIFICATION HAS CHANGED",
];

/// What ssh prints in a frame when a host has another key than it had.
const CHANGED_KEY: &str = "REMOTE HOST IDENTIFICATION HAS CHANGED";

/// What ssh prints when an sshd closes the connection before it has said who it is, as one does
/// that has too many logins (`MaxStartups`). OpenSSH 9.8 and later give the reason.
const BUSY: [&str; 6] = [
    "kex_exchange_identification: Connection closed by remote host",
    "kex_exchange_identification: read: Connection reset by peer",
    "ssh_exchange_identification: Connection closed by remote host",
    "ssh_exchange_identification: read: Connection reset by peer",
    "Exceeded MaxStartups",
    "Not allowed at this time",
];
/// What ssh prints when a gateway cannot reach the host.
const NOT_FORWARDED: [&str; 2] = ["stdio forwarding failed", "open failed"];
/// The peer's address as ssh prints it if it is behind a gateway.
const BEHIND_GATEWAY: &str = "UNKNOWN port";
/// What clients older than OpenSSH 7.6 print, which do not know the option.
const OLD_CLIENT: &str = "configuration option: remotecommand";
/// Whether the client is as old as that.
static IS_OLD_CLIENT: AtomicBool = AtomicBool::new(false);

/// A host that has not answered for so long, while its address was asked several times, does not
/// when it is asked once more.
const SILENT_LONG: Duration = Duration::from_secs(5);

/// How to start nodes by ssh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ssh {
    /// The client and the user's options for it.
    pub command: Vec<String>,
    /// How long the connection may take.
    pub connect_timeout: Duration,
    /// How long a host may take from the beginning until its shell answers.
    pub login_timeout: Duration,
    /// How often a connection that failed is tried again.
    pub retries: u32,
    /// The most starts under way at one node.
    pub starts_max: u32,
    /// The pause between attempts to bring a lost host back; `None` for none.
    pub relaunch: Option<Duration>,
    /// What is run there.
    pub content: ProgramContent,
}

impl Ssh {
    /// With what is known to suit most clusters.
    #[must_use]
    pub fn new(content: ProgramContent) -> Self {
        Self {
            command: vec!["ssh".to_owned()],
            connect_timeout: Duration::from_secs(10),
            login_timeout: Duration::from_secs(20),
            retries: 1,
            starts_max: 32,
            relaunch: None,
            content,
        }
    }
}

/// Why a node could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::launch) struct SshFailure {
    pub errno: Errno,
    /// In one phrase: what the host or ssh said.
    pub cause: String,
    /// Trying again is of no use.
    pub(super) lasting: bool,
    /// An sshd, of the host or of a gateway, has too many logins.
    is_busy: bool,
    /// Nobody could log in to the host, which may be otherwise from elsewhere.
    pub no_login: bool,
}

impl SshFailure {
    /// Somebody else is at it.
    pub fn under_way() -> Self {
        let cause = "it is being started already".to_owned();
        Self { errno: Errno::BUSY, cause, lasting: true, is_busy: false, no_login: false }
    }

    /// One on this host, whose process cannot be started.
    pub fn not_run(error: &io::Error) -> Self {
        let cause = format!("its process cannot be started: {error}");
        Self { errno: Errno::from_io(error), cause, lasting: true, is_busy: false, no_login: false }
    }

    /// A node that was started, and could not be taken in.
    pub fn not_taken(error: &io::Error) -> Self {
        let cause = format!("it was started, and could not be taken in: {error}");
        Self { errno: Errno::from_io(error), cause, lasting: true, is_busy: false, no_login: false }
    }
}

/// What has come of a start.
pub(in crate::launch) enum StartedOver {
    /// The node has its link, and needs the connection no more.
    Joined,
    /// The connection is to be its link.
    Linked(Box<SshLine>),
}

/// Starts a node on a host, through `sudo` or not. `invite` makes its invitation; it is given the
/// address by which the host knows this one.
pub(in crate::launch) async fn start(
    ssh: &Ssh,
    (host, sudo): (&str, bool),
    place: &mut LoginPlace,
    mut invite: impl FnMut(Option<IpAddr>) -> io::Result<Vec<u8>>,
) -> Result<StartedOver, SshFailure> {
    let mut repetitions = Repetitions::default();
    loop {
        match attempt(ssh, (host, sudo), place, &mut invite).await {
            Err(failure) => repetitions.wait_after(failure, ssh, host, place).await?,
            done => return done,
        }
    }
}

/// The repetitions of one login.
pub(super) struct Repetitions {
    pause: Duration,
    tried: u32,
}

impl Default for Repetitions {
    fn default() -> Self {
        Self { pause: RETRY_PAUSE, tried: 0 }
    }
}

impl Repetitions {
    /// Waits until the next attempt. Returns the failure if another attempt is of no use.
    pub(super) async fn wait_after(
        &mut self,
        failure: SshFailure,
        ssh: &Ssh,
        host: &str,
        place: &LoginPlace,
    ) -> Result<(), SshFailure> {
        if is_of_old_client(&failure.cause) && !IS_OLD_CLIENT.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let tries = failure.tries(ssh.retries);
        if self.tried >= tries {
            return Err(failure);
        }
        if failure.is_busy && failure.cause.contains(BEHIND_GATEWAY) {
            place.spare_gateway();
        }
        // Hosts that were refused together do not come together again.
        let wait = self.pause.mul_f64(0.5 + fastrand::f64());
        tracing::info!(
            host,
            cause = failure.cause,
            "starting over ssh failed, try {} of {}; again in {:.1} s",
            self.tried + 1,
            tries + 1,
            wait.as_secs_f32()
        );
        tokio::time::sleep(wait).await;
        self.pause = (self.pause * 2).min(RETRY_PAUSE_MAX);
        self.tried += 1;
        Ok(())
    }
}

impl SshFailure {
    /// How often it is tried again where `retries` are allowed.
    fn tries(&self, retries: u32) -> u32 {
        match (self.lasting, self.is_busy) {
            (true, _) => 0,
            (false, true) => retries.saturating_mul(BUSY_RETRIES),
            (false, false) => retries,
        }
    }
}

fn is_of_old_client(cause: &str) -> bool {
    cause.to_ascii_lowercase().contains(OLD_CLIENT)
}

/// Whether an sshd has refused a login because it has too many.
fn is_busy(cause: &str) -> bool {
    let says = |texts: &[&str]| texts.iter().any(|text| cause.contains(text));
    says(&BUSY) && !says(&NOT_FORWARDED)
}

async fn attempt(
    ssh: &Ssh,
    (host, sudo): (&str, bool),
    place: &mut LoginPlace,
    invite: &mut impl FnMut(Option<IpAddr>) -> io::Result<Vec<u8>>,
) -> Result<StartedOver, SshFailure> {
    let LoginShell { child, errors, from, to } =
        LoginShell::open(command(ssh, host, ssh.content.command(sudo)))?;
    let mut heard = Vec::new();
    let talk = Talk { ssh, to, from, heard: &mut heard };
    match talk.run(place, invite).await {
        Ok(None) => {
            crate::task::spawn(outlast(child, errors));
            Ok(StartedOver::Joined)
        }
        Ok(Some(channel)) => {
            Ok(StartedOver::Linked(Box::new(SshLine::new(channel, child, errors))))
        }
        Err(why) => {
            let mut failure = failure(child, errors, why, &heard).await;
            failure.lasting |= is_silent(&failure.cause, ssh.connect_timeout);
            Err(failure)
        }
    }
}

/// An ssh that runs, or another program which leads to a shell.
pub(super) struct LoginShell {
    pub child: Child,
    /// The end of its standard error.
    pub errors: JoinHandle<Vec<u8>>,
    pub from: BufReader<OwnedReadHalf>,
    pub to: OwnedWriteHalf,
}

impl LoginShell {
    /// Runs the command. One socket is its standard input and its standard output: it may become a
    /// link.
    pub(super) fn open(mut command: Command) -> Result<Self, SshFailure> {
        let name = command.as_std().get_program().to_string_lossy().into_owned();
        let mut spawn = move || {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            let (stdin, stdout) = (OwnedFd::from(theirs.try_clone()?), OwnedFd::from(theirs));
            let child = command.stdin(stdin).stdout(stdout).stderr(Stdio::piped()).spawn()?;
            io::Result::Ok((child, UnixStream::from_std(ours)?))
        };
        let (mut child, ours) = spawn().map_err(|error| SshFailure {
            errno: Errno::from_io(&error),
            cause: format!("{name} cannot be run: {error}"),
            lasting: true,
            is_busy: false,
            no_login: true,
        })?;
        let Some(stderr) = child.stderr.take() else { unreachable!("it was asked for as a pipe") };
        let errors = crate::task::spawn(last_of(stderr));
        let (from, to) = ours.into_split();
        Ok(Self { child, errors, from: BufReader::new(from), to })
    }
}

/// The ssh that runs `script` on a host.
pub(super) fn command(ssh: &Ssh, host: &str, script: String) -> Command {
    let mut words = ssh.command.iter();
    let mut command = Command::new(words.next().map_or("ssh", String::as_str));
    // The user's options come first: of an option that is given twice, ssh takes the first.
    command.args(words).args(["-T", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"]);
    command.args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]);
    command.args(["-o", "ClearAllForwardings=yes"]);
    // Other connections of the user's would end with a master that ends with its node.
    command.args(["-o", "ControlMaster=no"]);
    if !IS_OLD_CLIENT.load(Ordering::Relaxed) {
        command.args(["-o", "RemoteCommand=none"]);
    }
    command.arg("-o").arg(format!("ConnectTimeout={}", ssh.connect_timeout.as_secs().max(1)));
    command.arg("--").arg(host).arg(script);
    command.kill_on_drop(true);
    detach(&mut command);
    command
}

/// Runs ssh where nothing that it starts can ask: a jump host's client does not get `BatchMode`.
/// Without a terminal, and without a program that asks in a window, such a client fails with its
/// reason. The terminal's Ctrl-C is for the root, which ends the others.
pub(super) fn detach(command: &mut Command) {
    own_session(command.as_std_mut());
    command.env("SSH_ASKPASS_REQUIRE", "never").env("SSH_ASKPASS", "/bin/false");
}

/// Why talking to a host ended.
pub(super) enum Why {
    /// It closed the connection, or the connection failed.
    Closed,
    /// It did not do in time what was waited for.
    Late(&'static str, Duration),
    /// It printed too much before that.
    Noisy,
    /// Something else, on this side.
    Io(io::Error),
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        // What ssh has to say about it is more than that its pipe is closed.
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Io(error) }
    }
}

/// The talk with one host over its ssh.
struct Talk<'a> {
    ssh: &'a Ssh,
    to: OwnedWriteHalf,
    from: BufReader<OwnedReadHalf>,
    /// The end of what the host said that was not for us, such as why it lets nobody in.
    heard: &'a mut Vec<u8>,
}

impl Talk<'_> {
    /// Talks until the node has joined; gives the channel, if that is to be its link.
    async fn run(
        mut self,
        place: &mut LoginPlace,
        invite: &mut impl FnMut(Option<IpAddr>) -> io::Result<Vec<u8>>,
    ) -> Result<Option<Channel>, Why> {
        let content = &self.ssh.content;
        let login = self.ssh.login_timeout;
        let answer = place.until(self.said(&[HAVE, NEED], LOGIN, login)).await?;
        if answer.starts_with(NEED) {
            let limit = login + Duration::from_secs(content.bytes() / PUSH_BYTES_PER_S_MIN);
            let to = &mut self.to;
            let sent = timeout(limit, async {
                if answer.starts_with(NEED_PACKED) {
                    content.send_packed(to).await
                } else {
                    content.send(to).await
                }
            })
            .await;
            sent.map_err(|_| Why::Late("receipt of the program", limit))??;
        }
        let ready = self.said(&[READY], "start of the program", login).await?;
        let invitation = invite(address_in(&ready))?;
        self.to.write_all(&invitation).await?;
        self.to.flush().await?;
        let joined = self.said(&[JOINED, LINKED], "connection from it", JOIN_TIMEOUT).await?;
        if joined.starts_with(LINKED) { Ok(Some(self.into_channel()?)) } else { Ok(None) }
    }

    /// Waits for a line that is meant for us and begins with one of `words`.
    async fn said(
        &mut self,
        words: &[&str],
        what: &'static str,
        limit: Duration,
    ) -> Result<String, Why> {
        let meant = |line: &[u8]| meant(line, words);
        said(&mut self.from, meant, self.heard, (what, limit)).await
    }

    fn into_channel(self) -> io::Result<Channel> {
        let early = BytesMut::from(self.from.buffer());
        let stream = self.from.into_inner().reunite(self.to).map_err(io::Error::other)?;
        Ok(Channel { early, over_ssh: true, ..Channel::from(OwnedFd::from(stream.into_std()?)) })
    }
}

/// Waits for `what`: a line that is `meant`. The end of all other lines is kept in `heard`.
pub(super) async fn said<T>(
    from: &mut BufReader<OwnedReadHalf>,
    meant: impl Fn(&[u8]) -> Option<T>,
    heard: &mut Vec<u8>,
    (what, limit): (&'static str, Duration),
) -> Result<T, Why> {
    let deadline = Instant::now() + limit;
    let mut from = from.take(NOISE_BYTES_MAX);
    let mut line = Vec::new();
    loop {
        let read = timeout_at(deadline, from.read_until(b'\n', &mut line)).await;
        if let Some(meant) = meant(&line) {
            return Ok(meant);
        }
        // Also a question that nobody answers, whose line does not end.
        keep_last(heard, &line);
        if read.map_err(|_| Why::Late(what, limit))?? == 0 {
            return Err(if from.limit() == 0 { Why::Noisy } else { Why::Closed });
        }
        line.clear();
    }
}

/// What a line says to us, if it begins with one of `words`.
fn meant(line: &[u8], words: &[&str]) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    // A login file may print without ending its line.
    let (_, meant) = text.split_once(MARK)?;
    words.iter().any(|word| meant.starts_with(word)).then(|| meant.trim_end().to_owned())
}

/// This host's address, as another one has said it: `ready ADDRESS`.
fn address_in(ready: &str) -> Option<IpAddr> {
    ready.split_whitespace().nth(1).and_then(|address| address.parse().ok())
}

/// For fuzzing: a line of a host's.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_any(data: &[u8]) {
    let line = phrase(data);
    assert!(!line.contains(|c: char| c.is_control()));
    if let Some(ready) = meant(data, &[READY, HAVE, NEED, JOINED, LINKED]) {
        let _ = address_in(&ready);
    }
}

/// The end of what a host says on standard error.
pub(in crate::launch) async fn last_of(mut from: ChildStderr) -> Vec<u8> {
    let (mut kept, mut piece) = (Vec::new(), [0; 1024]);
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        keep_last(&mut kept, &piece[..count]);
    }
    kept
}

/// Adds to the end of what somebody says, which alone is kept.
pub(super) fn keep_last(kept: &mut Vec<u8>, piece: &[u8]) {
    kept.extend_from_slice(piece);
    if kept.len() > ERROR_BYTES_MAX {
        kept.drain(..kept.len() - ERROR_BYTES_MAX);
    }
}

/// Lets ssh end by itself; the node needs it no more.
async fn outlast(mut child: Child, errors: JoinHandle<Vec<u8>>) {
    if timeout(STAY_TIMEOUT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
    // A master connection of the user's may keep the pipe.
    errors.abort();
}

/// Ends ssh, and returns the failure in its words.
pub(super) async fn failure(
    mut child: Child,
    mut errors: JoinHandle<Vec<u8>>,
    why: Why,
    heard: &[u8],
) -> SshFailure {
    let patience = match why {
        Why::Closed => LAST_WORDS_TIMEOUT,
        // It still runs.
        Why::Late(..) | Why::Noisy | Why::Io(_) => Duration::ZERO,
    };
    let status = timeout(patience, child.wait()).await.ok().and_then(Result::ok);
    let _ = child.kill().await;
    let said = timeout(LAST_WORDS_TIMEOUT, &mut errors)
        .await
        .ok()
        .and_then(Result::ok)
        .unwrap_or_default();
    errors.abort();
    let said = phrase(&said);
    // Shells that let nobody in say so on standard output.
    let heard = if said.is_empty() { words_of(heard) } else { String::new() };
    let cause = match (&why, said.is_empty()) {
        (Why::Late(what, limit), _) => {
            let told = if said.is_empty() { String::new() } else { format!(" ({said})") };
            let setting = if *what == LOGIN { " (ssh_login_timeout_ms)" } else { "" };
            format!("no {what} within {} s{setting}{told}", limit.as_secs_f32())
        }
        (Why::Noisy, _) => {
            format!("more than {} KiB came before its answer", NOISE_BYTES_MAX >> 10)
        }
        (Why::Io(error), _) => error.to_string(),
        (Why::Closed, false) => said,
        (Why::Closed, true) => ended(status, heard.is_empty()),
    };
    let code = status.and_then(|status| status.code());
    let by_ssh = code == Some(SSH_FAILED);
    let may_help =
        matches!(why, Why::Closed) && by_ssh && !LASTING.iter().any(|text| cause.contains(text));
    let no_login = by_ssh || matches!(why, Why::Late(LOGIN, _));
    let is_busy = may_help && is_busy(&cause);
    let cause = format!("{cause}{heard}");
    let errno = if matches!(why, Why::Noisy) { Errno::PROTO } else { errno_of(&cause, code) };
    SshFailure {
        errno,
        cause: format!("not started: {cause}"),
        lasting: !may_help,
        is_busy,
        no_login,
    }
}

/// What a host said on standard output, to follow what is known of its failure.
fn words_of(heard: &[u8]) -> String {
    let said = phrase(heard);
    match said.char_indices().nth(HEARD_CHARS_MAX) {
        _ if said.is_empty() => String::new(),
        Some((at, _)) => format!("; the host printed: {}…", &said[..at]),
        None => format!("; the host printed: {said}"),
    }
}

/// Why a node could not be started on a host, as far as ssh's own words tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoStart {
    /// Somebody is there who lets nobody in.
    NotLetIn,
    /// Nobody is reached there.
    NotReached,
    /// Something else.
    Other,
}

impl NoStart {
    /// What a cause that the tree reports says of it.
    #[must_use]
    pub fn of(cause: &str) -> Self {
        const NOT_LET_IN: [&str; 5] = [
            "Permission denied",
            "Host key verification failed",
            "IDENTIFICATION HAS CHANGED",
            "Too many authentication failures",
            "No supported authentication methods",
        ];
        const NOT_REACHED: [&str; 7] = [
            "Connection timed out",
            "Connection refused",
            "Operation timed out",
            "No route to host",
            "Network is unreachable",
            "Host is down",
            "Could not resolve hostname",
        ];
        let says = |words: &[&str]| words.iter().any(|word| cause.contains(word));
        match (says(&NOT_LET_IN), says(&NOT_REACHED)) {
            (true, false) => Self::NotLetIn,
            (false, true) => Self::NotReached,
            _ => Self::Other,
        }
    }
}

/// What ssh and programs on hosts say when it is not the host that is down.
const SAID: [(&str, Errno); 15] = [
    ("Permission denied", Errno::ACCES),
    ("Host key verification failed", Errno::ACCES),
    ("IDENTIFICATION HAS CHANGED", Errno::ACCES),
    // sudo asks for a password, or wants a terminal to ask at; or the user may not use it.
    ("sudo: a password is required", Errno::ACCES),
    ("sudo: a terminal is required", Errno::ACCES),
    ("is not in the sudoers file", Errno::ACCES),
    ("is not allowed to ", Errno::ACCES),
    // A shell that does not run programs, and one that nobody may log in with.
    ("restricted", Errno::ACCES),
    ("This account is currently not available", Errno::ACCES),
    ("No space left on device", Errno::NOSPC),
    ("Disk quota exceeded", Errno::DQUOT),
    ("Read-only file system", Errno::ROFS),
    ("Exec format error", Errno::NOEXEC),
    ("not found", Errno::NOENT),
    (UNREACHED, Errno::HOSTUNREACH),
];

/// What it is that a host was not started for, after ssh has ended with an exit code, if it has. A
/// host is down only if the login has failed, and not for a reason of its own.
fn errno_of(cause: &str, code: Option<i32>) -> Errno {
    let said = SAID.iter().find(|(text, _)| cause.contains(text)).map(|(_, errno)| *errno);
    match code {
        // Names are resolved on this side.
        Some(SSH_FAILED) => said.filter(|errno| *errno == Errno::ACCES).unwrap_or(Errno::HOSTDOWN),
        None => said.unwrap_or(Errno::HOSTDOWN),
        // The login has worked, and its shell has not done what it was to do.
        Some(_) => said.unwrap_or(Errno::PROTO),
    }
}

/// Whether nobody has answered at all within `limit`, and that was long.
pub(super) fn is_silent(cause: &str, limit: Duration) -> bool {
    let has_asked = cause.contains("connect to host") && cause.contains("timed out");
    has_asked && limit >= SILENT_LONG
}

fn ended(status: Option<ExitStatus>, is_silent: bool) -> String {
    let silence = if is_silent { " and said nothing" } else { "" };
    match status.and_then(|status| status.code()) {
        Some(code) if code != SSH_FAILED => {
            let hint = " (exit in a start-up file such as .bashrc, or a forced command?)";
            let hint = if is_silent { hint } else { "" };
            format!("the login shell ended with exit code {code}{silence}{hint}")
        }
        Some(code) => format!("ssh ended with exit code {code}{silence}"),
        None => format!("ssh ended{silence}"),
    }
}

/// The last lines of a text of somebody else's, as one phrase.
pub(super) fn phrase(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    // The last lines of that are how to remove the old key, and not why one should not.
    if text.contains(CHANGED_KEY) {
        return format!(
            "{CHANGED_KEY}: it may be another machine, or somebody in between; Host key verification failed."
        );
    }
    let shown = |line: &str| -> String {
        line.trim().chars().map(|c| if is_unprintable(c) { ' ' } else { c }).collect()
    };
    let mut lines: Vec<String> = text
        .lines()
        .rev()
        .map(shown)
        .filter(|line| !line.is_empty())
        .take(ERROR_LINES_MAX)
        .collect();
    lines.reverse();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn only_a_host_that_says_nothing_is_down() {
        let (by_ssh, by_shell) = (Some(SSH_FAILED), Some(1));
        let cases = [
            ("ssh: connect to host h1 port 22: No route to host", by_ssh, Errno::HOSTDOWN),
            ("kex_exchange_identification: Connection closed", by_ssh, Errno::HOSTDOWN),
            ("sudo: a password is required", by_shell, Errno::ACCES),
            ("rbash: line 1: exec: restricted", by_shell, Errno::ACCES),
            ("the host printed: This account is currently not available.", by_shell, Errno::ACCES),
            (&ended(Some(ExitStatus::from_raw(0)), true), Some(0), Errno::PROTO),
            (
                "ssh: Could not resolve hostname h1: Name or service not known",
                by_ssh,
                Errno::HOSTDOWN,
            ),
            ("root@h1: Permission denied (publickey).", by_ssh, Errno::ACCES),
            ("Host key verification failed.", by_ssh, Errno::ACCES),
            ("head: write error: No space left on device", by_shell, Errno::NOSPC),
            (
                "mkdir: cannot create directory '/root/.cache': Read-only file system",
                by_shell,
                Errno::ROFS,
            ),
            (
                "sheaf: no link to a parent: cannot reach the node above at 10.0.0.1:7: timed out",
                by_shell,
                Errno::HOSTUNREACH,
            ),
            ("ssh ended and said nothing", None, Errno::HOSTDOWN),
        ];
        for (cause, code, errno) in cases {
            assert_eq!(errno_of(cause, code), errno, "{cause}");
        }
    }

    #[test]
    fn busy_sshd_is_tried_more_often() {
        let failure = |cause: &str| {
            let (cause, is_busy) = (cause.to_owned(), is_busy(cause));
            SshFailure { errno: Errno::HOSTDOWN, cause, lasting: false, is_busy, no_login: true }
        };
        let busy = "kex_exchange_identification: Connection closed by remote host; \
                    Connection closed by UNKNOWN port 65535";
        assert_eq!(failure(busy).tries(2), 2 * BUSY_RETRIES);
        assert_eq!(failure(busy).tries(0), 0);
        for other in [
            "ssh: connect to host h1 port 22: Connection refused",
            &format!("stdio forwarding failed; {busy}"),
        ] {
            assert_eq!(failure(other).tries(2), 2, "{other}");
        }
        let refused = SshFailure { lasting: true, ..failure(busy) };
        assert_eq!(refused.tries(2), 0);
    }

    #[test]
    fn ssh_is_in_batch_mode_and_becomes_no_master() {
        let ssh = Ssh::new(ProgramContent::of_this_program().unwrap());
        let command = command(&ssh, "h1", ssh.content.command(false));
        let words: Vec<_> = command.as_std().get_args().filter_map(|word| word.to_str()).collect();
        for option in ["BatchMode=yes", "ControlMaster=no", "RemoteCommand=none"] {
            assert!(words.windows(2).any(|pair| pair == ["-o", option]), "{words:?}");
        }
        assert!(is_of_old_client(
            "not started: command-line: line 0: Bad configuration option: RemoteCommand"
        ));
    }

    #[test]
    fn unreachable_host_is_distinguished_from_a_refused_login() {
        for (cause, why) in [
            ("root@h2: Permission denied (publickey).", NoStart::NotLetIn),
            ("No ED25519 host key is known; Host key verification failed.", NoStart::NotLetIn),
            ("ssh: connect to host h3 port 22: Connection timed out", NoStart::NotReached),
            ("ssh: connect to host h3 port 22: No route to host", NoStart::NotReached),
            ("ssh: Could not resolve hostname h3: Name or service not known", NoStart::NotReached),
            ("no login within 20 s", NoStart::Other),
            ("kex_exchange_identification: Connection reset by peer", NoStart::Other),
        ] {
            assert_eq!(NoStart::of(&format!("not started: {cause}")), why, "{cause}");
        }
    }

    #[test]
    fn ssh_host_silent_for_long_is_not_retried_at_once() {
        let (short, long) = (Duration::from_secs(4), Duration::from_secs(10));
        let silent = "not started: ssh: connect to host h3 port 22: Connection timed out";
        assert!(is_silent(silent, long));
        assert!(!is_silent(silent, short), "what was asked may have been lost");
        for other in [
            "not started: ssh: connect to host h3 port 22: Connection refused",
            "not started: Connection timed out during banner exchange",
        ] {
            assert!(!is_silent(other, long), "{other}");
        }
    }

    #[test]
    fn host_output_in_an_error_is_cleaned_and_truncated() {
        assert_eq!(words_of(b" \n"), "");
        assert_eq!(words_of(b"no \x1b[1m\x07here\n"), "; the host printed: no  [1m here");
        let long = words_of(&[b'x'; 4096]);
        assert_eq!(long.chars().count(), "; the host printed: ".len() + HEARD_CHARS_MAX + 1);
    }

    #[test]
    fn last_lines_of_a_host_are_one_phrase() {
        assert_eq!(phrase(b""), "");
        assert_eq!(phrase(b"one\r\n\n  two \x1b[31m\n"), "one; two  [31m");
        assert_eq!(phrase(b"1\n2\n3\n4\n5\n"), "2; 3; 4; 5");
    }
}
