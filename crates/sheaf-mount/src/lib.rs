//! The mounted view: the files of every host under one directory, the same on each, with the consistency of one
//! machine.
//!
//! A host's files are mounted by FUSE wherever they are wanted ([`Mounted`]). Each call of a program becomes a
//! request ([`NodeOp`]) to the owner of the files, whose service ([`service`]) does it with a system call of its own, as
//! the user who asks: so there is one cache, the owner's.
//!
//! The model is MFS, the MOSIX file system (Amar, Barak and Shiloh, *The MOSIX Direct File System
//! Access Method for Supporting Scalable Cluster File Systems*), section 4: one tree with a
//! directory per node, and only one cache, at the server. That yields the single-node consistency
//! of section 3.2. Sheaf differs in three points. It needs no kernel of its own, as FUSE gives it
//! the calls. No process migrates to its files (sections 3 and 4.2). Bytes may be lent to a reader,
//! which section 3.2 mentions and MFS does not do (`owner/lending.rs`).
mod all;
mod combined;
mod fuse;
mod groups;
mod ids;
mod lanes;
mod message;
mod near;
mod own;
mod owner;

mod remote;
mod view;

pub use all::{AllView, register};
pub use fuse::{
    MountError, MountOptions, MountStatistics, Mounted, NearerDevice, Remote, StuckCall,
    ViewForbids, unmount,
};
pub use groups::{AddressQuestion, GROUP_RULES_MAX, GROUPS_MAX, GroupsView};
pub use ids::{ID_RULES_MAX, IdMap, IdMapError, ShownIds};
pub use message::{
    FileAnswer, FileCall, FileCaller, FileClient, FileLock, FileLockKind, FileNews,
    FileSystemUsage, Loan, LockedFile, NewsOf, NodeAttributes, NodeEntry, NodeMaking, NodeName,
    NodeOp, ROOT, SetNodeAttributes, SetNodeTime, SubMountEnd,
};
pub use near::{FILES_NEAR, near_service};
pub use owner::{FILES, FileOwners, OwnerLane, ViewAudit, service};
pub use remote::{HostRemote, HostRemotes};
pub use view::{
    MountOfView, MountedView, TakeAwayError, ViewError, ViewHost, ViewParts, mounts_of_views,
    take_away,
};
