//! Copying to each host what is its own.
use super::options::{CopyOptions, Progress};
use super::put::{Pace, Put, check_names, put_at_pace};
use super::source::Source;
use crate::target::{Target, ToolError};
use sheaf_core::RangeSet;
use sheaf_file::PathError;
use sheaf_group::{Client, Outcome};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Hosts that are sent something at a time, each by a thread that reads for it.
const HOSTS_AT_ONCE: usize = 16;

/// What one host gets.
#[derive(Debug, Clone)]
pub struct HostShare {
    /// The leaf that it is.
    pub leaf: u32,
    /// Files and directories of this machine.
    pub sources: Vec<PathBuf>,
}

/// What could not be copied to a host.
#[derive(Debug)]
pub enum ShareError {
    /// A file of this machine cannot be read.
    Source(PathError),
    /// The copy as a whole.
    Copy(ToolError),
}

/// What copying to each host came to.
#[derive(Debug)]
pub struct EachPut {
    /// Of all hosts whose sources could be read, as [`put`](super::put) says it.
    pub put: Put,
    /// Leaves that did not get all, and why. They are in no outcome.
    pub failed: Vec<(u32, ShareError)>,
}

/// Copies to the path on each host its own sources, as [`put`](super::put) does to all. Who fails costs the
/// others nothing.
///
/// # Errors
/// [`ToolError::Usage`] when two sources of a host would get one name, before anything is copied;
/// [`ToolError::Protocol`] for answers that do not decode.
pub async fn put_each(
    client: &Client,
    shares: Vec<HostShare>,
    path: &str,
    options: &CopyOptions,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<EachPut, ToolError> {
    for HostShare { sources, .. } in &shares {
        let sources: Vec<Source> = sources.iter().cloned().map(Source::Path).collect();
        check_names(&sources, options)?;
    }
    let (turns, mut running) = (Arc::new(Semaphore::new(HOSTS_AT_ONCE)), JoinSet::new());
    let pace = Pace::new(options.rate_max);
    for HostShare { leaf, sources } in shares {
        let (client, options, turns) = (client.clone(), options.clone(), Arc::clone(&turns));
        let pace = pace.clone();
        let target = Target { members: RangeSet::single(leaf), path: path.to_owned() };
        running.spawn(async move {
            // It is closed by nobody.
            let _turn = turns.acquire_owned().await;
            let sources = sources.into_iter().map(Source::Path).collect();
            (leaf, put_at_pace(&client, sources, &target, &options, &pace, &mut |_| {}).await)
        });
    }
    let mut all = EachPut { put: Put::nothing(), failed: Vec::new() };
    while let Some(one) = running.join_next().await {
        // A task that panicked has said so, and its host is not known.
        let (leaf, one) = one.map_err(|error| {
            tracing::error!("a copy to a host broke off: {error}");
            ToolError::Protocol
        })?;
        match one {
            Ok(mut one) => {
                let unread = std::mem::take(&mut one.errors);
                if !unread.is_empty() {
                    // It has not all that it should have, whatever it says itself.
                    one.outcome = Outcome::default();
                }
                all.failed
                    .extend(unread.into_iter().map(|error| (leaf, ShareError::Source(error))));
                all.put.take_in(one)?;
            }
            Err(error) => all.failed.push((leaf, ShareError::Copy(error))),
        }
        progress(all.put.sent);
    }
    Ok(all)
}
