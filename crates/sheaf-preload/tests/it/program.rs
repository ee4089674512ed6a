//! Programs that are traced, and what their segments hold.
use sheaf_recorder::{IoOp, Read, Reader, RingRecord, flag};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// The library that this package makes.
pub fn library() -> PathBuf {
    // Beside this test: what lies above it may be of an earlier build.
    let path = std::env::current_exe().unwrap().with_file_name("libsheaf_preload.so");
    assert!(path.exists(), "{} is built with this test", path.display());
    path
}

/// What one process left behind.
pub struct Traced {
    pub pid: u32,
    pub command: String,
    pub read: Read,
}

impl Traced {
    /// Records of an operation on files whose names end so.
    pub fn of(&self, op: IoOp, end: &str) -> Vec<RingRecord> {
        let named = |record: &&RingRecord| {
            let name = self.read.names.get(&record.file);
            name.is_some_and(|name| name.ends_with(end.as_bytes()))
        };
        let those = self.read.records.iter().filter(|record| record.op == Some(op));
        those.filter(named).copied().collect()
    }

    /// How many of an operation on such files there are, how many of them failed, and how many
    /// bytes the others moved.
    pub fn sum(&self, op: IoOp, end: &str) -> (usize, usize, u64) {
        let those = self.of(op, end);
        let (failed, done): (Vec<RingRecord>, Vec<RingRecord>) =
            those.iter().copied().partition(|record| record.flags & flag::FAILED != 0);
        (those.len(), failed.len(), done.iter().map(|record| record.bytes).sum())
    }
}

/// A directory in memory for segments, with what is run in it.
pub struct Trace {
    pub directory: TempDir,
}

impl Trace {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir_in("/dev/shm").unwrap() }
    }

    /// A program that is traced, once it is run.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("LD_PRELOAD", library()).env("SHEAF_TRACE_DIR", self.directory.path());
        command
    }

    /// What all processes left behind that have ended, in the order they began.
    pub fn traced(&self) -> Vec<Traced> {
        traced_in(self.directory.path())
    }
}

/// What all processes left behind in a directory, in the order they began.
pub fn traced_in(directory: &Path) -> Vec<Traced> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut all: Vec<(u64, Traced)> = entries
        .map(|entry| {
            let mut reader = Reader::open(&entry.unwrap().path()).unwrap();
            let process = reader.process().clone();
            let command = String::from_utf8(process.command).unwrap().replace('\0', " ");
            let mut read = reader.read();
            read.join_names();
            (process.made, Traced { pid: process.pid, command, read })
        })
        .collect();
    all.sort_by_key(|(made, _)| *made);
    all.into_iter().map(|(_, traced)| traced).collect()
}

/// A compiled program of C; `None` without a compiler, which is said.
pub fn compile(source: &str, options: &[&str], into: &Path) -> Option<PathBuf> {
    let (file, program) = (into.join("program.c"), into.join("program"));
    std::fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-w", "-o"]).arg(&program).arg(&file).args(options);
    match cc.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(program)
        }
        Err(_) => {
            println!("skipped: this machine has no C compiler");
            None
        }
    }
}

/// A program's output, after it has ended well.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {complaint}", output.status);
    output
}
