//! Compiles the test programs and runs them.
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a program may run before it counts as hanging.
const RUN_TIMEOUT: Duration = Duration::from_secs(120);

/// The root of the checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether a program can be run at all; otherwise says that a test is skipped.
pub fn have(program: &str) -> bool {
    let there =
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("SKIPPED 1 test: {program} is not installed");
    }
    there
}

/// A directory with the shared library under its name and room for programs.
pub struct Workshop {
    directory: tempfile::TempDir,
}

impl Workshop {
    /// Makes one; `None`, with a line that says so, without a compiler.
    pub fn open() -> Option<Self> {
        if !have("g++") {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let built = built().join("libsheaf_capi.so");
        let built =
            if built.exists() { built } else { self::built().join("deps/libsheaf_capi.so") };
        for name in ["libsheaf.so", "libsheaf.so.0"] {
            std::os::unix::fs::symlink(&built, directory.path().join(name)).unwrap();
        }
        Some(Self { directory })
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Compiles `tests/cpp/NAME.cpp` (or `.c`) with every warning an error.
    pub fn compile(&self, name: &str, standard: &str, more: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp").join(name);
        let is_c = source.extension().is_some_and(|extension| extension == "c");
        let output = self.path(source.file_stem().unwrap().to_str().unwrap());
        let compiled = Command::new(if is_c { "gcc" } else { "g++" })
            .arg(format!("-std={standard}"))
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
            .arg(root().join("include"))
            .arg("-o")
            .arg(&output)
            .arg(&source)
            .args(more)
            .arg(format!("-L{}", self.directory.path().display()))
            .arg(format!("-Wl,-rpath,{}", self.directory.path().display()))
            .arg("-lsheaf")
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{name}: {}", String::from_utf8_lossy(&compiled.stderr));
        output
    }

    /// A topology file of this machine, in levels: `[4, 4]` is 1x4x4.
    pub fn topology(&self, levels: &[usize]) -> PathBuf {
        let mut text = String::new();
        let (mut first, mut width) = (0, 1);
        for &children in levels {
            for parent in 0..width {
                let _ = write!(text, "localhost:{} =>", first + parent);
                for child in 0..children {
                    let _ =
                        write!(text, " localhost:{}", first + width + parent * children + child);
                }
                text.push_str(" ;\n");
            }
            first += width;
            width *= children;
        }
        let name: Vec<String> = levels.iter().map(ToString::to_string).collect();
        self.write(&format!("topology-{}", name.join("x")), &text)
    }
}

/// Where cargo puts what it builds.
pub fn built() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_mrnet_commnode")).parent().unwrap().to_path_buf()
}

/// A front end that is ready to run.
pub fn front(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("MRNET_COMM_PATH", env!("CARGO_BIN_EXE_mrnet_commnode")).stdin(Stdio::null());
    command
}

/// Ends a program that is still running when the test is over.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program to its end; what it printed must not be more than a pipe holds.
pub fn run(command: &mut Command) -> Output {
    let mut child = Guard(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let deadline = Instant::now() + RUN_TIMEOUT;
    let status = loop {
        if let Some(status) = child.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "{command:?} hangs");
        std::thread::park_timeout(Duration::from_millis(5));
    };
    let read = |pipe: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    };
    let stdout = read(child.0.stdout.as_mut().unwrap());
    let stderr = read(child.0.stderr.as_mut().unwrap());
    Output { status, stdout, stderr }
}

/// [`run`] of a program that must succeed; gives what it printed.
pub fn succeeds(command: &mut Command) -> String {
    let output = run(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}{errors}", output.status);
    text
}
