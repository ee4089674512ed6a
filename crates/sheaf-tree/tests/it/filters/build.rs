//! Compiles filters into shared objects and WebAssembly modules.
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// What a source becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Native,
    Wasm,
}

pub const KINDS: [Kind; 2] = [Kind::Native, Kind::Wasm];

type Built = BTreeMap<(&'static str, Kind), Option<Vec<u8>>>;

/// The module that `source`, below the workspace, makes; `None` where its compiler is missing,
/// which is said. Each is compiled once.
pub fn module(source: &'static str, kind: Kind) -> Option<Vec<u8>> {
    static BUILT: OnceLock<Mutex<Built>> = OnceLock::new();
    let mut built = BUILT.get_or_init(Mutex::default).lock().unwrap();
    let module = built.entry((source, kind)).or_insert_with(|| compile(source, kind)).clone();
    if module.is_none() {
        let why =
            format!("no compiler makes a {kind:?} module of {source} here that this build runs");
        let _ = writeln!(std::io::stderr(), "SKIPPED 1 test: {why}");
    }
    module
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn compile(source: &str, kind: Kind) -> Option<Vec<u8>> {
    let from = workspace().join(source);
    let scratch = tempfile::tempdir().unwrap();
    let into = scratch.path().join("module");
    let include = workspace().join("include");
    let language = from.extension().unwrap().to_str().unwrap();
    let (compiler, arguments): (_, &[&str]) = match (language, kind) {
        ("c", Kind::Native) => ("cc", &["-O2", "-shared", "-fPIC"]),
        ("c", Kind::Wasm) => ("clang", &C_WASM),
        ("cpp", Kind::Native) => ("c++", &["-std=c++17", "-O2", "-shared", "-fPIC"]),
        ("cpp", Kind::Wasm) => ("clang++", &CXX_WASM),
        ("rs", Kind::Native) => ("rustc", &RUST),
        ("rs", Kind::Wasm) => ("rustc", &RUST_WASM),
        _ => unreachable!("filters are written in C, C++ and Rust"),
    };
    if !can(compiler, language, kind, scratch.path()) {
        return None;
    }
    let mut command = Command::new(compiler);
    command.args(arguments).arg(&from).arg("-o").arg(&into);
    if language != "rs" {
        command.arg("-I").arg(include);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    Some(std::fs::read(&into).unwrap())
}

/// Without debug information, which is four fifths of a module: the libraries bring theirs.
const C_WASM: [&str; 4] =
    ["--target=wasm32-wasi", "-mexec-model=reactor", "-O2", "-Wl,--strip-all"];
const CXX_WASM: [&str; 6] = [
    "--target=wasm32-wasi",
    "-mexec-model=reactor",
    "-fno-exceptions",
    "-std=c++17",
    "-O2",
    "-Wl,--strip-all",
];
const RUST: [&str; 8] = [
    "--edition",
    "2024",
    "--crate-type",
    "cdylib",
    "-Cpanic=abort",
    "-Copt-level=2",
    "-Cstrip=symbols",
    "-Cdebuginfo=0",
];
const RUST_WASM: [&str; 10] = [
    "--edition",
    "2024",
    "--crate-type",
    "cdylib",
    "-Cpanic=abort",
    "-Copt-level=2",
    "-Cstrip=symbols",
    "-Cdebuginfo=0",
    "--target",
    "wasm32-wasip1",
];

/// Whether the compiler is there, with what it needs for an empty program of this kind.
fn can(compiler: &str, language: &str, kind: Kind, scratch: &Path) -> bool {
    let (probe, out) = (scratch.join(format!("probe.{language}")), scratch.join("probe"));
    let text = if language == "rs" {
        ""
    } else {
        "#include <stdlib.h>\nvoid *probe(void) { return malloc(1); }\n"
    };
    std::fs::write(&probe, text).unwrap();
    let arguments: &[&str] = match (language, kind) {
        ("rs", Kind::Native) => &["--crate-type", "cdylib"],
        ("rs", Kind::Wasm) => &["--crate-type", "cdylib", "--target", "wasm32-wasip1"],
        (_, Kind::Native) => &["-shared", "-fPIC"],
        (_, Kind::Wasm) => &["--target=wasm32-wasi", "-mexec-model=reactor"],
    };
    let output = Command::new(compiler).args(arguments).arg(&probe).arg("-o").arg(&out).output();
    output.is_ok_and(|output| output.status.success())
}
