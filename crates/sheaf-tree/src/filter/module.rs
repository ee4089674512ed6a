//! Running the modules of filters that users bring: shared objects and WebAssembly.
use crate::filter::{Filter, FilterError, NodeInfo, Registry};
use bytes::Bytes;
use sheaf_core::Errno;
use sheaf_proto::filter::{Linked, Linker};
use std::sync::Arc;

mod engine;
mod fork;
mod guest;
mod hold;
mod native;

pub use engine::use_engine;
use engine::{Compiled, Engines};
use guest::{Guest, ModuleFilter};
pub(crate) use hold::{CODE_EXITED, CODE_STUCK, end_when_held_up};
pub use hold::{HeldUpListener, tell_when_held_up};

/// Lets modules run that are added to this registry, or come down the tree to a node of it.
/// Starting or joining a tree does so too; calling it again changes nothing.
pub fn link_modules(registry: &Registry) {
    registry.link_modules_with(|| Box::new(Engines::default()));
}

/// What a module's bytes begin with says what it is.
enum ModuleCode {
    Native(native::Library),
    Wasm(Compiled),
}

impl Linker for Engines {
    fn link(&self, bytes: &[u8]) -> Result<Box<dyn Linked>, FilterError> {
        let code = if bytes.starts_with(b"\x7fELF") {
            native::Library::load(bytes).map(ModuleCode::Native)
        } else if bytes.starts_with(b"\0asm") {
            self.compile(bytes).map(ModuleCode::Wasm)
        } else {
            let message = "a filter module is a shared object (ELF) or a WebAssembly module";
            Err(FilterError::new(Errno::NOEXEC, message))
        };
        Ok(Box::new(code?))
    }

    fn has_engine(&self) -> bool {
        self.has()
    }

    fn keep_engine(&self, bytes: Bytes) {
        self.keep(bytes);
    }

    fn engine(&self) -> Result<Bytes, FilterError> {
        self.bytes()
    }
}

impl Linked for ModuleCode {
    fn instance(
        &self,
        function: &str,
        params: &[u8],
        info: &NodeInfo,
    ) -> Result<Box<dyn Filter>, FilterError> {
        let guest: Box<dyn Guest> = Box::new(match self {
            Self::Native(library) => library.instance(function, params, info)?,
            Self::Wasm(compiled) => compiled.instance(function, params, info)?,
        });
        Ok(Box::new(ModuleFilter::new(guest, Arc::clone(&info.clocks))))
    }
}
