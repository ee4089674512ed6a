//! What each server says of itself: the numbers of its process.
use crate::target::ToolError;
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, RangeSet};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool, Tools};
use sheaf_group::{Client, Outcome};

const NAME: &str = "about";

/// A server's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Process number.
    pub pid: u32,
    /// Resident memory in bytes; 0 where the kernel does not say.
    pub rss_bytes: u64,
    /// Processor time used so far, in microseconds.
    pub cpu_us: u64,
}

/// Makes the tool known to servers.
pub(crate) fn register(tools: &mut Tools) {
    tools.register(NAME, AskedAbout);
}

struct AskedAbout;

impl Tool for AskedAbout {
    fn only_reads(&self) -> bool {
        true
    }

    fn start(&self, _: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        Ok(Box::new(Self))
    }
}

impl Running for AskedAbout {
    fn step(&mut self, answer: &mut Reply, _: &Host) -> Step {
        // A server that cannot be encoded says nothing, and is missing from the answer.
        if let Ok(bytes) = postcard::to_stdvec(&this_process()) {
            answer.bytes().extend_from_slice(&bytes);
        }
        Step::Done
    }
}

fn this_process() -> About {
    let page = rustix::param::page_size() as u64;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let cpu_us = u64::try_from(spent.tv_sec).unwrap_or(0) * 1_000_000
        + u64::try_from(spent.tv_nsec).unwrap_or(0) / 1000;
    About { pid: std::process::id(), rss_bytes: resident.unwrap_or(0) * page, cpu_us }
}

/// Asks the servers of `members`. Gives each one's answer by leaf.
///
/// # Errors
/// Those of the group operation. A host whose answer does not decode has failed.
pub async fn about(
    client: &Client,
    members: &RangeSet,
) -> Result<(Vec<(u32, About)>, Outcome), ToolError> {
    let mut call = client.call(members, NAME, b"")?;
    let mut servers = Vec::new();
    for class in call.next_bodies().await? {
        let Some(body) = class.body else { continue };
        let Ok(about) = postcard::from_bytes::<About>(&body) else {
            call.refuse(&class.members.leaves());
            continue;
        };
        servers.extend(class.members.leaves().iter().map(|leaf| (leaf, about)));
    }
    servers.sort_unstable_by_key(|(leaf, _)| *leaf);
    Ok((servers, call.finish()))
}
