//! Tools: programs at the leaves beyond the file operations, such as `grep`'s search.
use crate::audit::Change;
use crate::entry;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::Errno;
use sheaf_file::{Export, Globbed};
use std::io::Read;
use std::sync::Arc;

/// The host that a tool works on.
#[derive(Clone)]
pub struct Host {
    /// Its name in the cluster.
    pub name: Arc<str>,
    /// Its leaf.
    pub leaf: u32,
    /// Its files.
    pub export: Export,
    /// The request at work, if there is one.
    asked: Option<Arc<dyn AskedTool>>,
}

/// What a server knows of those who wait for a tool's answer.
pub(crate) trait AskedTool: Send + Sync {
    /// See [`Host::stopped`].
    fn stopped(&self) -> Option<Errno>;

    /// Whether the answer comes too late.
    fn is_late(&self) -> bool;
}

impl Host {
    /// A host at work on nothing yet.
    #[must_use]
    pub fn new(name: &str, leaf: u32, export: Export) -> Self {
        Self { name: name.into(), leaf, export, asked: None }
    }

    pub(crate) fn for_request(&self, asked: Arc<dyn AskedTool>) -> Self {
        Self { asked: Some(asked), ..self.clone() }
    }

    /// Whether nobody waits for the answer any more.
    ///
    /// To be asked after each bit of work: a file, a buffer. It is also a sign of life. Where the
    /// answer takes long, those who wait are told that there will be more; a host that does not ask
    /// until its deadline hangs, and is given up.
    #[must_use]
    pub fn should_stop(&self) -> bool {
        self.stopped().is_some()
    }

    /// Why nobody waits for the answer any more: `ECANCELED`, or `ETIMEDOUT` when it comes too
    /// late. As [`Host::should_stop`] it is a sign of life.
    #[must_use]
    pub fn stopped(&self) -> Option<Errno> {
        self.asked.as_ref().and_then(|asked| asked.stopped())
    }

    pub(crate) fn is_late(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.is_late())
    }

    /// [`Export::expand`], which gives signs of life meanwhile.
    #[must_use]
    pub fn expand(&self, text: &str) -> Globbed {
        self.export.expand_while(text, false, &|| self.stopped())
    }

    /// [`Export::expand_new`], which gives signs of life meanwhile.
    #[must_use]
    pub fn expand_new(&self, text: &str) -> Globbed {
        self.export.expand_while(text, true, &|| self.stopped())
    }

    /// A reader that asks [`Host::should_stop`] each time, and fails with what [`Host::stopped`]
    /// says.
    pub fn attentive<R: Read>(&self, inner: R) -> Attentive<'_, R> {
        Attentive { inner, host: self }
    }
}

/// See [`Host::attentive`].
pub struct Attentive<'a, R> {
    inner: R,
    host: &'a Host,
}

impl<R: Read> Read for Attentive<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if let Some(errno) = self.host.stopped() {
            return Err(std::io::Error::from_raw_os_error(errno.0));
        }
        self.inner.read(buffer)
    }
}

/// A tool, as servers know it.
pub trait Tool: Send + Sync {
    /// Starts it on one host.
    ///
    /// # Errors
    /// An errno for the whole host, when the parameters make no sense there.
    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno>;

    /// Whether it changes no file, whatever its parameters: clients that may only read are served
    /// by these tools and by no others.
    fn only_reads(&self) -> bool {
        false
    }

    /// What these parameters change, for the audit; `None` if they change nothing.
    fn change(&self, params: &[u8]) -> Option<Change> {
        let _ = params;
        (!self.only_reads()).then(Change::default)
    }
}

/// A tool at work on one host.
pub trait Running: Send {
    /// Takes input that the client sends to every host. What goes wrong is told in the answer.
    fn feed(&mut self, data: Bytes, host: &Host) {
        let _ = (data, host);
    }

    /// What it has changed so far, for the audit, where that is more exact than what
    /// [`Tool::change`] says; else nothing.
    fn changed(&self) -> Vec<String> {
        Vec::new()
    }

    /// Does one step (a file, a buffer), appending to the answer. Steps go on until the tool is
    /// done or the answer is long enough to be sent.
    fn step(&mut self, answer: &mut Reply, host: &Host) -> Step;

    /// Says what was changed so far, of all that it has done: it may be the last that is heard of
    /// it. With `is_over` it is: what is half done is given up, and told. Tools that change nothing
    /// say nothing.
    fn so_far(&mut self, answer: &mut Reply, is_over: bool) {
        let _ = (answer, is_over);
    }
}

/// Whether a tool has more to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// There is more to do.
    More,
    /// There is more to do, but what was said so far is to be sent, even if it is nothing: the
    /// tool keeps to a bound, or needs long.
    Pause,
    /// That was all.
    Done,
}

/// What a tool answers: entries, or bytes of its own.
#[non_exhaustive]
pub enum Reply {
    /// Folded entry by entry over hosts.
    Entries(entry::Answer),
    /// Folded as a whole.
    Bytes(Vec<u8>),
}

impl Reply {
    /// The entries, for tools that answer with them.
    ///
    /// A tool that first wrote bytes loses them: it is one or the other.
    pub fn entries(&mut self) -> &mut entry::Answer {
        self.entries_with(entry::AnswerForm::default())
    }

    /// [`Reply::entries`] in a form of one's choice, which must stay the same over a call.
    pub fn entries_with(&mut self, form: entry::AnswerForm) -> &mut entry::Answer {
        if let Self::Bytes(_) = self {
            *self = Self::Entries(entry::Answer::new(form));
        }
        match self {
            Self::Entries(answer) => answer,
            Self::Bytes(_) => unreachable!("made entries just above"),
        }
    }

    /// The bytes, for tools that answer with them.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        if let Self::Entries(_) = self {
            *self = Self::Bytes(Vec::new());
        }
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Entries(_) => unreachable!("made bytes just above"),
        }
    }

    /// How many errors it has.
    pub(crate) fn errors(&self) -> u64 {
        match self {
            Self::Entries(answer) => answer.errors(),
            Self::Bytes(_) => 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Entries(answer) => answer.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether nothing was said.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Entries(answer) => answer.is_empty() && answer.has_no_stats(),
            Self::Bytes(bytes) => bytes.is_empty(),
        }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Entries(answer) => answer.into_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// The tools a server has, by name.
#[derive(Clone, Default)]
pub struct Tools {
    tools: FxHashMap<String, Arc<dyn Tool>>,
}

impl Tools {
    /// Adds a tool, replacing an earlier one of that name.
    pub fn register(&mut self, name: &str, tool: impl Tool + 'static) {
        self.tools.insert(name.to_owned(), Arc::new(tool));
    }

    /// The tool of this name.
    ///
    /// # Errors
    /// `ENOSYS` when there is none.
    pub fn get(&self, name: &str) -> Result<&dyn Tool, Errno> {
        self.tools.get(name).map(|tool| &**tool).ok_or(Errno::NOSYS)
    }
}
