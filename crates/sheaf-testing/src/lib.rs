//! What the tests of several crates need: it is built for tests alone, and panics where those fail.
//!
//! [`skipped`] says that a test cannot run here, [`as_nobody`] runs one without rights, [`program`]
//! runs programs to their end, [`postgres`] is a server of PostgreSQL, [`S3Server`] one of S3,
//! [`Workshop`] compiles programs against `libsheaf.so`, and
//! `home` and `sessions` run the programs of this workspace (feature `program`), and
//! `cluster::TestCluster` (feature `cluster`) is hosts that are directories, served within the
//! test.

#[cfg(feature = "program")]
mod built;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "program")]
#[allow(missing_docs)]
pub mod home;
pub mod postgres;
pub mod program;
mod s3;
#[cfg(feature = "program")]
#[allow(missing_docs)]
pub mod sessions;
mod user;
mod workshop;

#[cfg(feature = "program")]
pub use built::built;
pub use s3::S3Server;
pub use user::as_nobody;
pub use workshop::Workshop;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Says, once a test, that it or a part of it cannot run here: to standard error itself, as the
/// harness keeps what `eprintln!` prints of tests that pass.
pub fn skipped(why: &str) {
    static SAID: Mutex<BTreeSet<(Option<String>, String)>> = Mutex::new(BTreeSet::new());
    // The harness gives threads the names of their tests.
    let test = std::thread::current().name().map(str::to_owned);
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert((test, why.to_owned())) {
        // Without standard error there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "SKIPPED 1 test: {why}");
    }
}

/// The root of the checkout.
#[must_use]
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
