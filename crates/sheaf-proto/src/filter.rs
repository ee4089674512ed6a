//! Filters: how the answers of a wave are combined on the way up.
//!
//! A stream names one filter. Every node of the stream holds an instance of it; for each wave the
//! node folds its children's partials into an [`Accumulator`] and sends what that gives to its
//! parent. The root finishes the last one into the result.
//!
//! MRNet, section 2.4, transformation filters. The paper's filter function receives all packets of
//! a wave at once; an accumulator folds them one by one, so a node need not hold a whole wave.
//! State that a filter keeps between waves is a value here and not a static variable, because it
//! moves to the node that takes over the children. Modules of users: [`ModuleId`].
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, RangeSet};
use std::sync::Arc;

pub mod builtin;
mod info;
mod module;
pub mod packets;
mod reply;

pub use info::{Bounds, LinkClock, LinkClocks, NodeInfo, Place};
pub use module::{Linked, Linker, MODULES_BYTES_MAX, MODULES_MAX, MakeLinker, ModuleId};
pub(crate) use module::{Modules, module_name};
pub use reply::{FilterReply, REPLIES_PER_WAVE_MAX, REPLY_BYTES_MAX, Replies};

/// One contribution to a wave.
#[derive(Debug, Clone, Copy, Default)]
pub struct Input<'a> {
    /// Which child it came from, counted from 0 in the node's child order.
    pub child: u32,
    /// The rank of that child: unlike its place it lasts when the tree changes.
    pub rank: u32,
    /// The packet's tag.
    pub tag: i32,
    /// `true`: a leaf's own data; `false`: what an accumulator of the same filter gave. Told
    /// explicitly, because a node with a single child must not be mistaken for a leaf.
    pub raw: bool,
    /// The leaves that the child may speak for in this contribution, where the node knows them:
    /// always on a stream whose filter has no [`Filter::uniform`].
    pub leaves: Option<&'a RangeSet>,
    /// The bytes.
    pub payload: &'a [u8],
}

/// What [`Accumulator::finish`] is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emit {
    /// Something the parent's accumulator can fold.
    Partial,
    /// The answer for the root's user.
    Result,
}

/// Why a filter could not combine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FilterError {
    /// What it is to the member: usually `EBADMSG` (wrong format) or `EOVERFLOW`.
    pub errno: Errno,
    /// One sentence.
    pub message: String,
}

impl FilterError {
    /// An error with its errno and one sentence.
    pub fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }
}

/// Combines the contributions of one wave at one node. Reused from wave to wave.
pub trait Accumulator: Send {
    /// Takes in one contribution. On an error the accumulator is as it was before the call.
    ///
    /// # Errors
    /// When the bytes are not what this filter combines.
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError>;

    /// Appends what has been combined to `out` and empties the accumulator for the next wave.
    ///
    /// # Errors
    /// When nothing sensible can be said of what was folded (for example an overflow).
    fn finish(&mut self, emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError>;

    /// Packets that what has just been finished sends down to the members below this node. They
    /// are not repeated after a failure of the tree.
    fn replies(&mut self) -> Replies {
        Replies::default()
    }
}

/// A short way for contributions that all have the same few bytes and combine to as many, leaf's
/// data and partial alike. Items lie behind one another.
#[derive(Debug, Clone, Copy)]
pub struct Uniform {
    /// Bytes of an item, at least 1.
    pub item_bytes: usize,
    /// Folds items (the second) into those before them (the first, as many), and gives how many
    /// were folded: it stops in front of one that is no item, or that the result of is none.
    pub fold: fn(&mut [u8], &[u8]) -> usize,
    /// Whether bytes of that length are an item.
    pub is_plain: fn(&[u8]) -> bool,
}

/// A filter with its parameters, at one node, for one stream.
pub trait Filter: Send {
    /// An empty accumulator.
    fn accumulator(&self) -> Box<dyn Accumulator>;

    /// Whether contributions must be folded in child order to make the result reproducible
    /// (floating-point sums, concatenation). Otherwise they are folded as they arrive.
    fn in_child_order(&self) -> bool {
        false
    }

    /// What it has kept from wave to wave, for the node that takes over its children; `None` when
    /// there is nothing that another node needs.
    fn state(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Takes in the [`Filter::state`] of a node whose parent is gone and which is now below this
    /// one. When links fail again and again, what is (or was) part of such a state may come more
    /// than once: taking it in twice must be as good as once (a union, a maximum, the newest).
    ///
    /// The tree cannot see to that. A node that has taken in a state may be lost with it, so that
    /// whoever gave it keeps it and gives it again, grown meanwhile, to the next one; and that one
    /// may have had the older part from the node that is lost, within a state of its own from which
    /// nobody but the filter could take it out.
    ///
    /// # Errors
    /// When the bytes are no state of this filter; it is then as it was before.
    fn absorb(&mut self, state: &[u8]) -> Result<(), FilterError> {
        let _ = state;
        Ok(())
    }

    /// Takes other parameters from now on, and keeps what it has; `false` when this filter can only
    /// have those that it was made with.
    fn set_params(&mut self, params: &[u8]) -> bool {
        let _ = params;
        false
    }

    /// How contributions can be combined without an accumulator, if they can.
    fn uniform(&self) -> Option<Uniform> {
        None
    }
}

/// Makes a filter from the parameter bytes that its stream was opened with, for a node.
pub type Factory =
    Arc<dyn Fn(&[u8], &NodeInfo) -> Result<Box<dyn Filter>, FilterError> + Send + Sync>;

/// The filters a node knows, by name. Every node of a tree must know the same ones. Clones share
/// their contents, so that the nodes of one process cost little.
#[derive(Clone)]
pub struct Registry {
    factories: Arc<FxHashMap<String, Factory>>,
    modules: Arc<Modules>,
}

impl Registry {
    /// The built-in filters (see [`builtin`]).
    #[must_use]
    pub fn with_builtins() -> Self {
        let mut registry = Self { factories: Arc::default(), modules: Arc::default() };
        builtin::register(&mut registry);
        registry
    }

    /// Adds a filter under `name`, replacing an earlier one of that name.
    pub fn register(
        &mut self,
        name: &str,
        factory: impl Fn(&[u8]) -> Result<Box<dyn Filter>, FilterError> + Send + Sync + 'static,
    ) {
        self.register_at(name, move |params, _| factory(params));
    }

    /// [`Registry::register`] of a filter that depends on the node it runs at.
    pub fn register_at(
        &mut self,
        name: &str,
        factory: impl Fn(&[u8], &NodeInfo) -> Result<Box<dyn Filter>, FilterError>
        + Send
        + Sync
        + 'static,
    ) {
        Arc::make_mut(&mut self.factories).insert(name.to_owned(), Arc::new(factory));
    }

    /// A new instance of the filter `name`, for the node that `info` describes.
    ///
    /// # Errors
    /// `ENOSYS` for an unknown name; what the factory says of bad parameters.
    pub fn instantiate(
        &self,
        name: &str,
        params: &[u8],
        info: &NodeInfo,
    ) -> Result<Box<dyn Filter>, FilterError> {
        match self.factories.get(name) {
            Some(factory) => factory(params, info),
            None if Modules::is_theirs(name) => self.modules.instantiate(name, params, info),
            None => Err(FilterError::new(Errno::NOSYS, format!("no filter is called {name:?}"))),
        }
    }

    /// Keeps a module of filters, whose functions streams can name from now on in this process;
    /// `load_filter` of a network does so in the whole tree. Clones share their modules.
    ///
    /// # Errors
    /// `ENOEXEC` when the bytes are no module that can run here, `ENOSPC` when there are too many.
    pub fn add_module(&self, bytes: impl Into<Bytes>) -> Result<ModuleId, FilterError> {
        let bytes = bytes.into();
        let id = ModuleId::of(&bytes);
        self.modules.add(id, bytes)?;
        self.modules.prepare(id)?;
        Ok(id)
    }

    /// Lets the leaves of this process keep modules as well, which otherwise need none: for
    /// services that run filters of their own ([`Registry::instantiate`]). Clones do so too.
    pub fn keep_modules_at_leaves(&self) {
        self.modules.keep_at_leaves();
    }

    /// The same filters in another process, which has no modules yet.
    pub(crate) fn apart(&self) -> Self {
        Self { factories: Arc::clone(&self.factories), modules: Arc::new(self.modules.apart()) }
    }

    /// Gives what makes code of modules in this process, unless there is something already. Until
    /// then modules are kept and passed on, and none can be run. Clones share it.
    pub fn link_modules_with(&self, make: MakeLinker) {
        self.modules.link_with(make);
    }

    pub(crate) fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The names, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.factories.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}
