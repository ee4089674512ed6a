//! Copies the shared library of `sheaf-preload`, which the program contains, to `$OUT_DIR`.
//!
//! The library is built for the host of the build, as every build dependency is: the programs that are
//! recorded use its C library, even if `sheaf-trace` is linked with musl. For another processor, and
//! where the host's toolchain makes no shared libraries, the copy is empty.
use std::path::{Path, PathBuf};

/// The name that the program includes it by.
const COPY: &str = "libsheaf_trace.so";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name| std::env::var(name).expect("cargo sets it for build scripts");
    let copy = Path::new(&variable("OUT_DIR")).join(COPY);
    let architecture = |triple: String| triple.split('-').next().unwrap_or_default().to_owned();
    let is_native = architecture(variable("HOST")) == architecture(variable("TARGET"));
    let built = find().filter(|_| is_native);
    match &built {
        Some(library) => {
            println!("cargo::rerun-if-changed={}", library.display());
            std::fs::copy(library, &copy).expect("the target directory can be written to");
        }
        None => {
            println!(
                "cargo::warning=sheaf-trace is built without its preload library: sheaf trace record \
                 needs {COPY} next to it"
            );
            std::fs::write(&copy, []).expect("the target directory can be written to");
        }
    }
}

/// The newest library of that crate in the directory of dependencies of the host. Its name has a hash if the
/// sources are from a registry.
fn find() -> Option<PathBuf> {
    // This script is PROFILE/build/sheaf-trace-cli-HASH/build-script-build.
    let script = std::env::current_exe().ok()?;
    let dependencies = script.parent()?.parent()?.parent()?.join("deps");
    let libraries = std::fs::read_dir(dependencies).ok()?.flatten().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let stem = name.strip_prefix("libsheaf_preload").and_then(|rest| rest.strip_suffix(".so"));
        stem.is_some_and(|stem| stem.is_empty() || stem.starts_with('-'))
    });
    libraries
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .max()
        .map(|(_, path)| path)
}
