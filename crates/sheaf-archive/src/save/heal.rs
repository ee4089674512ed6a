//! What is archived of files that have not changed, and cannot be read: it is stored again.
use super::SaveShared;
use super::old::{LostMembers, OldFiles};
use crate::archive::{ArchiveError, ArchiveEvent};
use crate::catalog::ArchivedPack;
use crate::pack::index::PackIndex;
use crate::pack::verify::Difference;
use crate::path::ArchivePath;
use crate::verify::{differences_of, verify_content};
use sheaf_core::Errno;
use std::collections::HashSet;
use std::path::PathBuf;

/// Whether what is archived of a file, which has not changed, cannot be read as it was stored; that is
/// told. It is looked at only where contents are compared. `old` has come to the name.
///
/// # Errors
/// When the store cannot be read, and may be so later.
pub(super) fn is_lost(
    shared: &SaveShared<'_>,
    old: &mut OldFiles,
    directory: &ArchivePath,
    (name, path): (&[u8], &dyn Fn() -> PathBuf),
) -> Result<bool, ArchiveError> {
    if !shared.options.checksum {
        return Ok(false);
    }
    let object = |object: &_| match verify_content(shared.store, &directory.join(name), object) {
        Ok(true) => Ok(None),
        Ok(false) => Ok(Some("its content is damaged")),
        Err(error) if error.errno() == Errno::NOENT => Ok(Some("its object is missing")),
        Err(error) if error.is_lost() => Ok(Some("its object is damaged")),
        Err(error) => Err(error),
    };
    let lost = old.lost(name, object, |row, index| lost_of(shared, row, index))?;
    if let Some(why) = lost {
        (shared.told)(ArchiveEvent::Again { path: path(), why });
    }
    Ok(lost.is_some())
}

/// Members of a pack that are not as they were stored. It is read from its beginning to its end.
fn lost_of(
    shared: &SaveShared<'_>,
    row: &ArchivedPack,
    index: &PackIndex,
) -> Result<LostMembers, ArchiveError> {
    let all = |why| index.members.iter().map(|of| (of.attributes.name.to_vec(), why)).collect();
    shared.moved.read(row.zstd_bytes.unwrap_or(row.tar_bytes));
    let differences = match differences_of(shared.store, row, index) {
        Ok(differences) => differences,
        Err(error) if error.errno() == Errno::NOENT => return Ok(all("its pack is missing")),
        Err(error) if error.is_lost() => return Ok(all("its pack is damaged")),
        Err(error) => return Err(error),
    };
    let mut lost = LostMembers::new();
    for difference in differences {
        let (name, why) = match difference {
            Difference::Content { name } => (name, "its content is damaged"),
            Difference::Headers { name } => (name, "its headers are damaged"),
            // Only without members is such a pack gone.
            Difference::End => return Ok(all("the end of its pack is damaged")),
        };
        lost.entry(name).or_insert(why);
    }
    // All names of a file go together, so that they stay names of one.
    let blocks: HashSet<u64> =
        lost.keys().filter_map(|name| Some(index.find(name)?.content_block())).collect();
    for member in index.members.iter().filter(|member| blocks.contains(&member.content_block())) {
        lost.entry(member.attributes.name.to_vec()).or_insert("its file is damaged");
    }
    Ok(lost)
}
