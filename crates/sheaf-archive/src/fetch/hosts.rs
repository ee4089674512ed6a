//! Fetching to many hosts: the root says of each directory what is archived of it, in their order, and
//! hosts read packs and objects straight from the store.
mod host;
mod message;
mod root;

pub use host::FetchHost;
pub use root::{FetchRoot, FetchRootOptions};
