//! The program on hosts that do not have it: kept by content hash, sent over the connection that
//! is to start it.
//!
//! The host runs a small shell script. It looks in the user's cache for the program, asks for it
//! if it is not there, checks what came, and runs the program. Nothing of it is secret, so it
//! may be seen in the list of processes.
use flate2::Compression;
use flate2::read::GzEncoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Weak};
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// How lines of the script and the program begin that are meant for whoever starts them; others
/// are noise of the user's login files.
pub(in crate::launch) const MARK: &str = "sheaf-launch ";
/// The program is in the host's cache.
pub(in crate::launch) const HAVE: &str = "have";
/// It is to be sent: as it is, or compressed ([`NEED_PACKED`]).
pub(in crate::launch) const NEED: &str = "need";
/// It is to be sent compressed: its compressed length as a line, and the content as gzip makes it
/// (RFC 1952).
pub(in crate::launch) const NEED_PACKED: &str = "need packed";
/// The program runs and waits for its invitation; the address of this end follows.
pub(in crate::launch) const READY: &str = "ready";
/// It belongs to the tree.
pub(in crate::launch) const JOINED: &str = "joined";

/// From here on the channel is its link.
pub(in crate::launch) const LINKED: &str = "linked";

/// What a host runs by `sh -c`, on one line without single quotes and exclamation marks, which login
/// shells treat differently.
///
/// - `good`: the file is a program that can run here, of the right size and digest. (`test -x` is
///   false on a file system that is mounted with `noexec`.)
/// - `go` enters a directory component by component. Every later step uses relative names from the
///   directory that it entered, so that an exchange of a name on the way changes nothing.
/// - `way`: the working directory belongs to root or the user, and other users cannot write to it, or it
///   has the sticky bit. Every directory on the way has to be like that: another user could otherwise
///   exchange the names in it. `about` examines `.`, which is the directory that was entered.
/// - `step` follows a link only where `sure` holds: other users cannot write to the directory that
///   has the link. The way then begins again at `/`, along the path that the kernel gives for the
///   link's target. A link that appears after that check shows in `$PWD`, which `cd -P` takes from the
///   kernel. Directories are made (`m` is set) one at a time, and never through a link.
/// - `mine`: the working directory is the user's own and other users cannot write to it. The cache,
///   `bin` and the directory of the version have to be.
/// - A cached program is checked before it runs: a power failure may have left an empty one.
/// - Where it is missing, the first directory is taken which the user can write to, from which
///   programs can run, and which has room for this one. A directory in the program's place goes.
/// - `head` reads no more than it is to: the bytes after the program are for the program.
/// - A new program is on the disk before it has its name. Then all but the three versions that were
///   used last are removed. Other programs in the cache stay.
/// - The program starts in the directory of its version, and goes to the user's home by itself.
const SCRIPT: &str = "umask 077; n=$(id -u); m=; \
    good() { test -f \"$1\" && test -x \"$1\" && test -O \"$1\" && \
    test $(($(wc -c <\"$1\"))) = SIZE || return 1; \
    command -v sha256sum >/dev/null || return 0; \
    s=$(sha256sum <\"$1\") && test \"${s%% *}\" = HASH; }; \
    told() { test -z \"$m\" || echo \"$1\" >&2; return 1; }; \
    about() { set -- $(ls -ldn . 2>/dev/null); k=$1 u=$3; }; \
    other() { told \"$PWD: this directory belongs to another user\"; }; \
    open() { told \"$PWD: others can write to this directory; mend it with: chmod go-w $PWD\"; }; \
    shut() { case $k in ?????w*|????????w*|\"\") return 1;; esac; }; \
    sure() { about; shut && case $u in 0|$n) ;; *) return 1;; esac; }; \
    way() { about; case $u in 0|$n) ;; *) other; return 1;; esac; \
    case $k in ?????????[tT]*) ;; *) shut || open;; esac; }; \
    mine() { about; test \"$u\" = \"$n\" || { other; return 1; }; shut || open; }; \
    step() { w=${PWD%/}/$1; h=; if test -h \"./$1\"; then sure || { \
    told \"$w: this link is not followed, as others can write to its directory\"; return 1; }; \
    h=1; fi; e=; cd -P \"./$1\" 2>/dev/null || { test -n \"$m\" && e=$(mkdir -p \"./$1\" 2>&1) && \
    cd -P \"./$1\" 2>/dev/null; } || { e=${e##*: }; told \"$w: ${e:-Permission denied}\"; return 1; }; \
    if test -n \"$h\"; then r=${PWD#/}/$r; cd -P /; return; fi; \
    test \"$PWD\" = \"$w\" || told \"$w: it became a link, and is not followed\"; }; \
    walk() { r=$1/; while test -n \"$r\"; do c=${r%%/*}; r=${r#*/}; \
    case $c in \"\"|.) continue;; esac; way && step \"$c\" || return 1; done; }; \
    go() { case $1 in /*) cd -P /;; *) return 1;; esac || return 1; \
    walk \"$1\" && mine && walk bin && mine && walk HASH && mine; }; \
    f=; for b in DIRS; do if go \"$b\" && good ./sheaf; then f=./sheaf; break; fi; done; \
    if test -n \"$f\"; then echo sheaf-launch have; touch -c . 2>/dev/null; else \
    m=1; t=; for b in DIRS; do \
    case $b in /run/user/*) test -d \"/run/user/$n\" || continue;; esac; \
    go \"$b\" || continue; \
    if test -d ./sheaf; then rm -rf ./sheaf || continue; fi; \
    t=$(mktemp ./new.XXXXXX 2>&1) || { told \"$PWD: ${t##*: }\"; t=; continue; }; \
    trap \"rm -f \\\"$t\\\"\" 0; trap \"exit 1\" 1 2 13 15; chmod 700 \"$t\"; \
    if test -x \"$t\"; then head -c SIZE </dev/zero >\"$t\" && break; \
    else echo \"$PWD: no program can run there: Permission denied (noexec)\" >&2; fi; \
    rm -f \"$t\"; t=; done; \
    test -n \"$t\" || exit 1; \
    if command -v gzip >/dev/null; then echo sheaf-launch need packed; \
    read -r z && head -c \"$z\" | gzip -dc >\"$t\"; \
    else echo sheaf-launch need; head -c SIZE >\"$t\" || exit 1; fi; \
    good \"$t\" || { echo the program did not arrive whole >&2; exit 1; }; \
    if command -v sync >/dev/null; then sync \"$t\" || exit 1; fi; \
    f=./sheaf; mv -f \"$t\" \"$f\" || exit 1; trap - 0 1 2 13 15; \
    k=0; ls -t .. | while read -r o; do \
    o=../$o; test -f \"$o/sheaf\" || continue; k=$((k + 1)); \
    test $k -gt 3 && rm -f \"$o/sheaf\" && rmdir \"$o\" 2>/dev/null; done; fi; RUN; exit $?";

/// The same with a program that is installed on the host.
const SCRIPT_INSTALLED: &str = "f=\"PATH\"; test -f \"$f\" && test -x \"$f\" || \
    { echo \"$f: not found, or it cannot run (setting program)\" >&2; exit 127; }; \
    echo sheaf-launch have; RUN; exit $?";

/// Where the program is kept: the first directory that is fit for it. Directories other than the
/// user's cache have the user in their name.
const DIRS: &str = "\"${XDG_CACHE_HOME:-$HOME/.cache}/sheaf\" \"/run/user/$n/sheaf-cache\" \
    \"/var/tmp/sheaf-$n\"";

/// What the script runs at last, and waits for: of a process that a signal has ended ssh itself tells
/// nothing, of a shell it tells the exit code. Through sudo the environment is not what sshd has made it:
/// where the login came from is an argument then.
const RUN: &str = "\"$f\" serve --invited";
const RUN_BY_SUDO: &str = "sudo -n -- \"$f\" serve --invited --parent \"${SSH_CONNECTION%% *}\"";

/// Whether a path of a host can stand in the script: it is absolute, and no shell reads any of it
/// as anything else.
#[must_use]
pub fn is_path_of_hosts(path: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=@,".contains(c);
    path.starts_with('/') && path.chars().all(is_plain)
}

/// How much programs are compressed that are sent: one that is installed has 6 MB instead of 12, in half the
/// time that 2 % less would take.
pub const PROGRAM_COMPRESSION: Compression = Compression::new(4);

/// The compressed program, by its hash, while somebody sends it.
static PACKED: tokio::sync::Mutex<Option<(String, Weak<Vec<u8>>)>> =
    tokio::sync::Mutex::const_new(None);

/// Pieces in which the program is read and sent.
const PIECE_BYTES: usize = 256 << 10;

/// A program as hosts keep it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramContent {
    /// SHA-256 in hexadecimal: what hosts can check without this program.
    hash: String,
    bytes: u64,
    /// Where it is, if it is not the program that runs. (Hosts run what they were given.)
    #[serde(skip)]
    path: Option<PathBuf>,
    /// Where it is installed on hosts, which then keep no copy.
    installed: Option<String>,
    /// Where hosts keep it, before the directories of [`DIRS`].
    directory: Option<String>,
}

impl ProgramContent {
    /// The program that runs now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of_this_program() -> io::Result<Self> {
        Self::of(Path::new(RUNNING))
    }

    /// Another program than the one that runs now, which is to serve when it is given the arguments
    /// `serve --invited`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of_program(path: &Path) -> io::Result<Self> {
        Ok(Self { path: Some(path.to_owned()), ..Self::of(path)? })
    }

    fn of(path: &Path) -> io::Result<Self> {
        let (mut file, mut hasher, mut bytes) = (File::open(path)?, Sha256::new(), 0);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match file.read(&mut piece)? {
                0 => break,
                count => {
                    hasher.update(&piece[..count]);
                    bytes += count as u64;
                }
            }
        }
        let hash = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { hash, bytes, path: None, installed: None, directory: None })
    }

    /// The same, of hosts on which it is installed at this path ([`is_path_of_hosts`]) in any build.
    #[must_use]
    pub fn installed_at(self, path: Option<String>) -> Self {
        Self { installed: path.filter(|path| is_path_of_hosts(path)), ..self }
    }

    /// The same, of hosts which keep it below this directory ([`is_path_of_hosts`]), if they can.
    #[must_use]
    pub fn kept_below(self, directory: Option<String>) -> Self {
        Self { directory: directory.filter(|path| is_path_of_hosts(path)), ..self }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its SHA-256 in hexadecimal, the name of its directory in the cache of a host.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Where it is installed on hosts, which then keep no copy.
    #[must_use]
    pub fn installed(&self) -> Option<&str> {
        self.installed.as_deref()
    }

    /// The directories in which hosts look for it, as words of a POSIX shell that has the user's
    /// number in `n`.
    #[must_use]
    pub fn directories(&self) -> String {
        let own = self.directory.as_ref().map(|path| format!("\"{path}/sheaf-$n\" "));
        own.unwrap_or_default() + DIRS
    }

    /// The remote command that runs this program with `serve --invited`, through `sudo` or not.
    pub(in crate::launch) fn command(&self, sudo: bool) -> String {
        let run = if sudo { RUN_BY_SUDO } else { RUN };
        if let Some(path) = &self.installed {
            let script = SCRIPT_INSTALLED.replace("RUN", run).replace("PATH", path);
            return format!("exec /bin/sh -c '{script}'");
        }
        let script = SCRIPT.replace("HASH", &self.hash).replace("SIZE", &self.bytes.to_string());
        let script = script.replace("RUN", run);
        let script = script.replace("DIRS", &self.directories());
        format!("exec /bin/sh -c '{script}'")
    }

    /// Sends it compressed, as [`NEED_PACKED`] says.
    pub(in crate::launch) async fn send_packed(
        &self,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let packed = self.packed().await?;
        to.write_all(format!("{}\n", packed.len()).as_bytes()).await?;
        for piece in packed.chunks(PIECE_BYTES) {
            to.write_all(piece).await?;
        }
        to.flush().await
    }

    /// The program, compressed once for all that it is sent to at the same time.
    async fn packed(&self) -> io::Result<Arc<Vec<u8>>> {
        let mut kept = PACKED.lock().await;
        if let Some((hash, packed)) = &*kept
            && *hash == self.hash
            && let Some(packed) = packed.upgrade()
        {
            return Ok(packed);
        }
        let path = self.path.clone().unwrap_or_else(|| PathBuf::from(RUNNING));
        let bytes = self.bytes;
        let pack = move || {
            let mut packed = Vec::new();
            let mut from = GzEncoder::new(File::open(path)?.take(bytes), PROGRAM_COMPRESSION);
            from.read_to_end(&mut packed)?;
            io::Result::Ok((from.get_ref().limit(), packed))
        };
        let (lacking, packed) =
            tokio::task::spawn_blocking(pack).await.map_err(io::Error::other)??;
        if lacking > 0 {
            return Err(changed());
        }
        let packed = Arc::new(packed);
        *kept = Some((self.hash.clone(), Arc::downgrade(&packed)));
        Ok(packed)
    }

    /// Sends it: a host passes on what it was given, which is the program that it runs.
    pub(in crate::launch) async fn send(&self, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
        let path = self.path.as_deref().unwrap_or(Path::new(RUNNING));
        let mut file = File::open(path)?.take(self.bytes);
        let (mut piece, mut sent) = (vec![0; PIECE_BYTES], 0);
        loop {
            let count = file.read(&mut piece)?;
            if count == 0 {
                break;
            }
            to.write_all(&piece[..count]).await?;
            sent += count as u64;
        }
        if sent < self.bytes {
            return Err(changed());
        }
        to.flush().await
    }
}

fn changed() -> io::Error {
    io::Error::other("the program has changed since it was started")
}

/// The program that this process runs, also when another file has its name by now.
const RUNNING: &str = "/proc/self/exe";
/// What the kernel calls a process that was started by [`RUNNING`].
const RUNNING_NAME: &[u8] = b"exe";

/// How to run this program again: by its file, whatever file has its name by now. ([`named`] makes
/// the command.)
pub(in crate::launch) fn this_program() -> PathBuf {
    PathBuf::from(RUNNING)
}

/// The name of this program's file, if it still has one.
pub(in crate::launch) fn name_of_this_program() -> Option<PathBuf> {
    std::env::current_exe().ok().filter(|path| path.exists())
}

/// The command that runs a program. [`this_program`] gets its name as an argument only, which lists of
/// processes show.
pub(in crate::launch) fn named(path: &Path) -> Command {
    let mut command = Command::new(path);
    if path == Path::new(RUNNING)
        && let Some(name) =
            name_of_this_program().or_else(|| std::env::args_os().next().map(Into::into))
    {
        command.arg0(name);
    }
    command
}

/// Gives a process that [`named`] has started the short name of its program, in place of the last part of
/// [`RUNNING`].
pub(in crate::launch) fn take_name() {
    let comm = std::fs::read("/proc/self/comm").unwrap_or_default();
    let name = std::env::args_os().next().map(PathBuf::from);
    let name = name.as_deref().and_then(Path::file_name).map(|name| name.as_bytes().to_vec());
    if comm.trim_ascii_end() == RUNNING_NAME
        && let Some(name) = name.and_then(|name| CString::new(name).ok())
    {
        // Only for people.
        let _ = rustix::thread::set_name(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::Stdio;

    const PROGRAM: &[u8] = b"#!/bin/sh\necho \"runs $*\"; cat\n";

    fn content(path: &Path) -> ProgramContent {
        std::fs::write(path, PROGRAM).unwrap();
        ProgramContent::of(path).unwrap()
    }

    /// Runs the command as sshd would, with `input` on its standard input.
    fn run(
        home: &Path,
        shell: &str,
        content: &ProgramContent,
        input: &[u8],
    ) -> (bool, String, String) {
        run_in(home, shell, content, input, Path::new("/usr/bin:/bin"))
    }

    fn run_in(
        home: &Path,
        shell: &str,
        content: &ProgramContent,
        input: &[u8],
        path: &Path,
    ) -> (bool, String, String) {
        let mut child = Command::new(shell)
            .args(["-c", &content.command(false)])
            .env_clear()
            .env("HOME", home)
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It may have ended before it has read all.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    }

    /// As a host has it that lacks gzip: a directory with the other programs alone.
    fn without_gzip(home: &Path) -> PathBuf {
        let bin = home.join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        for program in "sh id mkdir mktemp rm head sha256sum chmod mv wc cat ls".split(' ') {
            let from = ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(program));
            let from = from.iter().find(|path| path.exists()).unwrap();
            let _ = std::os::unix::fs::symlink(from, bin.join(program));
        }
        bin
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        GzEncoder::new(bytes, Compression::default()).read_to_end(&mut packed).unwrap();
        [format!("{}\n", packed.len()).as_bytes(), &packed].concat()
    }

    #[test]
    fn host_asks_once_and_reads_nothing_behind_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let content = content(&dir.path().join("program"));
        let first = run(dir.path(), "sh", &content, &[&packed(PROGRAM)[..], b"rest"].concat());
        assert_eq!(
            first,
            (true, "sheaf-launch need packed\nruns serve --invited\nrest".into(), String::new())
        );
        let second = run(dir.path(), "bash", &content, b"rest");
        assert_eq!(
            second,
            (true, "sheaf-launch have\nruns serve --invited\nrest".into(), String::new())
        );
        assert_eq!(files(dir.path()), 1);
    }

    #[test]
    fn host_without_gzip_takes_the_program_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let content = content(&dir.path().join("program"));
        let path = without_gzip(dir.path());
        let shell = path.join("sh");
        let input = [PROGRAM, b"rest"].concat();
        let first = run_in(dir.path(), shell.to_str().unwrap(), &content, &input, &path);
        assert_eq!(
            first,
            (true, "sheaf-launch need\nruns serve --invited\nrest".into(), String::new())
        );
        assert_eq!(files(dir.path()), 1);
    }

    #[tokio::test]
    async fn packed_program_is_unpacked_by_gzip_on_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let content = content(&dir.path().join("program"));
        let (mut sent, content) =
            (Vec::new(), ProgramContent { path: Some(dir.path().join("program")), ..content });
        content.send_packed(&mut sent).await.unwrap();
        let first = run(dir.path(), "sh", &content, &sent);
        assert!(first.0, "{first:?}");
        std::fs::write(dir.path().join("program"), "shorter").unwrap();
        assert!(content.send_packed(&mut Vec::new()).await.is_err(), "it has changed");
    }

    #[test]
    fn program_that_is_cut_or_damaged_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let content = content(&dir.path().join("program"));
        let mut damaged = PROGRAM.to_vec();
        damaged[5] ^= 1;
        let whole = packed(PROGRAM);
        for bytes in [packed(&PROGRAM[..9]), packed(&damaged), whole[..whole.len() / 2].to_vec()] {
            let (success, stdout, stderr) = run(dir.path(), "sh", &content, &bytes);
            assert!(!success);
            assert_eq!(stdout, "sheaf-launch need packed\n");
            assert!(stderr.ends_with("the program did not arrive whole\n"), "{stderr}");
            assert_eq!(files(dir.path()), 0);
        }
    }

    /// The cached program of `home`.
    fn cached(home: &Path, content: &ProgramContent) -> PathBuf {
        home.join(".cache/sheaf/bin").join(&content.hash).join("sheaf")
    }

    #[test]
    fn cached_program_that_is_empty_or_another_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let content = content(&dir.path().join("program"));
        assert!(run(dir.path(), "sh", &content, &packed(PROGRAM)).0);
        let cached = cached(dir.path(), &content);
        let ran = dir.path().join("ran");
        let evil = format!("#!/bin/sh\ntouch {}\n", ran.display());
        let mut padded = evil.clone().into_bytes();
        padded.resize(PROGRAM.len().max(evil.len()), b'#');
        let mut other = PROGRAM.to_vec();
        other[13] ^= 1;
        for bytes in [b"".to_vec(), padded, other] {
            std::fs::write(&cached, &bytes).unwrap();
            let again = run(dir.path(), "sh", &content, &packed(PROGRAM));
            assert_eq!(
                again,
                (true, "sheaf-launch need packed\nruns serve --invited\n".into(), String::new())
            );
            assert!(!ran.exists() && std::fs::read(&cached).unwrap() == PROGRAM);
        }
        assert_eq!(files(dir.path()), 1);
    }

    #[test]
    fn cache_keeps_the_three_versions_that_were_used_last() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join(".cache/sheaf/bin");
        let old = |at: u64| bin.join(format!("{at:064x}"));
        let day = std::time::Duration::from_secs(86_400);
        for at in 0..5 {
            std::fs::create_dir_all(old(at)).unwrap();
            std::fs::write(old(at).join("sheaf"), "old").unwrap();
            let time = std::time::SystemTime::now() - day * (10 - at as u32);
            File::open(old(at)).unwrap().set_modified(time).unwrap();
        }
        let companion = old(9).join("sheaf-archive");
        std::fs::create_dir(old(9)).unwrap();
        std::fs::write(&companion, "").unwrap();
        let content = content(&dir.path().join("program"));
        let begun = run(dir.path(), "sh", &content, &packed(PROGRAM));
        assert!(begun.0 && begun.2.is_empty(), "{begun:?}");
        let kept: Vec<bool> = (0..5).map(|at| old(at).exists()).collect();
        assert_eq!(kept, [false, false, false, true, true]);
        assert!(cached(dir.path(), &content).exists());
        assert!(companion.exists(), "only versions of this program are removed");
    }

    #[test]
    fn program_is_kept_in_the_first_directory_that_is_fit() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = dir.path().join("wanted");
        let content =
            content(&dir.path().join("program")).kept_below(Some(wanted.display().to_string()));
        assert!(run(dir.path(), "sh", &content, &packed(PROGRAM)).0);
        let user = format!("sheaf-{}", rustix::process::getuid().as_raw());
        assert!(wanted.join(user).join("bin").join(&content.hash).join("sheaf").exists());
        assert!(!cached(dir.path(), &content).exists());
        std::fs::remove_dir_all(&wanted).unwrap();
        std::fs::write(&wanted, "no directory").unwrap();
        let next = run(dir.path(), "sh", &content, &packed(PROGRAM));
        assert!(next.0, "{next:?}");
        assert!(next.2.contains("File exists") || next.2.contains("Not a directory"), "{next:?}");
        assert!(cached(dir.path(), &content).exists());
        // The next start finds it there.
        let have = run(dir.path(), "sh", &content, b"");
        assert_eq!(have, (true, "sheaf-launch have\nruns serve --invited\n".into(), String::new()));
    }

    #[test]
    fn directory_in_place_of_the_program_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let content = content(&dir.path().join("program"));
        let cached = cached(dir.path(), &content);
        std::fs::create_dir_all(cached.join("deep")).unwrap();
        let begun = run(dir.path(), "sh", &content, &packed(PROGRAM));
        assert!(begun.0 && begun.1.ends_with("runs serve --invited\n"), "{begun:?}");
        assert_eq!(std::fs::read(cached).unwrap(), PROGRAM);
    }

    /// A cache directory of this user below `wanted`, with the program that it is for.
    fn wanted_cache(home: &Path) -> (ProgramContent, PathBuf) {
        let wanted = home.join("wanted");
        std::fs::create_dir(&wanted).unwrap();
        let content = content(&home.join("program")).kept_below(Some(wanted.display().to_string()));
        (content, wanted.join(format!("sheaf-{}", rustix::process::getuid().as_raw())))
    }

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn cache_writable_by_others_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let (content, base) = wanted_cache(dir.path());
        let version = base.join("bin").join(&content.hash);
        std::fs::create_dir_all(&version).unwrap();
        std::fs::write(version.join("sheaf"), PROGRAM).unwrap();
        mode(&version.join("sheaf"), 0o700);
        for open in [&base, &base.join("bin"), &version] {
            for bits in [0o770, 0o707] {
                let _ = std::fs::remove_dir_all(dir.path().join(".cache"));
                mode(open, bits);
                let begun = run(dir.path(), "sh", &content, &packed(PROGRAM));
                assert!(begun.0 && begun.1.starts_with("sheaf-launch need packed\n"), "{begun:?}");
                let told = format!("{}: others can write to this directory", open.display());
                assert!(begun.2.contains(&told), "{begun:?}");
            }
            mode(open, 0o700);
        }
        let have = run(dir.path(), "sh", &content, b"");
        assert!(have.0 && have.1.starts_with("sheaf-launch have\n"), "{have:?}");
    }

    #[test]
    fn cache_is_not_made_through_a_link_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let (content, base) = wanted_cache(dir.path());
        let victim = dir.path().join("victim");
        std::fs::create_dir(&victim).unwrap();
        std::os::unix::fs::symlink(&victim, &base).unwrap();
        // In a directory of the user's alone the link is the user's.
        for (bits, entries) in [(0o1777, 0), (0o700, 1)] {
            mode(base.parent().unwrap(), bits);
            let begun = run(dir.path(), "sh", &content, &packed(PROGRAM));
            assert!(begun.0, "{begun:?}");
            assert_eq!(std::fs::read_dir(&victim).unwrap().count(), entries, "{begun:?}");
            let _ = std::fs::remove_dir_all(dir.path().join(".cache"));
        }
    }

    /// The name is exchanged after the directory was checked, as another user could do.
    #[test]
    fn cache_swapped_after_its_check_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let (content, base) = wanted_cache(dir.path());
        assert!(run(dir.path(), "sh", &content, &packed(PROGRAM)).0);
        let evil = dir.path().join("evil");
        let version = evil.join("bin").join(&content.hash);
        std::fs::create_dir_all(&version).unwrap();
        let ran = dir.path().join("ran");
        std::fs::write(version.join("sheaf"), format!("#!/bin/sh\ntouch {}\n", ran.display()))
            .unwrap();
        mode(&version.join("sheaf"), 0o755);
        let path = dir.path().join("path");
        std::fs::create_dir(&path).unwrap();
        let (base, evil, kept) = (base.display(), evil.display(), dir.path().join("kept"));
        let swap = format!(
            "#!/bin/sh\nmv {base} {}; mv {evil} {base}; exec /usr/bin/wc \"$@\"\n",
            kept.display()
        );
        std::fs::write(path.join("wc"), swap).unwrap();
        mode(&path.join("wc"), 0o755);
        let search = format!("{}:/usr/bin:/bin", path.display());
        let begun = run_in(dir.path(), "sh", &content, b"rest", Path::new(&search));
        let expected = "sheaf-launch have\nruns serve --invited\nrest";
        assert_eq!(begun, (true, expected.into(), String::new()));
        assert!(kept.exists() && !ran.exists());
    }

    /// Another user who may write to a directory on the way could exchange the cache at any time.
    #[test]
    fn cache_below_a_directory_of_others_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let (content, base) = wanted_cache(dir.path());
        let wanted = base.parent().unwrap();
        assert!(run(dir.path(), "sh", &content, &packed(PROGRAM)).0);
        let told = format!("{}: others can write to this directory", wanted.display());
        for bits in [0o777, 0o770] {
            mode(wanted, bits);
            let begun = run(dir.path(), "sh", &content, &packed(PROGRAM));
            assert!(begun.0 && begun.1.starts_with("sheaf-launch need packed\n"), "{begun:?}");
            assert!(begun.2.contains(&told), "{begun:?}");
            std::fs::remove_dir_all(dir.path().join(".cache")).unwrap();
        }
        for bits in [0o1777, 0o755] {
            mode(wanted, bits);
            let have = run(dir.path(), "sh", &content, b"");
            assert!(have.0 && have.1.starts_with("sheaf-launch have\n"), "{have:?}");
        }
        if rustix::process::getuid().is_root() {
            std::os::unix::fs::chown(wanted, Some(1001), None).unwrap();
            let begun = run(dir.path(), "sh", &content, &packed(PROGRAM));
            let told = format!("{}: this directory belongs to another user", wanted.display());
            assert!(begun.0 && begun.2.contains(&told), "{begun:?}");
        }
    }

    /// The way that a link leads is examined as well.
    #[test]
    fn cache_behind_a_link_to_an_open_directory_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let (content, base) = wanted_cache(dir.path());
        let open = dir.path().join("open");
        std::fs::create_dir_all(open.join("deep")).unwrap();
        std::fs::remove_dir(base.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(open.join("deep"), base.parent().unwrap()).unwrap();
        for (bits, entries) in [(0o777, 0), (0o755, 1)] {
            let _ = std::fs::remove_dir_all(dir.path().join(".cache"));
            mode(&open, bits);
            let begun = run(dir.path(), "sh", &content, &packed(PROGRAM));
            assert!(begun.0, "{begun:?}");
            let kept = std::fs::read_dir(open.join("deep")).unwrap().count();
            assert_eq!(kept, entries, "{begun:?}");
        }
    }

    #[test]
    fn installed_program_is_run_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("installed");
        let content =
            content(&dir.path().join("program")).installed_at(Some(path.display().to_string()));
        let none = run(dir.path(), "sh", &content, b"");
        let told = format!("{}: not found, or it cannot run (setting program)\n", path.display());
        assert_eq!(none, (false, String::new(), told));
        std::fs::write(&path, "#!/bin/sh\necho another $*\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let run = run(dir.path(), "sh", &content, b"");
        let said = "sheaf-launch have\nanother serve --invited\n";
        assert_eq!(run, (true, said.into(), String::new()));
    }

    #[test]
    fn path_of_hosts_is_read_by_no_shell() {
        assert!(is_path_of_hosts("/usr/bin/sheaf-0.1+x"));
        for path in ["usr/bin", "/a b", "/$(id)", "/a'b", "/a\"", "/a!", "/ä", "/a\nb", ""] {
            assert!(!is_path_of_hosts(path), "{path}");
        }
    }

    /// Files in the cache of `home`, which only its user can enter.
    fn files(home: &Path) -> usize {
        use std::os::unix::fs::PermissionsExt;
        let cache = home.join(".cache/sheaf/bin");
        let dir = std::fs::read_dir(cache).unwrap().next().unwrap().unwrap();
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::read_dir(dir.path()).unwrap().count()
    }
}
