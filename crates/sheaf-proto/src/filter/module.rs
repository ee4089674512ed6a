//! Modules of filters that users bring: known by their content, kept by every node, run by whoever
//! the process gives for that ([`Linker`]).
//!
//! A stream whose filter is called [`ModuleId::filter`] runs a function of a module at every node
//! on the way up. The function sees the packets of a wave in the order of the children, and gives
//! none, one or several; so partials and results of such a stream are lists of packets
//! ([`super::packets`]).
//!
//! MRNet, section 2.4, loads a filter at each process from a shared object, by the name of its
//! file. Sheaf sends the module down the tree, by hash. It also takes WebAssembly, whose faults
//! stay within the filter.
use super::{Filter, FilterError, NodeInfo};
use bytes::Bytes;
use sheaf_core::{Errno, lock};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// The most bytes of modules that a process keeps.
pub const MODULES_BYTES_MAX: usize = 64 << 20;

/// The most modules that a process keeps.
pub const MODULES_MAX: usize = 256;

/// What the names of filters from modules begin with.
const PREFIX: &str = "module:";

/// A module, by the BLAKE3 hash of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub [u8; 32]);

impl ModuleId {
    /// The module with these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// What a stream calls the filter that is `function` of this module.
    #[must_use]
    pub fn filter(&self, function: &str) -> String {
        format!("{PREFIX}{self}:{function}")
    }
}

impl fmt::Display for ModuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ModuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for ModuleId {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let hash = blake3::Hash::from_hex(text).map_err(|_| {
            FilterError::new(Errno::INVAL, format!("{text:?} is no hash of a module"))
        })?;
        Ok(Self(*hash.as_bytes()))
    }
}

/// How a filter of a module is called to people; `None` if it is none of a module.
pub(crate) fn module_name(filter: &str) -> Option<String> {
    const HASH_CHARS: usize = 12;
    let (id, function) = filter.strip_prefix(PREFIX)?.split_once(':')?;
    Some(format!("{function:?} of module {}", id.get(..HASH_CHARS).unwrap_or(id)))
}

/// What WebAssembly modules begin with.
const WASM: &[u8] = b"\0asm";

/// Makes code of modules. A node opens no file and loads no code; what drives it may, and says here
/// how.
pub trait Linker: Send + Sync {
    /// Links or compiles a module, which stays for as long as the process lives.
    ///
    /// # Errors
    /// `ENOEXEC` when the bytes are no module that can run here, `ENOSYS` when there is nothing to
    /// run it.
    fn link(&self, bytes: &[u8]) -> Result<Box<dyn Linked>, FilterError>;

    /// Whether there is no use in being sent the engine that runs WebAssembly.
    fn has_engine(&self) -> bool;

    /// Keeps the engine, which has come down the tree.
    fn keep_engine(&self, bytes: Bytes);

    /// The engine, for nodes that have none.
    ///
    /// # Errors
    /// What keeps it from being had here.
    fn engine(&self) -> Result<Bytes, FilterError>;
}

/// Makes the [`Linker`] of a process.
pub type MakeLinker = fn() -> Box<dyn Linker>;

/// A module's code.
pub trait Linked: Send + Sync {
    /// One of its functions as a filter, for one stream at one node.
    ///
    /// # Errors
    /// `ENOSYS` when it has no such function; what the function says of bad parameters.
    fn instance(
        &self,
        function: &str,
        params: &[u8],
        info: &NodeInfo,
    ) -> Result<Box<dyn Filter>, FilterError>;
}

/// Of a process that runs no modules: they pass through it.
struct Bare;

fn unlinked() -> FilterError {
    FilterError::new(Errno::NOSYS, "nothing in this process runs modules of filters")
}

impl Linker for Bare {
    fn link(&self, _: &[u8]) -> Result<Box<dyn Linked>, FilterError> {
        Err(unlinked())
    }

    fn has_engine(&self) -> bool {
        true
    }

    fn keep_engine(&self, _: Bytes) {}

    fn engine(&self) -> Result<Bytes, FilterError> {
        Err(unlinked())
    }
}

struct Module {
    id: ModuleId,
    bytes: Bytes,
    /// Made when it is first used: most nodes of a tree, its leaves, never use it.
    code: OnceLock<Result<Box<dyn Linked>, FilterError>>,
}

impl Module {
    fn code(&self, linker: &dyn Linker) -> Result<&dyn Linked, FilterError> {
        // A failure is kept too: a module that cannot be linked is not tried again for each stream.
        let code = self.code.get_or_init(|| linker.link(&self.bytes));
        code.as_deref().map_err(Clone::clone)
    }
}

/// The modules of a process. Nothing is ever unloaded: streams may still run it.
#[derive(Default)]
pub(crate) struct Modules {
    list: Mutex<Vec<Arc<Module>>>,
    /// Leaves of this process keep them too.
    at_leaves: AtomicBool,
    linker: OnceLock<(MakeLinker, Box<dyn Linker>)>,
}

impl Modules {
    /// Keeps a module. Adding one that is there already changes nothing.
    pub fn add(&self, id: ModuleId, bytes: Bytes) -> Result<(), FilterError> {
        let mut list = lock(&self.list);
        if list.iter().any(|module| module.id == id) {
            return Ok(());
        }
        let have: usize = list.iter().map(|module| module.bytes.len()).sum();
        if list.len() >= MODULES_MAX || have + bytes.len() > MODULES_BYTES_MAX {
            let message = format!(
                "a node keeps at most {MODULES_MAX} modules and {MODULES_BYTES_MAX} bytes of them \
                 in all"
            );
            return Err(FilterError::new(Errno::NOSPC, message));
        }
        list.push(Arc::new(Module { id, bytes, code: OnceLock::new() }));
        Ok(())
    }

    /// Whether leaves of this process keep modules.
    pub fn are_at_leaves(&self) -> bool {
        self.at_leaves.load(Ordering::Relaxed)
    }

    /// Lets leaves of this process keep them.
    pub fn keep_at_leaves(&self) {
        self.at_leaves.store(true, Ordering::Relaxed);
    }

    /// Gives what makes code of them, unless there is something already.
    pub fn link_with(&self, make: MakeLinker) {
        self.linker.get_or_init(|| (make, make()));
    }

    /// Those of another process, which has none yet.
    pub fn apart(&self) -> Self {
        let apart = Self::default();
        if let Some((make, _)) = self.linker.get() {
            apart.link_with(*make);
        }
        apart
    }

    fn linker(&self) -> &dyn Linker {
        self.linker.get().map_or(&Bare, |(_, linker)| &**linker)
    }

    /// Whether a module that begins so needs the engine.
    pub fn need_engine(beginning: &[u8]) -> bool {
        beginning.starts_with(WASM)
    }

    /// Whether there is no use in being sent the engine.
    pub fn has_engine(&self) -> bool {
        self.linker().has_engine()
    }

    /// Keeps the engine, which has come down the tree.
    pub fn keep_engine(&self, bytes: Bytes) {
        self.linker().keep_engine(bytes);
    }

    /// The engine for nodes that have none.
    pub fn engine(&self) -> Result<Bytes, FilterError> {
        self.linker().engine()
    }

    fn find(&self, id: ModuleId) -> Option<Arc<Module>> {
        let list = lock(&self.list);
        // A clone, so that the list is not locked while the module is compiled.
        list.iter().find(|module| module.id == id).cloned()
    }

    /// The bytes of a module that is here.
    pub fn bytes(&self, id: ModuleId) -> Option<Bytes> {
        self.find(id).map(|module| module.bytes.clone())
    }

    /// Links or compiles a module now, which otherwise happens when a stream first uses it.
    pub fn prepare(&self, id: ModuleId) -> Result<(), FilterError> {
        self.find(id).ok_or_else(|| missing(id))?.code(self.linker()).map(|_| ())
    }

    /// Whether `name` is that of a filter from a module.
    pub fn is_theirs(name: &str) -> bool {
        name.starts_with(PREFIX)
    }

    /// The filter that `name` says.
    pub fn instantiate(
        &self,
        name: &str,
        params: &[u8],
        info: &NodeInfo,
    ) -> Result<Box<dyn Filter>, FilterError> {
        let rest = name.strip_prefix(PREFIX).unwrap_or(name);
        let (id, function) = rest.split_once(':').ok_or_else(|| {
            FilterError::new(Errno::INVAL, format!("{name:?} names no function of a module"))
        })?;
        let module = id.parse().and_then(|id| self.find(id).ok_or_else(|| missing(id)))?;
        module.code(self.linker())?.instance(function, params, info)
    }
}

fn missing(id: ModuleId) -> FilterError {
    FilterError::new(Errno::NOENT, format!("the module {id} is not here"))
}
