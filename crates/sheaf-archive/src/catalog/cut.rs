//! Giving up the end of a log that is damaged, where no catalog and no copy knows what it said.
use super::{CatalogError, log, snapshot};
use crate::archive::unwritten;
use crate::repair::removed;
use crate::store::{Store, StoreKey};
use crate::version::marks_from;
use sheaf_core::Errno;
use std::io::Write;

/// What the keys of commits that were given up begin with.
const DROPPED: &str = "dropped";
/// Numbers without a commit at which something else is looked for: a name of the store may be any number.
const OTHERS_MAX: usize = 1 << 12;
/// What the keys of their versions end with.
pub(super) const VERSION_KEPT: &str = ".version";

/// Takes the commits of a log away from `from` on, where that is the first that is damaged or missing: the
/// archive is what it was before it, and can be written again. How many there are.
///
/// What they say is kept in the store, as `dropped/NUMBER-DIGEST`, and so are the marks of their versions. They
/// go from the last to the first, so that one that was broken off may be done again. Nobody may write to the
/// archive meanwhile: a writer whose catalog knows the damaged commit could.
///
/// # Errors
/// When another commit is the first that is damaged or missing, or none is, a later Sheaf has written it,
/// or the store cannot be read or written.
pub fn drop_log(store: &dyn Store, from: u64, dry_run: bool) -> Result<u64, CatalogError> {
    drop_log_behind(store, 0, from, dry_run)
}

/// The same, where a catalog knows all up to a commit: what is lost of that is written again by others.
pub(crate) fn drop_log_behind(
    store: &dyn Store,
    known: u64,
    from: u64,
    dry_run: bool,
) -> Result<u64, CatalogError> {
    let mut first = None;
    log::faults(store, &mut |fault| {
        if fault.commit().is_none_or(|number| number > known || number == from) {
            first.get_or_insert(fault);
        }
    })?;
    match first {
        Some(fault @ CatalogError::Version { .. }) => return Err(fault),
        Some(fault) if fault.commit() == Some(from) => {}
        fault => {
            let fault = fault.map(|fault| fault.to_string());
            return Err(CatalogError::InOrder { number: from, fault });
        }
    }
    let mut numbers = log::numbers(store)?;
    numbers.retain(|number| *number >= from);
    if !dry_run {
        let marks = marks_from(store, from)?;
        for mark in &marks {
            keep(store, mark, VERSION_KEPT)?;
        }
        drop_commits(store, from, &numbers, &[])?;
        // As long as one of these is there, the log is seen to be without its end.
        snapshot::remove(store, Some(from), false)?;
        for mark in &marks {
            removed(store.remove(mark))?;
        }
    }
    Ok(numbers.len() as u64)
}

/// Keeps what commits say, and takes them away: from `from` on there are these, and others that stay.
pub(super) fn drop_commits(
    store: &dyn Store,
    from: u64,
    numbers: &[u64],
    stay: &[u64],
) -> Result<(), CatalogError> {
    for &number in numbers {
        keep(store, &log::key(number), "")?;
    }
    // The list has regular files alone, and a pipe would be in the way of a later commit. What cannot be removed
    // is found before anything is.
    let mut others: Vec<u64> = Vec::new();
    let mut number = from;
    while others.len() < OTHERS_MAX
        && (numbers.last().is_some_and(|last| number < *last) || log::is_taken(store, number)?)
    {
        if numbers.binary_search(&number).is_err() && stay.binary_search(&number).is_err() {
            others.push(number);
        }
        number += 1;
    }
    for number in others {
        removed(store.remove(&log::key(number)))?;
    }
    for &number in numbers.iter().rev() {
        removed(store.remove(&log::key(number)))?;
    }
    Ok(())
}

/// Keeps what an object says, whatever that is.
pub(super) fn keep(store: &dyn Store, key: &StoreKey, kind: &str) -> Result<(), CatalogError> {
    let bytes = match store.size(key).and_then(|bytes| store.read(key, 0..bytes)) {
        // What is no file says nothing.
        Err(error) if matches!(error.errno, Errno::BADMSG | Errno::NOENT) => return Ok(()),
        bytes => bytes?,
    };
    let digest = blake3::hash(&bytes).to_hex();
    let name = key.as_str().rsplit('/').next().unwrap_or_default();
    let kept = StoreKey::new(&format!("{DROPPED}/{name}-{}{kind}", &digest[..16]))
        .expect("names of objects are parts of a key");
    let mut object = match store.create(&kept) {
        Err(error) if error.errno == Errno::EXIST => return Ok(()),
        object => object?,
    };
    object.write_all(&bytes).map_err(|error| unwritten(&kept, &error))?;
    match object.commit() {
        // The same was kept by one that was broken off.
        Err(error) if error.errno == Errno::EXIST => Ok(()),
        committed => Ok(committed?),
    }
}
