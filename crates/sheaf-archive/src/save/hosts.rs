//! Storing what is on many hosts: each reads its files and writes packs and objects straight to the
//! store, and one that has the catalog, the *root*, says which directories, and commits.
//!
//! Root and hosts speak in requests and answers, of which the root has the first word: it gives
//! directories, with what is archived of them, and the host answers with what it has found and done
//! since. Nothing else is kept of a directory at the host, so one that is lost costs what it had not
//! handed in, and what it had is not stored again by whoever gets its directories.
//!
//! Nothing here depends on the tree: `sheaf-archive-cli/src/hosts/` carries the messages.
mod host;
mod message;
mod root;
mod work;

pub use host::SaveHost;
pub use root::{SaveRoot, SaveRootOptions};
