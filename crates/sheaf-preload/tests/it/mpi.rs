//! MPI-IO of the MPIs that this machine has: what ranks of programs in C and in Fortran did.
use crate::program::{Trace, Traced, library};
use crate::symbols::exports;
use sheaf_recorder::{IoLayer, IoOp, RingRecord, flag};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const RANKS: u64 = 4;

/// An MPI, by the end of its programs' names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mpi {
    Mpich,
    /// Open MPI with its own I/O, and with that of MPICH.
    Ompio,
    Romio,
}

impl Mpi {
    fn end(self) -> &'static str {
        if self == Self::Mpich { "mpich" } else { "openmpi" }
    }

    /// Compiles a program; `None` without this MPI, which is said.
    fn compile(self, source: &str, options: &[&str], into: &Path) -> Option<PathBuf> {
        let is_fortran = source.ends_with(".f90");
        let compiler = format!("{}.{}", if is_fortran { "mpif90" } else { "mpicc" }, self.end());
        let program = into.join("program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/mpi").join(source);
        let mut command = Command::new(&compiler);
        command.args(options).args(is_fortran.then_some("-cpp")).arg("-w").arg("-o").arg(&program);
        let runner = self.runner();
        if Command::new(&runner).arg("--version").output().is_err() {
            return skipped(&format!("this machine has no {runner}"));
        }
        match command.arg(source).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                // The wrapper may be there without the compiler behind it.
                if !output.status.success() && said.contains("not find") {
                    return skipped(&format!("{compiler}: {said}"));
                }
                assert!(output.status.success(), "{compiler}: {said}");
                Some(program)
            }
            Err(_) => skipped(&format!("this machine has no {compiler}")),
        }
    }

    fn runner(self) -> String {
        format!("mpirun.{}", self.end())
    }

    /// Runs ranks of it, traced or not.
    fn run(self, program: &[&Path], trace: Option<&Trace>) -> Output {
        let place = tempfile::tempdir().unwrap();
        let mut run = Command::new("timeout");
        run.arg("100").arg(self.runner()).current_dir(place.path());
        if self == Self::Mpich {
            run.args(["-launcher", "fork"]);
        } else {
            let io = if self == Self::Ompio { "ompio" } else { "romio321" };
            run.args(["--allow-run-as-root", "--oversubscribe", "--mca", "io", io]);
            run.args(["--mca", "plm", "isolated", "--mca", "btl", "self,vader"]);
        }
        run.args(["-n", &RANKS.to_string(), "env"]);
        if let Some(trace) = trace {
            run.arg(format!("LD_PRELOAD={}", library().display()));
            run.arg(format!("SHEAF_TRACE_DIR={}", trace.directory.path().display()));
        }
        run.args(program).output().unwrap()
    }
}

/// Said past the harness, which keeps what a test prints.
fn skipped<T>(why: &str) -> Option<T> {
    let _ = writeln!(std::io::stderr(), "SKIPPED 1 test: {why}");
    None
}

/// What all ranks of a program did.
struct Ranks(Vec<Traced>);

impl Ranks {
    /// Runs it with and without the library, which makes no difference.
    fn of(mpi: Mpi, program: &[&Path]) -> Self {
        let trace = Trace::new();
        let (plain, traced) = (mpi.run(program, None), mpi.run(program, Some(&trace)));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(plain.status.success(), "{mpi:?}: {}{}", text(&plain.stdout), text(&plain.stderr));
        assert_eq!(text(&traced.stdout), text(&plain.stdout), "{}", text(&traced.stderr));
        assert_eq!(traced.status, plain.status, "{mpi:?}: {}", text(&traced.stderr));
        let name = program[0].to_string_lossy().into_owned();
        let mut ranks = trace.traced();
        ranks.retain(|traced| traced.command.starts_with(&name));
        assert_eq!(ranks.len() as u64, RANKS, "{mpi:?}");
        for rank in &ranks {
            assert_eq!((rank.read.lost, rank.read.unplaced, rank.read.names_lost), (0, 0, 0));
        }
        Self(ranks)
    }

    fn of_layer(&self, layer: IoLayer, op: IoOp, file: &str) -> Vec<RingRecord> {
        let all = self.0.iter().flat_map(|rank| rank.of(op, file));
        all.filter(|record| record.layer == layer).collect()
    }

    /// Calls of MPI-IO, how many failed, and what those that did not asked for and moved.
    fn sum(&self, op: IoOp, file: &str) -> (usize, usize, u64, u64) {
        let all = self.of_layer(IoLayer::Mpi, op, file);
        assert!(all.iter().all(|record| record.flags & flag::NESTED == 0), "{} {file}", op.word());
        let (failed, done): (Vec<RingRecord>, Vec<RingRecord>) =
            all.iter().copied().partition(|record| record.flags & flag::FAILED != 0);
        let sum = |of: fn(&RingRecord) -> u64| done.iter().map(of).sum();
        (all.len(), failed.len(), sum(|record| record.asked), sum(|record| record.bytes))
    }

    fn check(&self, mpi: Mpi, expected: &[(IoOp, &str, usize, u64, u64)]) {
        for &(op, file, calls, asked, bytes) in expected {
            let sum = self.sum(op, file);
            assert_eq!(sum, (calls, 0, asked, bytes), "{mpi:?}: {} {file}", op.word());
        }
        let calls: usize = expected.iter().map(|(_, _, calls, ..)| calls).sum();
        let of_mpi =
            |record: &&RingRecord| record.layer == IoLayer::Mpi && record.flags & flag::FAILED == 0;
        let recorded = self.0.iter().flat_map(|rank| &rank.read.records).filter(of_mpi).count();
        assert_eq!(recorded, calls, "{mpi:?}: no other calls of MPI-IO are recorded");
    }

    /// The calls that these were made of are there, and are told apart from the program's own.
    fn check_below(&self, file: &str, writes: usize, bytes: u64) {
        for op in [IoOp::Open, IoOp::Write, IoOp::Read, IoOp::Close] {
            let below = self.of_layer(IoLayer::Posix, op, file);
            let nested = below.iter().all(|record| record.flags & flag::NESTED != 0);
            assert!(nested && !below.is_empty(), "{} {file}: {below:?}", op.word());
        }
        let below = self.of_layer(IoLayer::Posix, IoOp::Write, file);
        let written: u64 = below.iter().map(|record| record.bytes).sum();
        assert!(below.len() >= writes && written >= bytes, "{} {written}", below.len());
    }
}

fn check_c(mpi: Mpi, ranks: &Ranks) {
    let large = if mpi == Mpi::Mpich { 4 } else { 0 };
    let mut expected = vec![
        (IoOp::Open, "/data", 4, 0, 0),
        (IoOp::Allocate, "/data", 4, 4 * 4096, 0),
        (
            IoOp::Write,
            "/data",
            44 + large,
            4 * 1064 + 1024 * large as u64,
            4 * 1064 + 1024 * large as u64,
        ),
        (IoOp::Sync, "/data", 4, 0, 0),
        (IoOp::Stat, "/data", 4, 0, 0),
        (IoOp::Read, "/data", 24, 4 * 2112, 4 * 2112 - 512),
        (IoOp::SetView, "/data", 8, 0, 0),
        (IoOp::Seek, "/data", 4, 0, 0),
        (IoOp::AsyncWrite, "/data", 8, 4 * (1024 + 512), 0),
        (IoOp::AsyncRead, "/data", 8, 4 * (1024 + 256), 0),
        (IoOp::Wait, "/data", 8, 4 * (512 + 256), 4 * (512 + 256)),
        (IoOp::Close, "/data", 4, 0, 0),
        (IoOp::Open, "/shared", 4, 0, 0),
        (IoOp::Close, "/shared", 4, 0, 0),
        (IoOp::Unlink, "/shared", 1, 0, 0),
    ];
    if mpi != Mpi::Ompio {
        expected.extend([
            (IoOp::Truncate, "/data", 4, 4 * 2048, 0),
            (IoOp::Write, "/shared", 4, 4096, 4096),
            (IoOp::Seek, "/shared", 4, 0, 0),
            (IoOp::Read, "/shared", 4, 400, 400),
        ]);
    }
    ranks.check(mpi, &expected);
    assert_eq!(ranks.sum(IoOp::Open, "/nothing/there"), (4, 4, 0, 0));
    ranks.check_below("/data", 40, 160 + 4096);
    let reads = |rank: &Traced| {
        let mut reads = rank.of(IoOp::Read, "/data");
        reads.retain(|record| record.layer == IoLayer::Mpi);
        reads.iter().map(|r| (r.flags & flag::PLACED != 0).then_some(r.offset)).collect::<Vec<_>>()
    };
    for rank in &ranks.0 {
        let reads = reads(rank);
        let own = reads[1].unwrap();
        assert!(own % 1024 == 0 && own < 4096);
        assert_eq!(reads, [Some(own + 512), Some(own), None, Some(16 + 10 * 4), None, Some(0)]);
    }
}

#[test]
fn c_programs_are_recorded_as_they_were() {
    for mpi in [Mpi::Mpich, Mpi::Ompio, Mpi::Romio] {
        let place = tempfile::tempdir().unwrap();
        let options: &[&str] = match mpi {
            Mpi::Mpich => &["-DLARGE"],
            Mpi::Ompio => &["-DFEW"],
            Mpi::Romio => &[],
        };
        let Some(program) = mpi.compile("program.c", options, place.path()) else { continue };
        check_c(mpi, &Ranks::of(mpi, &[&program]));
    }
}

#[test]
fn fortran_programs_are_recorded_as_they_were() {
    for mpi in [Mpi::Mpich, Mpi::Ompio] {
        for options in [&[][..], &["-DF08"]] {
            let place = tempfile::tempdir().unwrap();
            let Some(program) = mpi.compile("program.f90", options, place.path()) else { continue };
            let ranks = Ranks::of(mpi, &[&program]);
            ranks.check(
                mpi,
                &[
                    (IoOp::Open, "/fortran", 4, 0, 0),
                    (IoOp::Write, "/fortran", 44, 4 * (220 + 1024), 4 * (220 + 1024)),
                    (IoOp::Sync, "/fortran", 4, 0, 0),
                    (IoOp::Read, "/fortran", 8, 4 * 2048, 4 * 2048 - 512),
                    (IoOp::SetView, "/fortran", 4, 0, 0),
                    (IoOp::Close, "/fortran", 4, 0, 0),
                    (IoOp::Unlink, "/fortran", 1, 0, 0),
                ],
            );
            ranks.check_below("/fortran", 40, 4 * 220 + 4096);
        }
    }
}

/// As interpreters load it: for a module alone, out of sight of all others.
#[test]
fn mpi_that_is_loaded_for_a_module_is_found() {
    const LOADER: &str = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            void *module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
            if (!module) return puts(dlerror()), 6;
            return ((int (*)(int, char **))dlsym(module, "work"))(argc, argv);
        }"#;
    let (mpi, place, other) =
        (Mpi::Mpich, tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(loader) = crate::program::compile(LOADER, &["-ldl"], other.path()) else { return };
    let options = ["-DLARGE", "-DLIBRARY", "-shared", "-fPIC"];
    let Some(module) = mpi.compile("program.c", &options, place.path()) else { return };
    check_c(mpi, &Ranks::of(mpi, &[&loader, &module]));
}

/// What is neither I/O nor tells of any.
const OTHERS: &[&str] = &[
    "c2f",
    "f2c",
    "call_errhandler",
    "create_errhandler",
    "get_errhandler",
    "set_errhandler",
    "get_amode",
    "get_atomicity",
    "set_atomicity",
    "get_byte_offset",
    "get_group",
    "get_info",
    "set_info",
    "get_position",
    "get_position_shared",
    "get_type_extent",
    "get_view",
];

#[test]
fn each_function_of_mpi_io_is_stood_in_for_or_named() {
    for (mpi, source) in [
        (Mpi::Mpich, "program.c"),
        (Mpi::Mpich, "program.f90"),
        (Mpi::Ompio, "program.c"),
        (Mpi::Ompio, "program.f90"),
    ] {
        let place = tempfile::tempdir().unwrap();
        let Some(program) = mpi.compile(source, &[], place.path()) else { continue };
        let output = Command::new("ldd").arg(program).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let words = said.split_whitespace();
        let libraries = words.filter(|word| word.starts_with('/') && word.contains("/libmpi"));
        let theirs: BTreeSet<String> =
            libraries.flat_map(|library| exports(Path::new(library))).collect();
        let ours = exports(&library());
        let left: Vec<&String> =
            theirs.iter().filter(|name| is_of_mpi_io(name) && !ours.contains(*name)).collect();
        assert!(left.is_empty(), "{mpi:?} {source}: {left:?}");
        let count = theirs.intersection(&ours).filter(|name| is_of_mpi_io(name)).count();
        assert!(count >= 44, "{mpi:?} {source}: {count}");
    }
}

/// Whether it does I/O for programs: those of C, and of Fortran in each spelling. Those for C from
/// Fortran (`…_f`, `…_f08`, `…f08ts`) call the others, and are called by name by nobody.
fn is_of_mpi_io(name: &str) -> bool {
    let starts = ["MPI_File_", "MPI_FILE_", "mpi_file_"];
    let Some(rest) = starts.iter().find_map(|start| name.strip_prefix(start)) else { return false };
    let rest = rest.trim_end_matches('_').to_ascii_lowercase();
    let is_inner = ["_f", "_f08", "_f08ts"].iter().any(|end| rest.ends_with(end));
    let rest = rest.strip_suffix("_c").unwrap_or(&rest);
    !is_inner && !OTHERS.contains(&rest)
}
