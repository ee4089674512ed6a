//! Commands that change the log itself: nobody may write to the archive meanwhile.
use super::Removal;
use crate::archive::{Archive, ArchiveError};
use crate::catalog::{Catalog, CatalogError, RestoredLog, drop_log_behind};

impl Archive {
    /// As [`drop_log`](crate::drop_log), while no other command writes to the archive.
    ///
    /// # Errors
    /// As [`drop_log`](crate::drop_log); where another command writes or removes.
    pub fn drop_log(&self, from: u64, dry_run: bool) -> Result<u64, ArchiveError> {
        let _alone = self.alone(dry_run)?;
        Catalog::check_restored(self.store())?;
        let known = self.catalog().applied()?;
        Ok(drop_log_behind(self.store(), known, from, dry_run)?)
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

    /// Forgets commits from `from` on that the catalog knows, where the store has lost them and all that they stored.
    /// How many there are.
    ///
    /// # Errors
    /// When something of that is there, the store or the catalog cannot be used, or another command writes or removes.
    pub fn forget_lost(&self, from: u64, dry_run: bool) -> Result<u64, ArchiveError> {
        let _alone = self.alone(dry_run)?;
        Catalog::check_restored(self.store())?;
        let mut catalog = self.catalog();
        match catalog.restore_log(self.store(), true) {
            Err(CatalogError::Gone { number, last, .. }) if number == from => {
                if !dry_run {
                    catalog.make_again(self.store())?;
                }
                Ok(last + 1 - number)
            }
            Ok(_) => Err(CatalogError::InOrder { number: from, fault: None }.into()),
            // Something else is wrong, perhaps of a later commit: that is not what is given up here.
            Err(error) if error.is_of_log() && !matches!(error, CatalogError::Gone { .. }) => {
                Err(CatalogError::InOrder { number: from, fault: None }.into())
            }
            Err(error) => Err(error.into()),
        }
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
