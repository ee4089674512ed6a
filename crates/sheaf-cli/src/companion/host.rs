//! The part of a companion on a host: a process of the server's, for one stream.
//!
//! The two are joined by pipes. A request is its tag and the length of its payload, four bytes
//! each, and the payload; an answer is an errno (0 for none) in place of the tag. The first request
//! of a stream says which file the companion is, by its SHA-256, so that root and hosts run the
//! same build ([`BEGIN`]), and the first of the process where it is (`SITE`).
use super::Companion;
use super::fetch::{self, WantedProgram};
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_tree::service::{Blocking, ServiceRequest, Site, Worker};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The tag of the request that names the program: a [`WantedProgram`].
pub const BEGIN: i32 = 0;
/// The tag of the request that says for whom the process works: a [`PartSite`].
const SITE: i32 = -1;
/// The word with which a server starts a companion.
pub const SERVE_WORD: &str = "--serve-part";
/// What a host fails with whose process has ended.
pub const ENDED: Errno = Errno::PIPE;
/// The longest request or answer.
const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// A file that was just written cannot be run while a process that was forked meanwhile still has it
/// open: it is tried again so often, after this pause.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Where a part works.
#[derive(Debug, Serialize, Deserialize)]
pub struct PartSite {
    /// The host's name.
    pub host: String,
    /// What the session was started with for its service.
    pub config: Vec<u8>,
}

/// What a companion does on a host for one stream.
pub trait PartWorker: Send {
    /// Answers a request.
    ///
    /// # Errors
    /// What this host failed with.
    fn answer(&mut self, tag: i32, payload: &[u8]) -> Result<Vec<u8>, Errno>;
}

/// Makes what works for a stream at a host.
pub type OpenPart = fn(&PartSite) -> Result<Box<dyn PartWorker>, Errno>;

fn site_of(site: &Site<'_>) -> PartSite {
    PartSite { host: site.host.to_owned(), config: site.config.to_vec() }
}

/// The part of a companion within its own process, where that is a node itself.
pub fn within(open: OpenPart) -> Blocking {
    Blocking::new(move |site, _| Ok(Box::new(WithinPart(open(&site_of(site))?))))
}

struct WithinPart(Box<dyn PartWorker>);

impl Worker for WithinPart {
    fn request(&mut self, request: &ServiceRequest) -> Result<Vec<u8>, Errno> {
        match request.tag {
            BEGIN => Ok(Vec::new()),
            tag => self.0.answer(tag, &request.payload),
        }
    }
}

/// The part of a companion at a server of `sheaf`: a process.
pub fn provider(companion: &'static Companion) -> Blocking {
    Blocking::new(move |site, _| {
        Ok(Box::new(PartProxy { companion, site: site_of(site), process: None }))
    })
}

struct PartProxy {
    companion: &'static Companion,
    site: PartSite,
    process: Option<PartProcess>,
}

impl Worker for PartProxy {
    fn request(&mut self, request: &ServiceRequest) -> Result<Vec<u8>, Errno> {
        if request.tag == BEGIN {
            let wanted: WantedProgram =
                postcard::from_bytes(&request.payload).map_err(|_| Errno::BADMSG)?;
            if wanted.name != self.companion.program {
                return Err(Errno::NOSYS);
            }
            let file = fetch::find(&wanted)?.ok_or(Errno::NOENT)?;
            // In the child its descriptor has the same number, until the program runs.
            let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
            command.arg0(self.companion.program);
            let mut process = PartProcess::start(command).map_err(|error| {
                tracing::warn!(%error, "{} does not start", self.companion.program);
                Errno::from_io(&error)
            })?;
            let site = postcard::to_allocvec(&self.site).map_err(|_| Errno::NOMEM)?;
            process.ask(SITE, &site)?;
            self.process = Some(process);
            return Ok(Vec::new());
        }
        let process = self.process.as_mut().ok_or(Errno::NOSYS)?;
        process.ask(request.tag, &request.payload)
    }
}

/// A companion that works for this process.
struct PartProcess {
    child: Child,
    /// Taken before the child is waited for, which it notices.
    to: Option<ChildStdin>,
    from: ChildStdout,
}

impl PartProcess {
    fn start(mut command: Command) -> io::Result<Self> {
        let command = command.arg(SERVE_WORD).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut tries = 0;
        let mut child = loop {
            match command.spawn() {
                Err(error)
                    if error.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES =>
                {
                    tries += 1;
                    std::thread::sleep(BUSY_PAUSE);
                }
                spawned => break spawned?,
            }
        };
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let from = from.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(Self { child, to, from })
    }

    fn ask(&mut self, tag: i32, payload: &[u8]) -> Result<Vec<u8>, Errno> {
        let answered = self.exchange(tag, payload).map_err(|error| {
            let ended = self.child.try_wait();
            tracing::warn!(%error, ?ended, "the part of a companion does not answer");
            ENDED
        })?;
        match answered {
            (0, payload) => Ok(payload),
            (errno, _) => Err(Errno(errno)),
        }
    }

    fn exchange(&mut self, tag: i32, payload: &[u8]) -> io::Result<(i32, Vec<u8>)> {
        let ended = || io::Error::from(io::ErrorKind::UnexpectedEof);
        put(self.to.as_mut().ok_or_else(ended)?, tag, payload)?;
        take(&mut self.from)?.ok_or_else(ended)
    }
}

impl Drop for PartProcess {
    fn drop(&mut self) {
        // The stream is over, or this process ends: nothing that it does is wanted any more.
        drop(self.to.take());
        let _ = self.child.kill();
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "the part of a companion cannot be waited for");
        }
    }
}

fn put(to: &mut impl Write, word: i32, payload: &[u8]) -> io::Result<()> {
    let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
    let len = u32::try_from(payload.len()).map_err(|_| too_long())?;
    to.write_all(&word.to_le_bytes())?;
    to.write_all(&len.to_le_bytes())?;
    to.write_all(payload)?;
    to.flush()
}

/// The next message; `None` at the end.
fn take(from: &mut impl Read) -> io::Result<Option<(i32, Vec<u8>)>> {
    let mut head = [0; 8];
    match from.read(&mut head[..1])? {
        0 => return Ok(None),
        _ => from.read_exact(&mut head[1..])?,
    }
    let [a, b, c, d, len @ ..] = head;
    let len = u32::from_le_bytes(len) as usize;
    if len > MESSAGE_BYTES_MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut payload = Vec::new();
    if from.take(len as u64).read_to_end(&mut payload)? < len {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    Ok(Some((i32::from_le_bytes([a, b, c, d]), payload)))
}

/// Serves as the part of a companion, until the server that has started it is gone.
///
/// # Errors
/// When the server cannot be heard, or breaks the protocol.
pub fn serve(open: OpenPart) -> io::Result<()> {
    // The pipe to the server is for answers alone.
    let to = rustix::io::dup(io::stdout())?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    let mut to = std::fs::File::from(to);
    let mut from = io::stdin().lock();
    let mut worker: Option<Box<dyn PartWorker>> = None;
    while let Some((tag, payload)) = take(&mut from)? {
        let answer = match (tag, &mut worker) {
            (SITE, None) => postcard::from_bytes(&payload)
                .map_err(|_| Errno::BADMSG)
                .and_then(|site| open(&site))
                .map(|opened| {
                    worker = Some(opened);
                    Vec::new()
                }),
            (_, Some(worker)) if tag != SITE => worker.answer(tag, &payload),
            _ => Err(Errno::NOSYS),
        };
        match answer {
            Ok(payload) => put(&mut to, 0, &payload)?,
            Err(errno) => put(&mut to, errno.0, &[])?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_survives_a_pipe_and_a_cut_is_an_error() {
        let mut bytes = Vec::new();
        put(&mut bytes, -7, b"payload").unwrap();
        put(&mut bytes, 0, b"").unwrap();
        let mut from = &bytes[..];
        assert_eq!(take(&mut from).unwrap(), Some((-7, b"payload".to_vec())));
        assert_eq!(take(&mut from).unwrap(), Some((0, Vec::new())));
        assert_eq!(take(&mut from).unwrap(), None);
        for cut in 1..8 + 7 {
            assert!(take(&mut &bytes[..cut]).is_err(), "{cut}");
        }
        let mut long = bytes.clone();
        long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(take(&mut &long[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn part_process_that_ends_is_an_error_and_is_reaped() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exit 0"]);
        let mut process = PartProcess::start(command).unwrap();
        // Either the write or the read finds it gone.
        assert!(process.ask(1, b"x").is_err());
        let pid = process.child.id();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
