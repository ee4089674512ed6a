//! What would be fetched.
use super::others::OthersRemover;
use super::same::FileIs;
use super::target::FetchTarget;
use super::{FetchExclude, FetchOptions, FetchReport, above_of};
use crate::archive::{Archive, ArchiveError, ArchiveEvent};
use crate::list::ArchivedFile;
use crate::pack::member::MemberKind;
use crate::path::ArchivePath;
use crate::walk::names::lstat;
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Timestamp};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Says what [`fetch`](super::fetch) would do. Nothing is written, and of the store nothing is read but
/// indexes.
///
/// # Errors
/// When there is nothing of this name, or the archive cannot be read.
pub(super) fn fetch_dry(
    archive: &Archive,
    from: &ArchivePath,
    to: &Path,
    (options, exclude): (FetchOptions, &FetchExclude),
    told: &(dyn Fn(ArchiveEvent) + Sync),
) -> Result<FetchReport, ArchiveError> {
    let is_directory = archive.catalog().directory(from)?.is_some();
    let above = above_of(from, options.contents && is_directory);
    let mut report = FetchReport::default();
    for found in archive.walk(from)? {
        let (path, file) = match found {
            Ok(found) => found,
            Err(error) => {
                report.failed += 1;
                told(ArchiveEvent::Failed(error));
                continue;
            }
        };
        if exclude.fits_walked(&path, matches!(file, ArchivedFile::Directory(_))) {
            continue;
        }
        let within = path.within(&above).expect("it is below what was asked for");
        let at = to.join(within.as_relative());
        let is = match &file {
            ArchivedFile::Directory(_) => {
                if !exclude.is_of_some() {
                    report.directories += 1;
                } else if exclude.is_included(&path, true) {
                    exclude.uses(&path, |_| report.directories += 1);
                }
                continue;
            }
            ArchivedFile::Member { member, .. } => FileIs::member(member),
            ArchivedFile::Object(object) => FileIs::object(object),
        };
        if exclude.is_of_some()
            && let Some((above, _)) = path.split()
        {
            exclude.uses(&above, |_| report.directories += 1);
        }
        let size = is.size;
        let standing = match standing(&at, &is.attributes.kind, is.attributes.mtime, size) {
            // It is removed before.
            Err(Errno::ISDIR | Errno::NOTDIR) if options.delete => Ok(Standing::Nothing),
            standing => standing,
        };
        match standing {
            Ok(Standing::Same) if !options.overwrite || is_same(&at, is) => report.unchanged += 1,
            Ok(Standing::Newer) if !options.overwrite => {
                report.newer += 1;
                told(ArchiveEvent::Skipped { path: at, why: "what is there is newer" });
            }
            Ok(_) => {
                report.fetched += 1;
                report.fetched_bytes += size;
                told(ArchiveEvent::Fetches { path: at });
            }
            Err(errno) => {
                report.failed += 1;
                let doing = "cannot be written";
                told(ArchiveEvent::Failed(ArchiveError::File { path: at, doing, errno }));
            }
        }
    }
    if options.delete && is_directory {
        report += remove_dry(archive, from, (to, &above), (options, exclude), told, report.failed)?;
    }
    Ok(report)
}

/// Says what would be removed, if nothing has failed.
fn remove_dry(
    archive: &Archive,
    from: &ArchivePath,
    (to, above): (&Path, &ArchivePath),
    (options, exclude): (FetchOptions, &FetchExclude),
    told: &(dyn Fn(ArchiveEvent) + Sync),
    failed: u64,
) -> Result<FetchReport, ArchiveError> {
    if failed > 0 {
        told(ArchiveEvent::Failed(ArchiveError::NothingRemoved { path: to.to_owned() }));
        return Ok(FetchReport::default());
    }
    let target = match FetchTarget::open(to) {
        Ok(target) => target,
        // Of a target that is not there nothing is removed.
        Err(Errno::NOENT) => return Ok(FetchReport::default()),
        Err(errno) => {
            let (path, doing) = (to.to_owned(), "cannot be looked at");
            told(ArchiveEvent::Failed(ArchiveError::File { path, doing, errno }));
            return Ok(FetchReport { failed: 1, ..FetchReport::default() });
        }
    };
    let mut remover = OthersRemover {
        archive,
        exclude,
        target: &target,
        to,
        above,
        kept: options.kept,
        dry_run: true,
        told,
        report: FetchReport::default(),
    };
    remover.run(from)?;
    Ok(remover.report)
}

/// Whether what is there is as it is archived.
fn is_same(at: &Path, is: FileIs<'_>) -> bool {
    let (Some(above), Some(name)) = (at.parent(), at.file_name()) else { return false };
    FetchTarget::open(above).is_ok_and(|target| target.has(target.base(), name.as_bytes(), is))
}

enum Standing {
    Nothing,
    Same,
    Newer,
    Older,
}

/// What is there, beside what is archived.
fn standing(at: &Path, kind: &MemberKind, mtime: Timestamp, size: u64) -> Result<Standing, Errno> {
    let found = match lstat(at) {
        Ok(found) => found,
        // What is longer than the system takes is looked at when it is fetched.
        Err(Errno::NOENT | Errno::NAMETOOLONG) => return Ok(Standing::Nothing),
        Err(errno) => return Err(errno),
    };
    if found.is_dir() {
        return Err(Errno::ISDIR);
    }
    let (is_kind, size) = match kind {
        MemberKind::File | MemberKind::HardLink { .. } => (found.kind == FileKind::File, size),
        MemberKind::Symlink { target } => (found.kind == FileKind::Symlink, target.len() as u64),
        MemberKind::Fifo => (found.kind == FileKind::Fifo, 0),
        MemberKind::CharDevice { .. } => (found.kind == FileKind::CharDevice, 0),
        MemberKind::BlockDevice { .. } => (found.kind == FileKind::BlockDevice, 0),
    };
    Ok(if is_kind && found.mtime == mtime && found.size == size {
        Standing::Same
    } else if found.mtime > mtime {
        Standing::Newer
    } else {
        Standing::Older
    })
}
