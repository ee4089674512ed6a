//! What is archived goes by one name after the other, each of which is asked about.
use super::asking::RemoveAsker;
use super::{ArchiveRemoval, is_empty};
use anyhow::Result;
use sheaf_archive::{Archive, ArchiveError, ArchivePath, ArchivedFile, MemberKind, remove};

impl ArchiveRemoval<'_> {
    /// Removes what is said to go.
    pub(super) fn asked(&mut self, path: &ArchivePath, asker: RemoveAsker) -> Result<()> {
        let Some(together) = self.together.take() else { return Ok(()) };
        let archive = &together.archive;
        match archive.look_up(path)? {
            None => self.missing(path.clone()),
            Some(ArchivedFile::Directory(_)) => {
                if self.is_removable(archive, path)? {
                    self.asked_directory(archive, path, asker)?;
                }
            }
            Some(file) => drop(self.asked_last(archive, path, kind_of(&file), asker)?),
        }
        self.together = Some(together);
        Ok(())
    }

    /// Says whether a directory is gone.
    fn asked_directory(
        &mut self,
        archive: &Archive,
        path: &ArchivePath,
        asker: RemoveAsker,
    ) -> Result<bool> {
        if !is_empty(archive, path)? {
            if !asker.asks(&self.said(path), ('d', false), true)? {
                return Ok(false);
            }
            let mut names = Vec::new();
            for found in archive.list(path)? {
                match found {
                    Ok((name, file)) => names.push((name, kind_of(&file))),
                    Err(error) => {
                        self.failed(&error.to_string());
                        return Ok(false);
                    }
                }
            }
            let mut all_go = true;
            for (name, kind) in names {
                let below = path.join(&name);
                all_go &= match kind.0 {
                    'd' => self.asked_directory(archive, &below, asker)?,
                    _ => self.asked_last(archive, &below, kind, asker)?,
                };
            }
            if !all_go || *path == ArchivePath::ROOT {
                return Ok(false);
            }
        }
        self.asked_last(archive, path, ('d', true), asker)
    }

    /// Asks about a file, or a directory that is empty, and removes it.
    fn asked_last(
        &mut self,
        archive: &Archive,
        path: &ArchivePath,
        kind: (char, bool),
        asker: RemoveAsker,
    ) -> Result<bool> {
        let is_directory = kind.0 == 'd';
        if !asker.asks(&self.said(path), kind, false)? {
            return Ok(false);
        }
        // Somebody may have stored something in it while nobody answered.
        if is_directory && !is_empty(archive, path)? {
            self.failed(&format!("{path}: the directory is not empty any more"));
            return Ok(false);
        }
        match remove(archive, path) {
            Ok(report) => self.all += report,
            Err(ArchiveError::NotArchived { .. }) => {
                self.missing(path.clone());
                return Ok(self.args.force);
            }
            Err(error) => return Err(error.into()),
        }
        self.gone(path, is_directory)?;
        Ok(true)
    }

    /// A path as it is given.
    fn said(&self, path: &ArchivePath) -> Vec<u8> {
        [&self.store, &path.as_bytes()[..]].concat()
    }
}

/// What a file is, as `ls -l` has it, and whether nothing is in it.
fn kind_of(file: &ArchivedFile) -> (char, bool) {
    let (kind, size) = match file {
        ArchivedFile::Directory(_) => return ('d', false),
        ArchivedFile::Member { member, .. } => (&member.attributes.kind, member.size),
        ArchivedFile::Object(object) => (&object.attributes.kind, object.size),
    };
    let letter = match kind {
        MemberKind::File | MemberKind::HardLink { .. } => '-',
        MemberKind::Symlink { .. } => 'l',
        MemberKind::Fifo => 'p',
        MemberKind::CharDevice { .. } => 'c',
        MemberKind::BlockDevice { .. } => 'b',
    };
    (letter, size == 0)
}
