//! Programs in C and C++, compiled against the headers and the shared library.
use crate::{checkout, program};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with the shared library under its name and room for programs.
#[derive(Debug)]
pub struct Workshop {
    directory: tempfile::TempDir,
    sources: PathBuf,
}

impl Workshop {
    /// Makes one for programs of `sources`; `built` is where cargo puts what it builds. `None`,
    /// with a line that says so, without a compiler.
    ///
    /// # Panics
    /// When the library is not built.
    #[must_use]
    pub fn open(sources: PathBuf, built: &Path) -> Option<Self> {
        if !program::have("g++") {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let made = library(built).expect("libsheaf is built with the tests");
        for name in ["libsheaf.so", "libsheaf.so.0"] {
            std::os::unix::fs::symlink(&made, directory.path().join(name)).unwrap();
        }
        Some(Self { directory, sources })
    }

    /// A path in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Compiles `NAME.cpp` (or `.c`) with every warning an error.
    ///
    /// # Panics
    /// With what the compiler says.
    pub fn compile(&self, name: &str, standard: &str, more: &[&str]) -> PathBuf {
        let source = self.sources.join(name);
        let is_c = source.extension().is_some_and(|extension| extension == "c");
        let output = self.path(source.file_stem().unwrap().to_str().unwrap());
        let here = self.directory.path().display();
        let compiled = Command::new(if is_c { "gcc" } else { "g++" })
            .arg(format!("-std={standard}"))
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"])
            .arg("-I")
            .arg(checkout().join("include"))
            .arg("-I")
            .arg(checkout().join("crates/sheaf-mrnet/include"))
            .arg("-o")
            .arg(&output)
            .arg(&source)
            .args(more)
            .arg(format!("-L{here}"))
            .arg(format!("-Wl,-rpath,{here}"))
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
                    let number = first + width + parent * children + child;
                    let _ = write!(text, " localhost:{number}");
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

/// The library as it was built last: alone, or for a crate that depends on it.
fn library(built: &Path) -> Option<PathBuf> {
    let places = ["liblibsheaf.so", "deps/liblibsheaf.so"].map(|name| built.join(name));
    let age = |path: &PathBuf| std::fs::metadata(path).and_then(|data| data.modified()).ok();
    places.into_iter().filter(|path| path.exists()).max_by_key(age)
}
