//! Where the program of inner nodes is.
use crate::error::{Code, Error};
use std::path::{Path, PathBuf};

/// Its name, as users of MRNet know it.
pub const INNER_PROGRAM: &str = "mrnet_commnode";

/// Variables that name it.
const VARIABLES: [&str; 3] = ["SHEAF_SERVE", "MRNET_COMM_PATH", "MRN_COMM_PATH"];

/// The program of inner nodes: as given, as the environment says, beside this library, in the
/// `bin` next to its directory, or in `PATH`.
///
/// # Errors
/// [`Code::Launch`] when it is nowhere.
pub fn inner(given: Option<&str>) -> Result<PathBuf, Error> {
    let named = given.map(PathBuf::from).or_else(|| {
        let mut values =
            VARIABLES.iter().filter_map(std::env::var_os).filter(|value| !value.is_empty());
        values.next().map(PathBuf::from)
    });
    if let Some(path) = named {
        // MRNet also takes the directory.
        let path = if path.is_dir() { path.join(INNER_PROGRAM) } else { path };
        return if path.components().count() == 1 {
            Ok(in_path(&path).unwrap_or(path))
        } else {
            Ok(path)
        };
    }
    let beside = own_directory().into_iter().flat_map(|directory| {
        let up = directory.parent().map(Path::to_path_buf).unwrap_or_default();
        [directory, up.join("bin"), up]
    });
    let mut places = beside.map(|directory| directory.join(INNER_PROGRAM));
    places.find(|path| path.is_file()).or_else(|| in_path(Path::new(INNER_PROGRAM))).ok_or_else(|| {
        let text = format!(
            "the program of inner nodes, {INNER_PROGRAM}, is neither beside libsheaf.so nor in PATH; name \
             it with MRNET_COMM_PATH"
        );
        Error::new(Code::Launch, text)
    })
}

fn in_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// The directory of the library, as the kernel knows what is mapped here.
fn own_directory() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let ours = |path: &&Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libsheaf.so") || name.starts_with("libsheaf_capi")
    };
    paths.find(ours).and_then(Path::parent).map(Path::to_path_buf)
}
