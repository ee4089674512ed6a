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
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
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

/// What a host runs by `sh -c`. One line without single quotes or exclamation marks, which login
/// shells treat differently. `head` reads no more than it is to: what follows is the program's.
const SCRIPT: &str = "umask 077; d=${XDG_CACHE_HOME:-$HOME/.cache}/sheaf/bin/HASH; f=$d/sheaf; \
    if test -x \"$f\"; then echo sheaf-launch have; else \
    mkdir -p \"$d\" && t=$(mktemp \"$d/new.XXXXXX\") || exit 1; \
    trap \"rm -f \\\"$t\\\"\" 0; trap \"exit 1\" 1 2 13 15; \
    if command -v gzip >/dev/null; then echo sheaf-launch need packed; \
    read -r z && head -c \"$z\" | gzip -dc >\"$t\"; \
    else echo sheaf-launch need; head -c SIZE >\"$t\" || exit 1; fi; \
    if command -v sha256sum >/dev/null; then s=$(sha256sum <\"$t\"); s=${s%% *}; \
    else s=$(($(wc -c <\"$t\"))); test \"$s\" = SIZE && s=HASH; fi; \
    if test \"$s\" = HASH; then chmod 700 \"$t\" && mv -f \"$t\" \"$f\" || exit 1; \
    else echo the program did not arrive whole >&2; exit 1; fi; \
    trap - 0 1 2 13 15; fi; RUN; exit $?";

/// What the script runs at last, and waits for: of a process that a signal has ended ssh itself tells
/// nothing, of a shell it tells the exit code. Through sudo the environment is not what sshd has made it:
/// where the login came from is an argument then.
const RUN: &str = "\"$f\" serve --invited";
const RUN_BY_SUDO: &str = "sudo -n -- \"$f\" serve --invited --parent \"${SSH_CONNECTION%% *}\"";

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
        Ok(Self { hash, bytes, path: None })
    }

    /// How many bytes it has.
    pub(in crate::launch) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The remote command that runs this program with `serve --invited`, through `sudo` or not.
    pub(in crate::launch) fn command(&self, sudo: bool) -> String {
        let run = if sudo { RUN_BY_SUDO } else { RUN };
        let script = SCRIPT.replace("HASH", &self.hash).replace("SIZE", &self.bytes.to_string());
        let script = script.replace("RUN", run);
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

/// How to run this program again: by its name, which lists of processes show, if it still has one.
pub(in crate::launch) fn this_program() -> PathBuf {
    let named = std::env::current_exe().ok().filter(|path| path.exists());
    named.unwrap_or_else(|| PathBuf::from(RUNNING))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

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
        for program in
            ["sh", "mkdir", "mktemp", "rm", "head", "sha256sum", "chmod", "mv", "wc", "cat"]
        {
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

    /// Files in the cache of `home`, which only its user can enter.
    fn files(home: &Path) -> usize {
        use std::os::unix::fs::PermissionsExt;
        let cache = home.join(".cache/sheaf/bin");
        let dir = std::fs::read_dir(cache).unwrap().next().unwrap().unwrap();
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::read_dir(dir.path()).unwrap().count()
    }
}
