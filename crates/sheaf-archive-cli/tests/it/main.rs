//! The archive, as a user runs it.
mod archive;
mod archive_catalog;
mod archive_change;
mod archive_find;
mod archive_gnu;
mod archive_hosts;
mod archive_hosts_work;
mod archive_limits;
mod archive_local;
mod archive_local_copy;
mod archive_local_grep;
mod archive_lost;
mod archive_names;
mod archive_options;
#[cfg(feature = "s3")]
mod archive_restore;
mod archive_s3;
mod archive_versions;
mod companion;
