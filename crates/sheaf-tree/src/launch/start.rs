//! How nodes are started: forked, as processes, by ssh or Slurm, or inside this process.
pub(super) mod brood;
pub(super) mod embedded;
pub(super) mod family;
pub(super) mod hosts;
pub(super) mod inherited;
pub(super) mod line;
pub(super) mod logins;
pub(super) mod plan;
pub(super) mod processes;
pub(super) mod push;
pub(super) mod shell;
pub(super) mod slurm;
pub(super) mod spawn;
pub mod ssh;
