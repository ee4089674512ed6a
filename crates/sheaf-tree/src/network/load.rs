//! Sending a module of filters to the whole tree.
use super::Network;
use crate::filter::{FilterError, ModuleId};
use bytes::Bytes;

impl Network {
    /// Sends a module of filters (a shared object or a WebAssembly module) down the tree, once:
    /// every node keeps it, and nodes that join later get it. A stream opened after this runs
    /// `function` of it when its filter is called [`ModuleId::filter`]`("function")`; the results
    /// of such a stream are lists of packets ([`crate::filter::packets`]).
    ///
    /// Links or compiles the module here first, which may take a while.
    ///
    /// # Errors
    /// `ENOEXEC` when the bytes are no module that can run here, `ENOSPC` when there are too many
    /// ([`crate::filter::MODULES_BYTES_MAX`]).
    pub fn load_filter(&self, bytes: impl Into<Bytes>) -> Result<ModuleId, FilterError> {
        let bytes = bytes.into();
        let registry = self.shared().peek(|core| core.nodes[0].registry().clone());
        registry.add_module(bytes.clone())?;
        self.shared().with_node(0, |node| node.add_module(&bytes))
    }
}
