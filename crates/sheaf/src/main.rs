//! The one binary of Sheaf: client, inner node and server.
//!
//! It is a crate of its own so that its commands, which run once, can be built for size, and the tree for
//! speed: the linker's optimiser works on a program at the level of its last crate.
use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "wasm")]
    sheaf_tree::filter::use_engine(&sheaf_wasm::ENGINE);
    sheaf_commands::main()
}
