//! Where this crate's programs are, and front ends that find them.
use sheaf_testing::Workshop;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where cargo puts what it builds.
pub fn built() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_mrnet_commnode")).parent().unwrap().to_path_buf()
}

/// Where the programs of the tests are.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp")
}

/// A workshop for them.
pub fn workshop() -> Option<Workshop> {
    Workshop::open(sources(), &built())
}

/// A front end that is ready to run.
pub fn front(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("MRNET_COMM_PATH", env!("CARGO_BIN_EXE_mrnet_commnode")).stdin(Stdio::null());
    command
}
