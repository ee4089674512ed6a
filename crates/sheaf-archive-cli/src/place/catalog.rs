//! The catalog that `--catalog` names, a file or a database of PostgreSQL, and the one that a machine has
//! of a store otherwise.
use anyhow::{Context, Result};
use sheaf_archive::{Catalog, CatalogError};
use sheaf_cli::companion::fetch::caches;
use sheaf_cli::exit::Stop;
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What the command line or the environment says, for all archives of the command.
static NAMED: OnceLock<OsString> = OnceLock::new();

/// Has archives have this catalog.
pub fn name(catalog: &OsStr) {
    if !catalog.is_empty() {
        NAMED.get_or_init(|| catalog.to_owned());
    }
}

/// Opens the catalog that is named, if one is.
pub fn named() -> Result<Option<Catalog>> {
    let Some(named) = NAMED.get() else { return Ok(None) };
    match named.to_str() {
        Some(url) if url.contains("://") => server(url).map(Some),
        _ => {
            let file = Path::new(named);
            let said = || sheaf_cli::output::printable(&file.display().to_string());
            let Some(name) = file.file_name() else {
                return Err(Stop::usage(format!("{}: is no file's name", said())).into());
            };
            // Links are followed to where one says, and not from there.
            let above = file.parent().filter(|above| !above.as_os_str().is_empty());
            let typed = above.unwrap_or(Path::new("."));
            let above = typed.canonicalize().with_context(said)?;
            refuse_network(&above)?;
            if let Err(why) = check_way(&above, typed, Some(&above.join(name))) {
                return Err(Stop::usage(format!("{}: {why}: it is not used", said())).into());
            }
            Ok(Some(Catalog::open(&above.join(name))?))
        }
    }
}

/// Refuses a file that several machines could open at once: SQLite keeps the state of its write-ahead log in
/// memory that only processes of one machine share.
fn refuse_network(directory: &Path) -> Result<()> {
    let said = || sheaf_cli::output::printable(&directory.display().to_string());
    let found = rustix::fs::statfs(directory).with_context(said)?;
    // Its type is not the same on all systems, and kinds have 32 bits.
    if !is_network(found.f_type as u32) {
        return Ok(());
    }
    let text = format!(
        "{}: is on a network file system, where a catalog cannot be shared: name a file on a local disk, or a \
         database of PostgreSQL",
        said()
    );
    Err(Stop::usage(text).into())
}

/// Whether a file system of this kind (`f_type` of statfs) may be mounted by several machines.
fn is_network(kind: u32) -> bool {
    const NETWORK: [u32; 17] = [
        0x6969,      // NFS
        0x517b,      // SMB
        0xff53_4d42, // CIFS
        0xfe53_4d42, // SMB2
        0x6573_5546, // FUSE: sshfs, GlusterFS, JuiceFS, S3
        0x0bd0_0bd0, // Lustre
        0x4750_4653, // GPFS
        0x00c3_6400, // Ceph
        0x0102_1997, // 9p
        0x5346_414f, // AFS, OpenAFS
        0x6b41_4653, // kAFS
        0x1983_0326, // BeeGFS
        0x7461_636f, // OCFS2
        0x0116_1970, // GFS2
        0x2003_0528, // OrangeFS
        0x7375_7245, // Coda
        0x564c,      // NCP
    ];
    NETWORK.contains(&kind)
}

/// The file of the catalog that this user has on this machine of a store of this name.
///
/// Homes may be shared by machines, and a file of SQLite may not: the machine is a part of its name.
pub fn own_file(store: &[u8]) -> Result<PathBuf, CatalogError> {
    let Some(caches) = caches() else {
        let why = "set XDG_CACHE_HOME or HOME".to_owned();
        return Err(CatalogError::NoPlace { place: "$XDG_CACHE_HOME/sheaf".to_owned(), why });
    };
    let directory = caches.join("sheaf/archives");
    let failed = |error: std::io::Error| CatalogError::NoPlace {
        place: directory.display().to_string(),
        why: error.to_string(),
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(failed)?;
    // No part of the path of a catalog may be a link, and the user's own may be.
    let said = &directory;
    let directory = directory.canonicalize().map_err(failed)?;
    check_way(&directory, said, None)
        .map_err(|why| CatalogError::NoPlace { place: directory.display().to_string(), why })?;
    let writable = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(&directory, writable).map_err(|errno| failed(errno.into()))?;
    let mut digest = blake3::Hasher::new();
    let user = rustix::process::geteuid().as_raw().to_le_bytes();
    for part in [&machine()[..], &user, store] {
        digest.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    Ok(directory.join(format!("{}.sqlite", &digest.finalize().to_hex()[..32])))
}

/// Checks that only the caller and root can replace files in this directory. `directory` is the real path of `path`. In a
/// sticky directory that everybody may write to, only a named `file` is accepted, and it must be the caller's or root's.
fn check_way(directory: &Path, path: &Path, file: Option<&Path>) -> Result<(), String> {
    const ANYBODY: u32 = 0o0002;
    const STICKY: u32 = 0o1000;
    let failed = |error: std::io::Error| error.to_string();
    let own = [0, rustix::process::geteuid().as_raw()];
    let about = directory.symlink_metadata().map_err(failed)?;
    if !own.contains(&about.uid()) {
        return Err(format!("it is user {}'s, who could exchange it", about.uid()));
    }
    let is_open = about.mode() & ANYBODY != 0;
    if is_open && (about.mode() & STICKY == 0 || file.is_none()) {
        return Err("everybody may write to it, and could exchange it".to_owned());
    }
    if let Some(of) = file.filter(|_| is_open).and_then(|file| file.symlink_metadata().ok())
        && !own.contains(&of.uid())
    {
        return Err(format!("it is user {}'s, who could exchange it", of.uid()));
    }
    let who = sheaf_session::trust::exchangeable(path).map_err(failed)?;
    who.map_or(Ok(()), |who| Err(format!("{who} could exchange it")))
}

/// What this machine is known by: containers of one image have the same identity, and other names.
fn machine() -> Vec<u8> {
    let mut machine = std::fs::read("/etc/machine-id").unwrap_or_default();
    machine.push(b'\n');
    machine.extend_from_slice(rustix::system::uname().nodename().to_bytes());
    machine
}

#[cfg(not(feature = "postgres"))]
fn server(_url: &str) -> Result<Catalog> {
    Err(Stop::usage("this sheaf is built without PostgreSQL: --catalog is a file").into())
}

#[cfg(feature = "postgres")]
fn server(url: &str) -> Result<Catalog> {
    use sheaf_archive::{CatalogError, PostgresUrl};
    if !PostgresUrl::is_meant(url) {
        // What it says may be a password.
        let text = "--catalog is a file or postgresql://USER@HOST:PORT/DATABASE";
        return Err(Stop::usage(text).into());
    }
    let mut url = PostgresUrl::parse(url).map_err(|error| Stop::usage(error.to_string()))?;
    if !url.has_password()
        && let Some(password) = password::find(&url)?
    {
        url.set_password(&password);
    }
    Catalog::connect(&url).map_err(|error| match error {
        error @ CatalogError::Server { .. } => Stop::unreachable(error.to_string()).into(),
        error => error.into(),
    })
}

/// Passwords of the environment, as `libpq` has them.
#[cfg(feature = "postgres")]
mod password {
    use anyhow::{Context, Result};
    use sheaf_archive::PostgresUrl;
    use sheaf_cli::output;
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    /// That of `PGPASSWORD`, or of the file that `PGPASSFILE` names, or of `~/.pgpass`.
    pub fn find(url: &PostgresUrl) -> Result<Option<Vec<u8>>> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(password) = set("PGPASSWORD") {
            return Ok(Some(password.into_vec()));
        }
        let home = || set("HOME").map(|home| PathBuf::from(home).join(".pgpass"));
        let Some(file) = set("PGPASSFILE").map(PathBuf::from).or_else(home) else {
            return Ok(None);
        };
        let said = || file.display().to_string();
        let metadata = match std::fs::metadata(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata.with_context(said)?,
        };
        if metadata.permissions().mode() & 0o077 != 0 {
            output::tell(format_args!(
                "sheaf: {}: is not read, as others may: chmod 600 it",
                output::printable(&said())
            ));
            return Ok(None);
        }
        let text = std::fs::read(&file).with_context(said)?;
        let user = url.user().map(ToOwned::to_owned).or_else(|| std::env::var("USER").ok());
        let user = user.unwrap_or_default();
        let database = url.database().unwrap_or(&user).to_owned();
        let port = url.port().to_string();
        Ok(in_file(&text, [&url.host(), &port, &database, &user]))
    }

    /// The password of the first line that is for this host, port, database and user.
    fn in_file(text: &[u8], of: [&str; 4]) -> Option<Vec<u8>> {
        text.split(|&byte| byte == b'\n').find_map(|line| {
            if line.starts_with(b"#") {
                return None;
            }
            let mut fields = fields(line);
            let password = (fields.len() == 5).then(|| fields.pop())??;
            let is_for = fields.iter().zip(of).all(|(field, of)| {
                let is_socket = of.starts_with('/') && field == b"localhost";
                field == b"*" || field == of.as_bytes() || is_socket
            });
            is_for.then_some(password)
        })
    }

    /// What is between colons; the fifth field is the rest. A backslash takes what is behind it as it is.
    fn fields(line: &[u8]) -> Vec<Vec<u8>> {
        let mut fields = vec![Vec::new()];
        let mut bytes = line.strip_suffix(b"\r").unwrap_or(line).iter();
        while let Some(&byte) = bytes.next() {
            match byte {
                b':' if fields.len() < 5 => fields.push(Vec::new()),
                b'\\' => fields.last_mut().expect("there is one").extend(bytes.next()),
                byte => fields.last_mut().expect("there is one").push(byte),
            }
        }
        fields
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn first_line_that_is_for_a_server_has_its_password() {
            let text = b"# db:*:*:*:no\ndb:5432:x:ada:one\\:\\\\two:three\n*:*:*:bob:b\r\n\
                         localhost:*:*:*:here\nbroken\n*:5433:*:*:last";
            let found = |of| in_file(text, of).map(|found| String::from_utf8(found).unwrap());
            assert_eq!(found(["db", "5432", "x", "ada"]).as_deref(), Some("one:\\two:three"));
            assert_eq!(found(["other", "1", "y", "bob"]).as_deref(), Some("b"));
            assert_eq!(found(["/run/postgresql", "5432", "x", "eve"]).as_deref(), Some("here"));
            assert_eq!(found(["db", "5433", "x", "eve"]).as_deref(), Some("last"));
            assert_eq!(found(["db", "5432", "y", "ada"]), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_several_machines_are_known() {
        for (kind, is) in
            [(0x6969, true), (0xff53_4d42, true), (0xef53, false), (0x0102_1994, false)]
        {
            assert_eq!(is_network(kind), is, "{kind:x}");
        }
    }
}
