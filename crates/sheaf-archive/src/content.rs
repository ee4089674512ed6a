//! The content of one archived file, from its beginning to its end.
use crate::archive::{Archive, ArchiveError};
use crate::catalog::ArchivedObject;
use crate::list::ArchivedFile;
use crate::pack::member::{MemberKind, PackedMember};
use crate::path::ArchivePath;
use crate::reader::PackReader;
use std::io::{self, Write};
use std::ops::Range;

/// Bytes that are read or written at once.
const PIECE_BYTES: u64 = 1 << 20;

/// What a content cannot be written for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContentError {
    /// It cannot be read, or is not as it was stored. Of a long one what came before was written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// It is no file.
    #[error("{path}: {what}")]
    Kind {
        /// Its name.
        path: ArchivePath,
        /// What it is.
        what: &'static str,
    },
    /// Whoever it is written to takes no more.
    #[error(transparent)]
    Out(#[from] io::Error),
}

/// Writes the content of an archived file, holes as zeroes; how many bytes it has. What is in a pack is
/// compared with its checksum before anything of it is written, what is longer when all is.
///
/// # Errors
/// When there is no such file, it cannot be read, or is not as it was stored; when it cannot be written.
pub fn write_content(
    archive: &Archive,
    path: &ArchivePath,
    out: &mut dyn Write,
) -> Result<u64, ContentError> {
    let found = archive.look_up(path)?;
    match found.ok_or_else(|| ArchiveError::NotArchived { path: path.clone() })? {
        ArchivedFile::Directory(_) => Err(not_one(path, "is a directory")),
        ArchivedFile::Member { member, pack } => {
            check(path, &member.attributes.kind)?;
            let above = path.split().map_or(ArchivePath::ROOT, |(above, _)| above);
            let packs = archive.catalog().packs(&above).map_err(ArchiveError::from)?;
            let pack = packs.into_iter().find(|known| known.id == pack);
            let pack = pack.ok_or_else(|| ArchiveError::NotArchived { path: path.clone() })?;
            write_member(archive, &PackOf { pack: &pack, member: &member, path }, out)
        }
        ArchivedFile::Object(object) => {
            check(path, &object.attributes.kind)?;
            write_object(archive, &object, path, out)
        }
    }
}

/// A member, and where it is.
struct PackOf<'a> {
    pack: &'a crate::ArchivedPack,
    member: &'a PackedMember,
    path: &'a ArchivePath,
}

fn write_member(
    archive: &Archive,
    of: &PackOf<'_>,
    out: &mut dyn Write,
) -> Result<u64, ContentError> {
    let member = of.member;
    let (from, bytes) = (member.content_at(), member.stored_bytes());
    let mut content = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    let mut reader = PackReader::new(archive.store(), of.pack).up_to(from + bytes);
    reader.read(from, &mut content)?;
    if blake3::hash(&content) != member.digest {
        return Err(ArchiveError::Content { path: of.path.clone() }.into());
    }
    let (mut at, mut rest) = (0, &content[..]);
    for extent in member.stored_extents() {
        zeroes(at..extent.start, out)?;
        let (piece, behind) = rest.split_at((extent.end - extent.start) as usize);
        out.write_all(piece)?;
        (at, rest) = (extent.end, behind);
    }
    zeroes(at..member.size, out)?;
    Ok(member.size)
}

fn write_object(
    archive: &Archive,
    object: &ArchivedObject,
    path: &ArchivePath,
    out: &mut dyn Write,
) -> Result<u64, ContentError> {
    let mut digest = blake3::Hasher::new();
    let mut written = 0;
    if let Some(place) = &object.place {
        let (reader, mut from) = PackReader::of(archive.store(), place);
        let mut reader = reader.up_to(from + object.stored_bytes());
        let mut room = Vec::new();
        for extent in object.stored_extents() {
            zeroes(written..extent.start, out)?;
            written = extent.start;
            while written < extent.end {
                room.resize((extent.end - written).min(PIECE_BYTES) as usize, 0);
                let read = reader.read(from, &mut room);
                read.map_err(|error| error.with_file(path))?;
                digest.update(&room);
                out.write_all(&room)?;
                from += room.len() as u64;
                written += room.len() as u64;
            }
        }
    }
    zeroes(written..object.size, out)?;
    if digest.finalize() != object.digest {
        return Err(ArchiveError::Content { path: path.clone() }.into());
    }
    Ok(object.size)
}

/// Writes a hole.
fn zeroes(hole: Range<u64>, out: &mut dyn Write) -> io::Result<()> {
    let mut left = hole.end.saturating_sub(hole.start);
    let room = vec![0; left.min(PIECE_BYTES) as usize];
    while left > 0 {
        let piece = left.min(PIECE_BYTES);
        out.write_all(&room[..piece as usize])?;
        left -= piece;
    }
    Ok(())
}

fn check(path: &ArchivePath, kind: &MemberKind) -> Result<(), ContentError> {
    match kind {
        MemberKind::File | MemberKind::HardLink { .. } => Ok(()),
        MemberKind::Symlink { .. } => Err(not_one(path, "is a symbolic link")),
        _ => Err(not_one(path, "is no regular file")),
    }
}

fn not_one(path: &ArchivePath, what: &'static str) -> ContentError {
    ContentError::Kind { path: path.clone(), what }
}
