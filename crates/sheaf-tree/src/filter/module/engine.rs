//! WebAssembly modules. What runs them is a shared object of its own, larger than all the rest of a
//! node: it is loaded when the first such module comes. Where it is not installed it comes down the
//! tree, before the module that wants it (`sheaf-proto/src/node/module.rs`).
#![allow(unsafe_code)]

use super::native::{AskedFilter, Native};
use crate::filter::{FilterError, NodeInfo};
use bytes::Bytes;
use libloading::os::unix::Library;
use sheaf_core::Errno;
use sheaf_core::filter_abi::{
    AbiEngine, AbiPacket, ENGINE_ABI, ENGINE_SYMBOL, EngineBounds, EntryPoint, GiveEngine,
};
use std::ffi::c_void;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// How the file of the engine is called.
const FILE: &str = "libsheaf_wasm.so";

/// Where it is looked for, from the directory of the program, and of the library that holds this
/// code. (cargo leaves it in `deps` when it was made for a test.)
const PLACES: [&str; 4] = ["", "../lib/sheaf", "sheaf", "deps"];

/// Linked into this program.
static INSIDE: OnceLock<AbiEngine> = OnceLock::new();

/// Lets this program run WebAssembly modules by an engine that is linked into it: one linked
/// statically can load no other. To be called before the first tree starts; calling it again
/// changes nothing.
pub fn use_engine(engine: &AbiEngine) {
    // The first one stays, as modules may run in it already.
    let _ = INSIDE.set(*engine);
}

fn lacking(message: impl Into<String>) -> FilterError {
    FilterError::new(Errno::NOSYS, message)
}

/// The engine's file, if it is installed, looked for once.
fn installed() -> Result<&'static Path, FilterError> {
    static FOUND: OnceLock<Result<PathBuf, FilterError>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let roots: Vec<PathBuf> = [program(), holder()].into_iter().flatten().collect();
        look_in(&roots)
    });
    found.as_deref().map_err(Clone::clone)
}

fn look_in(roots: &[PathBuf]) -> Result<PathBuf, FilterError> {
    let mut looked: Vec<PathBuf> = Vec::new();
    for file in roots.iter().flat_map(|root| PLACES.map(|place| root.join(place).join(FILE))) {
        if looked.contains(&file) {
            continue;
        }
        match file.try_exists() {
            Ok(true) => return Ok(file),
            Ok(false) => looked.push(file),
            // The program itself may be called as the directory.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => looked.push(file),
            Err(error) => return Err(lacking(format!("{}: {error}", file.display()))),
        }
    }
    let places: Vec<String> = looked.iter().map(|file| file.display().to_string()).collect();
    Err(lacking(format!(
        "a WebAssembly module needs {FILE}, which is not installed here; looked for {} (from \
         source: cargo build -p sheaf-wasm, with --release as the program was built)",
        places.join(", ")
    )))
}

/// The directory of the program that runs.
fn program() -> Option<PathBuf> {
    // What is left of a program that has been removed has no directory.
    std::env::current_exe().ok().and_then(|path| path.parent().map(Path::to_owned))
}

/// The directory of the file that this code is in: the program's, or that of a library in it.
fn holder() -> Option<PathBuf> {
    let here = installed as *const () as usize;
    // Without `/proc` the program's directory has to do.
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let within = usize::from_str_radix(from, 16).ok()? <= here
            && here < usize::from_str_radix(to, 16).ok()?;
        within.then(|| rest.split_once('/').map(|(_, path)| format!("/{path}")))?
    });
    path.and_then(|path| Path::new(&path).parent().map(Path::to_owned))
}

/// How a process runs WebAssembly.
#[derive(Default)]
pub(super) struct Engines {
    /// What has come down the tree.
    sent: OnceLock<Bytes>,
    loaded: OnceLock<Result<AbiEngine, FilterError>>,
}

impl Engines {
    /// Whether there is no use in being sent one.
    pub fn has(&self) -> bool {
        // What is linked statically could load none.
        let own = INSIDE.get().is_some() || cfg!(target_feature = "crt-static");
        self.sent.get().is_some() || own || installed().is_ok()
    }

    /// Keeps one that has come down the tree.
    pub fn keep(&self, bytes: Bytes) {
        // It may come over two links at once.
        let _ = self.sent.set(bytes);
    }

    /// What nodes are sent that have none.
    pub fn bytes(&self) -> Result<Bytes, FilterError> {
        if let Some(sent) = self.sent.get() {
            return Ok(sent.clone());
        }
        let path = installed()?;
        let failed = |error: io::Error| {
            FilterError::new(Errno::from_io(&error), format!("{}: {error}", path.display()))
        };
        std::fs::read(path).map(Bytes::from).map_err(failed)
    }

    /// Makes machine code of a module.
    pub fn compile(&self, bytes: &[u8]) -> Result<Compiled, FilterError> {
        let engine = self.loaded.get_or_init(|| self.load()).clone()?;
        let asked = AskedFilter { params: bytes, ..AskedFilter::new(EntryPoint::Create) };
        // SAFETY: the engine's functions are called as `Engine` says.
        let module = unsafe { asked.call(engine.compile()) }?.state;
        Ok(Compiled { engine, module })
    }

    fn load(&self) -> Result<AbiEngine, FilterError> {
        if let Some(engine) = INSIDE.get() {
            return Ok(*engine);
        }
        if cfg!(target_feature = "crt-static") {
            let message = "this program is linked statically and can load no engine for \
                           WebAssembly; one built with the feature `wasm` has it inside";
            return Err(lacking(message));
        }
        let library = match self.sent.get() {
            Some(sent) => super::native::link_bytes(sent)?,
            None => super::native::link_file(installed()?)?,
        };
        let engine = version(&library)?;
        // Its code must stay callable for as long as the process lives.
        std::mem::forget(library);
        Ok(engine)
    }
}

fn version(library: &Library) -> Result<AbiEngine, FilterError> {
    // SAFETY: only an engine has this name for a function, which has this type then.
    let give = unsafe { library.get::<GiveEngine>(ENGINE_SYMBOL) }
        .map_err(|error| lacking(format!("{FILE} is no engine for WebAssembly: {error}")))?;
    // SAFETY: it gives a pointer to what stays; the version is the first field of all of them.
    let abi = unsafe { *give().cast::<u32>() };
    if abi != ENGINE_ABI {
        return Err(lacking(format!("{FILE} has interface {abi}, this node {ENGINE_ABI}")));
    }
    // SAFETY: as above, and it is of this version.
    Ok(unsafe { *give() })
}

/// A module's machine code, which stays for ever.
pub(super) struct Compiled {
    engine: AbiEngine,
    module: *mut c_void,
}

// SAFETY: by `Engine` a module belongs to no thread, and several may use it at once.
unsafe impl Send for Compiled {}
// SAFETY: as above.
unsafe impl Sync for Compiled {}

impl Compiled {
    /// An instance of a function for one stream at one node.
    pub fn instance(
        &self,
        function: &str,
        params: &[u8],
        info: &NodeInfo,
    ) -> Result<Native, FilterError> {
        let packet = |bytes: &[u8]| AbiPacket {
            data: bytes.as_ptr(),
            len: bytes.len(),
            tag: 0,
            child: 0,
            rank: 0,
            raw: 0,
            clock_offset_ns: 0,
            clock_error_ns: u64::MAX,
        };
        let time_max_ms = u64::try_from(info.bounds.time_max.as_millis()).unwrap_or(u64::MAX);
        let bounds = EngineBounds { steps_max: info.bounds.steps_max, time_max_ms }.to_bytes();
        let about = [packet(function.as_bytes()), packet(&bounds)];
        let node = super::native::node(info);
        let asked = AskedFilter {
            params,
            packets: &about,
            node: &node,
            state: self.module,
            ..AskedFilter::new(EntryPoint::Create)
        };
        // SAFETY: the engine's functions are called as `Engine` says; the state is a module of it.
        let opened = unsafe { asked.call(self.engine.open()) }?;
        Ok(Native::of_engine(self.engine.call(), opened.reserved, opened.state, params, node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_that_is_not_there_is_missed_by_name_and_place() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        // One of the places is no directory.
        std::fs::write(bin.join("sheaf"), b"the program").unwrap();
        let error = look_in(&[bin.clone(), bin.clone()]).unwrap_err();
        assert_eq!(error.errno, Errno::NOSYS);
        let first = bin.join("").join(FILE).display().to_string();
        assert_eq!(error.message.matches(&first).count(), 1, "{}", error.message);
        assert!(error.message.contains("cargo build -p sheaf-wasm"), "{}", error.message);
        for (file, place) in [("bin/deps", "deps"), ("lib/sheaf", "../lib/sheaf"), ("bin", "")] {
            let at = dir.path().join(file);
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join(FILE), b"").unwrap();
            assert_eq!(look_in(std::slice::from_ref(&bin)).unwrap(), bin.join(place).join(FILE));
        }
    }

    #[test]
    fn file_of_this_code_is_found() {
        assert_eq!(holder(), program(), "a test is one program");
    }
}
