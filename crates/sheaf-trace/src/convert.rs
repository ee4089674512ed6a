//! From spools to the files of a store.
use crate::reader::open_file;
use crate::store::{TraceStore, file_name};
use sheaf_log::spool::{self, SpoolContent};
use sheaf_log::{TraceError, TraceNames};
use std::path::Path;

/// Stores the rows of a spool as the file of its number, and takes it away. Returns how many
/// operations are stored, and what else was in it, with the numbers that its names have in `names`.
/// One whose file is there already, and can be read, has been stored and was about to be taken away.
/// One that is damaged is kept under another name.
///
/// # Errors
/// When it cannot be read, or its rows not be stored: it stays.
pub(crate) fn convert_spool(
    directory: &Path,
    number: u32,
    names: &mut TraceNames,
) -> Result<(u64, SpoolContent), TraceError> {
    let path = spool::path_of(directory, number);
    let is_stored = TraceStore::has_file(directory, number)? && is_whole(directory, number)?;
    let mut store = TraceStore::numbered(directory, number);
    let mut content =
        spool::read(
            &path,
            names,
            |rows, names| if is_stored { Ok(()) } else { store.push(rows, names) },
        )?;
    store.finish(names)?;
    if content.is_damaged {
        let kept = spool::keep_damaged(directory, number)?;
        let why = content.cut.take().unwrap_or_default();
        content.cut = Some(format!(
            "{why}, and nothing behind it is in the trace: it is kept as {}",
            kept.display()
        ));
    } else {
        // Only now: the rows are in a file that has its own name.
        std::fs::remove_file(&path).map_err(TraceError::io(&path))?;
    }
    Ok((store.kept(), content))
}

/// Whether the file of a number can be read; a damaged one is made anew.
fn is_whole(directory: &Path, number: u32) -> Result<bool, TraceError> {
    match open_file(&directory.join(file_name(number))) {
        Ok(_) => Ok(true),
        Err(TraceError::Damaged { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
