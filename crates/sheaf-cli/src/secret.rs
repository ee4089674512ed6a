//! Files for secrets, which only their user can read.
use crate::exit::{self, Stop};
use anyhow::Result;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// That a secret may be written there: to a regular file or a new one. Whatever else has a name (a
/// device, a pipe, a link) is not for us to replace.
pub fn check_place(path: &Path) -> Result<(), Stop> {
    let failed = |error: io::Error| Stop::usage(exit::io_text(path, &error));
    let kind = match std::fs::symlink_metadata(path) {
        Ok(about) => about.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
            return match std::fs::metadata(directory.unwrap_or(Path::new("."))) {
                Ok(_) => Ok(()),
                Err(error) => Err(failed(error)),
            };
        }
        Err(error) => return Err(failed(error)),
    };
    let what = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    let path = path.display();
    Err(Stop::usage(format!("{path}: it is {what}: tokens go to a regular file, or a new one")))
}

/// Permissions of a group, and of all others.
const GROUP: u32 = 0o070;
const OTHERS: u32 = 0o007;

/// Refuses a file with a token that other users own, or can read or write. What is no regular file, such as
/// the pipe of a shell, has no permissions that count. The group of another user's file may have
/// them: systemd lets the user of a service read root's file so.
///
/// # Errors
/// When other users have access to the file, or it cannot be examined.
pub fn check_reader(path: &Path, file: &File) -> Result<(), Stop> {
    let about = file.metadata().map_err(|error| Stop::usage(exit::io_text(path, &error)))?;
    let is_own = about.uid() == rustix::process::geteuid().as_raw();
    let others = if is_own { GROUP | OTHERS } else { OTHERS };
    if !about.is_file() {
        return Ok(());
    }
    if !is_own && about.uid() != 0 {
        let (path, owner) = (path.display(), about.uid());
        return Err(Stop::usage(format!(
            "{path}: user {owner} owns this token, and could replace it with that of another session: it is \
             not used; mend it with: chown \"$(id -u)\" {path}"
        )));
    }
    if about.mode() & others == 0 {
        return Ok(());
    }
    let (path, mode) = (path.display(), about.mode() & 0o7777);
    Err(Stop::usage(format!(
        "{path}: other users have access to this token (mode {mode:04o}), and could join as a \
         host: it is not used; mend it with: chmod go= {path}"
    )))
}

/// Writes a file that only its user can read; never one that others may have open.
pub fn write_secret(path: &Path, text: &str) -> Result<()> {
    check_place(path)?;
    let _ = std::fs::remove_file(path);
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(|error| Stop::usage(exit::io_text(path, &error)))?;
    file.write_all(text.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn token_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        write_secret(&path, "secret").unwrap();
        let check = || check_reader(&path, &File::open(&path).unwrap());
        assert!(check().is_ok());
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(check().unwrap_err().to_string().contains("other users have access to this token"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(1001), None).unwrap();
            let why = check().unwrap_err().to_string();
            assert!(why.contains("user 1001 owns this token"), "{why}");
        }
    }
}
