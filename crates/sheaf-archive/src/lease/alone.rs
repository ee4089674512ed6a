//! Commands that change the log itself: nobody may write to the archive meanwhile.
use super::Removal;
use crate::archive::{Archive, ArchiveError};
use crate::catalog::{
    Catalog, CatalogError, RestoredLog, begin_changing, drop_log_behind, end_changing, is_planned,
};

impl Archive {
    /// As [`drop_log`](crate::drop_log), while no other command writes to the archive.
    ///
    /// # Errors
    /// As [`drop_log`](crate::drop_log); where another command writes or removes.
    pub fn drop_log(&self, from: u64, dry_run: bool) -> Result<u64, ArchiveError> {
        self.alone(dry_run, |catalog| {
            // What was begun by a plan is done by it.
            if is_planned(self.store())? {
                return Err(CatalogError::Restoring);
            }
            drop_log_behind(self.store(), catalog.applied()?, from, dry_run)
        })
    }

    /// As [`Catalog::restore_log`](crate::Catalog::restore_log), while no other command writes to the
    /// archive.
    ///
    /// # Errors
    /// As there; where another command writes or removes.
    pub fn restore_log(&self, dry_run: bool) -> Result<RestoredLog, ArchiveError> {
        self.alone(dry_run, |catalog| catalog.restore_log(self.store(), dry_run))
    }

    /// Forgets commits from `from` on that the catalog knows, where the store has lost them and all that they stored.
    /// How many there are.
    ///
    /// # Errors
    /// When something of that is there, the store or the catalog cannot be used, or another command writes or removes.
    pub fn forget_lost(&self, from: u64, dry_run: bool) -> Result<u64, ArchiveError> {
        self.alone(dry_run, |catalog| {
            if is_planned(self.store())? {
                return Err(CatalogError::Restoring);
            }
            match catalog.restore_log(self.store(), true) {
                Err(CatalogError::Gone { number, last, .. }) if number == from => {
                    if !dry_run {
                        catalog.make_again(self.store())?;
                    }
                    Ok(last + 1 - number)
                }
                Ok(_) => Err(CatalogError::InOrder { number: from, fault: None }),
                // Something else is wrong, perhaps of a later commit: that is not what is given up here.
                Err(error) if error.is_of_log() && !matches!(error, CatalogError::Gone { .. }) => {
                    Err(CatalogError::InOrder { number: from, fault: None })
                }
                Err(error) => Err(error),
            }
        })
    }

    /// Changes the log while nobody else removes, and nobody writes: it is said that it is being changed before it is
    /// looked whether somebody writes, and who begins to write looks for that when that can be seen.
    fn alone<T>(
        &self,
        dry_run: bool,
        change: impl FnOnce(&mut Catalog) -> Result<T, CatalogError>,
    ) -> Result<T, ArchiveError> {
        if dry_run {
            return Ok(change(&mut self.catalog())?);
        }
        let (removal, store) = (Removal::begin(self)?, self.store());
        begin_changing(store)?;
        let changed = match removal.writer() {
            Err(error) => Err(error.into()),
            Ok(Some(holder)) => Err(ArchiveError::Written { holder }),
            Ok(None) => change(&mut self.catalog()).map_err(Into::into),
        };
        // What a plan has begun is to be done before anything else is.
        if changed.is_ok() || !is_planned(store)? {
            end_changing(store)?;
        }
        changed
    }
}
