//! What the tests of several crates need: it is built for tests alone, and panics where those fail.
//!
//! [`skipped`] says that a test cannot run here, [`program`] runs programs to their end, and
//! [`Workshop`] compiles programs against `libsheaf.so`.

pub mod program;
mod workshop;

pub use workshop::Workshop;

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Says that a test cannot run here: to standard error itself, as the harness would keep the line.
pub fn skipped(why: &str) {
    // Without standard error there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "SKIPPED 1 test: {why}");
}

/// The root of the checkout.
#[must_use]
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
