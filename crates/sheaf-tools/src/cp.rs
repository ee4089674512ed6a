//! Copying to hosts, and from hosts to here.
//!
//! [`put`] multicasts its sources once per tree edge. A thread reads them in pieces and packs
//! them, with what is to be known of each file, into packets of about [`PACKET_BYTES`]; inner
//! nodes pass the packets on; each host writes beside the old file, verifies the digest, and
//! renames. Memory is constant everywhere, because a host that does not keep up holds the sender
//! back. At the end one wave brings what went wrong, folded over hosts and paths.
//!
//! [`put_each`] sends each host sources of its own.
//!
//! [`get`] asks every host for a manifest (names, sizes, digests), and then fetches each distinct
//! content once, in pieces of at most [`PIECE_BYTES`], from one host that has it. The first copy
//! is written from what was fetched, the others from the first.
//!
//! Names are those of `cp`: a destination that is a directory is copied into, otherwise it is the
//! new name. From hosts, `n[1-64]:/var/log/boot.log` to `logs/` becomes `logs/n1/boot.log`, …: a
//! directory of each host's own, then the given path from its last component, and of a pattern
//! from its first component that has a wildcard. Sockets are not copied (`EOPNOTSUPP`), named
//! pipes and devices only when directories are (devices need their privilege on the host).
//!
//! TBON-FS, section 4.1.1, `pcp`: a file is multicast with group writes to open files. [`put`]
//! sends whole trees instead, verifies the digest of each file, and replaces a file by a rename, so
//! that no reader sees a half-written file. There is no counterpart of `psync`, which sends only
//! changed blocks.
mod get;
mod message;
mod mode;
mod options;
mod place;
mod put;
mod put_each;
mod receive;
mod source;

pub use get::{Got, Made, PlannedCopy, get};
pub use message::Totals;
pub use mode::CopyMode;
pub use options::{CopyOptions, Progress};
pub use put::{Put, put};
pub use put_each::{EachPut, HostShare, ShareError, put_each};
pub use source::Source;

use sheaf_group::tool::Tools;

/// About how much one packet to the hosts holds, in bytes.
pub const PACKET_BYTES: usize = 256 << 10;

/// The most bytes of contents that one wave fetches from hosts.
pub const PIECE_BYTES: u64 = 4 << 20;

/// Makes the leaves' part known to servers.
pub fn register(tools: &mut Tools) {
    tools.register(put::TOOL, receive::PutTool);
    get::register(tools);
}

/// Decodes `data` as each thing that crosses the tree here, for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_any(data: &[u8]) {
    let mut input = data;
    while let Ok(Some((record, contents))) = message::next_record(&mut input) {
        let mut packet = message::CopyPacket::default();
        match record {
            message::CopyRecord::Data { offset, .. } => packet.put_data(offset, contents),
            _ => packet.put(&record),
        }
        let back = packet.take();
        assert_eq!(message::next_record(&mut &back[..]), Ok(Some((record, contents))));
    }
    drop(postcard::from_bytes::<message::PutParams>(data));
    drop(postcard::from_bytes::<Totals>(data));
    get::decode_any(data);
}
