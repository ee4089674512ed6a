//! Commands that change the log itself: nobody may write to the archive meanwhile.
use super::Removal;
use crate::archive::{Archive, ArchiveError};
use crate::catalog::{RestoredLog, drop_log};

impl Archive {
    /// As [`drop_log`], while no other command writes to the archive.
    ///
    /// # Errors
    /// As [`drop_log`]; where another command writes or removes.
    pub fn drop_log(&self, from: u64, dry_run: bool) -> Result<u64, ArchiveError> {
        let _alone = self.alone(dry_run)?;
        Ok(drop_log(self.store(), from, dry_run)?)
    }

    /// As [`Catalog::restore_log`](crate::Catalog::restore_log), while no other command writes to the
    /// archive.
    ///
    /// # Errors
    /// As there; where another command writes or removes.
    pub fn restore_log(&self, dry_run: bool) -> Result<RestoredLog, ArchiveError> {
        let _alone = self.alone(dry_run)?;
        Ok(self.catalog().restore_log(self.store(), dry_run)?)
    }

    /// Has nobody else remove, and fails where somebody writes. A writer that begins meanwhile finds a log that it
    /// cannot write to, or that another commit has the number of its own.
    fn alone(&self, dry_run: bool) -> Result<Option<Removal<'_>>, ArchiveError> {
        if dry_run {
            return Ok(None);
        }
        let removal = Removal::begin(self)?;
        match removal.writer()? {
            Some(holder) => Err(ArchiveError::Written { holder }),
            None => Ok(Some(removal)),
        }
    }
}
