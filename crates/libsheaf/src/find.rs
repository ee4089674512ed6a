//! Where the program of inner nodes is.
use crate::error::{Error, ErrorCode};
use std::path::{Path, PathBuf};

/// Its names: this library's own program, and the one that users of MRNet know, which does the
/// same.
pub const INNER_PROGRAMS: [&str; 2] = ["sheaf-node", "mrnet_commnode"];

/// The variable that names it.
const VARIABLE: &str = "SHEAF_NODE";

/// The program of inner nodes: as given, as the environment says, beside this library, in the
/// `bin` next to its directory, or in `PATH`. A directory stands for the program in it.
///
/// # Errors
/// [`ErrorCode::Launch`] when it is nowhere.
pub fn inner(given: Option<&str>) -> Result<PathBuf, Error> {
    let variable = || std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let named = given.map(PathBuf::from).or_else(|| variable().map(PathBuf::from));
    if let Some(path) = named {
        let path = if path.is_dir() {
            let mut inside = INNER_PROGRAMS.map(|name| path.join(name)).into_iter();
            inside.find(|path| path.is_file()).unwrap_or_else(|| path.join(INNER_PROGRAMS[0]))
        } else {
            path
        };
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
    let mut places = beside.flat_map(|directory| INNER_PROGRAMS.map(|name| directory.join(name)));
    let in_path = || INNER_PROGRAMS.iter().find_map(|name| in_path(Path::new(name)));
    places.find(|path| path.is_file()).or_else(in_path).ok_or_else(|| {
        let text = format!(
            "the program of inner nodes, {}, is neither beside libsheaf.so nor in PATH; name it \
             with {VARIABLE} (or, with MRNet's interface, MRNET_COMM_PATH)",
            INNER_PROGRAMS.join(" or ")
        );
        Error::new(ErrorCode::Launch, text)
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
        name.starts_with("libsheaf.so") || name.starts_with("liblibsheaf.so")
    };
    paths.find(ours).and_then(Path::parent).map(Path::to_path_buf)
}
