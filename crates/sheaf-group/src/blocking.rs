//! The same calls for programs without an async runtime: each blocks until its answer is there.
//!
//! ```
//! use sheaf_group::{Limits, Servers, blocking, message::DataAggregation, service_config};
//! use sheaf_tree::{launch, topology::{Names, Placement, Spec, Topology}};
//!
//! let hosts: Names = (1..=8).map(|n| format!("n{n}")).collect();
//! let tree = Topology::build(&Spec::Auto, "root", hosts, Placement::LeafHosts)?;
//! let client = blocking::BlockingClient::start(tree.leaf_hosts(), Limits::default(), || {
//!     // Every server of this process serves this machine's own files.
//!     let options = launch::Options { configs: service_config("/", None), ..Default::default() };
//!     launch::embedded(&tree, &Servers::default().services(), &options)
//! })?;
//! let group = client.gopenat(&client.everyone(), "/proc/loadavg", 0, 0)?;
//! assert_eq!(group.size(), 8);
//! let reading = group.read(64, DataAggregation::by_name("average", &[1], 1 << 20, 0).unwrap())?;
//! println!("{:?}, {} bytes read in all", reading.value, reading.status);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
use crate::client::{Limits, Reading};
use crate::error::GroupError;
use crate::message::{DataAggregation, OpenMessage, Operation, Whence};
use crate::stat::Stat;
use sheaf_core::RangeSet;
use sheaf_tree::Network;
use sheaf_tree::topology::Names;
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;
use tokio::runtime::{Handle, Runtime};

/// [`crate::Client`], blocking. Must not be used inside an async runtime.
///
/// It brings a runtime of its own, whose one thread works while a call waits; between calls a
/// background thread keeps the session alive. It may be dropped anywhere, also inside another
/// runtime, and be used by many threads at once: each call has its own answer.
#[derive(Clone, Debug)]
pub struct BlockingClient {
    client: crate::Client,
    runtime: Arc<Own>,
}

/// A runtime that may be dropped anywhere.
#[derive(Debug)]
struct Own(Option<Runtime>);

impl Own {
    fn start() -> io::Result<Self> {
        let builder = &mut tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().map(|runtime| Self(Some(runtime)))
    }

    fn get(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.get().block_on(future)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let Some(runtime) = self.0.take() else { return };
        if Handle::try_current().is_ok() {
            // A runtime is not waited for inside another one.
            runtime.shutdown_background();
        }
    }
}

impl BlockingClient {
    /// A client of the tree that `launch` starts; `names` are those of its leaves, in order.
    ///
    /// # Errors
    /// When no thread can be started, and as [`crate::Client::new`] (`InvalidInput`).
    pub fn start(
        names: Names,
        limits: Limits,
        launch: impl FnOnce() -> Network,
    ) -> io::Result<Self> {
        let runtime = Own::start()?;
        let network = {
            let _inside = runtime.get().enter();
            launch()
        };
        let client = crate::Client::new(network, names, limits)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Self { client, runtime: Arc::new(runtime) })
    }

    /// The same client for async code on its own runtime.
    #[must_use]
    pub fn client(&self) -> &crate::Client {
        &self.client
    }

    /// Every host.
    #[must_use]
    pub fn everyone(&self) -> RangeSet {
        self.client.network().everyone()
    }

    /// [`crate::Client::gopenat`].
    ///
    /// # Errors
    /// As there.
    pub fn gopenat(
        &self,
        members: &RangeSet,
        path: &str,
        flags: u32,
        mode: u32,
    ) -> Result<BlockingGroup, GroupError> {
        let group = self.runtime.block_on(self.client.gopenat(members, path, flags, mode))?;
        Ok(BlockingGroup { runtime: Arc::clone(&self.runtime), group })
    }

    /// [`crate::Client::gopen`].
    ///
    /// # Errors
    /// As there.
    pub fn gopen(
        &self,
        members: &RangeSet,
        dir: &str,
        flags: u32,
        mode: u32,
    ) -> Result<BlockingGroup, GroupError> {
        let group = self.runtime.block_on(self.client.gopen(members, dir, flags, mode))?;
        Ok(BlockingGroup { runtime: Arc::clone(&self.runtime), group })
    }

    /// [`crate::Client::once`].
    ///
    /// # Errors
    /// As there.
    pub fn once(
        &self,
        members: &RangeSet,
        open: OpenMessage,
        operation: Operation,
        data: &[u8],
    ) -> Result<Reading, GroupError> {
        self.runtime.block_on(self.client.once(members, open, operation, data))
    }
}

/// [`crate::Group`], blocking.
#[derive(Debug)]
pub struct BlockingGroup {
    group: crate::Group,
    runtime: Arc<Own>,
}

macro_rules! blocking {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl BlockingGroup {
            $(
                #[doc = concat!("[`crate::Group::", stringify!($name), "`].")]
                ///
                /// # Errors
                /// As there.
                pub fn $name(&self, $($argument: $type),*) -> Result<$result, GroupError> {
                    self.runtime.block_on(self.group.$name($($argument),*))
                }
            )*
        }
    };
}

blocking! {
    files() -> Vec<OsString>;
    index(name: &OsStr) -> u64;
    statuses() -> Vec<i64>;
    read(count: u64, data: DataAggregation) -> Reading;
    pread(count: u64, offset: u64, data: DataAggregation) -> Reading;
    write(bytes: &[u8]) -> Reading;
    pwrite(bytes: &[u8], offset: u64) -> Reading;
    lseek(offset: i64, whence: Whence) -> i64;
    fstat() -> Vec<(u64, Stat)>;
    ftruncate(length: u64) -> Reading;
    fsync() -> Reading;
    fchmod(mode: u32) -> Reading;
    fchown(uid: Option<u32>, gid: Option<u32>) -> Reading;
    operate(operation: Operation, data: &[u8]) -> Reading;
}

impl BlockingGroup {
    /// [`crate::Group::size`].
    #[must_use]
    pub fn size(&self) -> u64 {
        self.group.size()
    }

    /// [`crate::Group::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(self) -> Result<Reading, GroupError> {
        self.runtime.block_on(self.group.close())
    }
}
