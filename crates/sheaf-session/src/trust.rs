//! Whether a file or directory may be believed that decides what this program does.
//!
//! A `sheaf.toml` or a file of groups makes commands run as the caller. So it is used only if
//! nobody but the caller and root could have written it: both it and the directory in which it was
//! found. A file that the caller has named is looked at by itself. The directory of sessions has to
//! be the caller's alone.
use rustix::fs::{Mode, OFlags};
use rustix::process::{getegid, geteuid};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// In such a directory nobody removes or renames what is somebody else's.
const STICKY: u32 = 0o1000;

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum NotTrusted {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Somebody else could have written it: one line that says what to do.
    #[error("{0}")]
    Distrust(String),
}

impl NotTrusted {
    /// In the words of messages about `path`.
    pub fn text(&self, path: &Path) -> String {
        match self {
            Self::Io(error) => crate::error::io_text(path, error),
            Self::Distrust(text) => text.clone(),
        }
    }

    /// Whether the caller may not look there.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether the directory is gone in which the file is looked for, on another host.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle)
    }

    /// Whether there is no such file.
    pub fn is_absence(&self) -> bool {
        use io::ErrorKind::{NotADirectory, NotFound};
        matches!(self, Self::Io(error) if matches!(error.kind(), NotFound | NotADirectory))
    }
}

/// Opens a file that was found at a place where such files are looked for.
///
/// # Errors
/// When another user could have written the file or a directory above it, or it cannot be opened.
pub fn open(path: &Path) -> Result<File, NotTrusted> {
    open_found_by(path, Owners::of_caller())
}

/// As [`open`], where a group may write to the file that is the caller's alone by its number: files of other programs
/// are so under a umask of 002.
///
/// # Errors
/// Those of [`open`].
pub fn open_of_others(path: &Path) -> Result<File, NotTrusted> {
    open_found_by(path, Owners { group: private_group(), ..Owners::of_caller() })
}

/// As [`open_named`], and as [`open_of_others`].
///
/// # Errors
/// Those of [`open_named`].
pub fn open_named_of_others(path: &Path) -> Result<File, NotTrusted> {
    open_judged(path, false, Owners { group: private_group(), ..Owners::of_caller() })
}

fn open_found_by(path: &Path, owners: Owners) -> Result<File, NotTrusted> {
    // A link of another user's may lead to a pipe or a device of root's.
    let link = std::fs::symlink_metadata(path)?;
    let why = judge(&link, 0, owners).filter(|_| link.is_symlink());
    let file = match why {
        Some(why) => return Err(distrust(path, why)),
        None => open_judged(path, true, owners)?,
    };
    // Whoever can change the directory could put another file there, or lead a link elsewhere.
    for directory in directories(path)? {
        check_directory(&directory)?;
    }
    match exchangeable(path)? {
        None => Ok(file),
        Some(who) => Err(NotTrusted::Distrust(format!(
            "{who} could exchange {}, which can make you run commands: it is not used; name a file of your own",
            path.display(),
        ))),
    }
}

/// Opens a file that the caller has named.
///
/// # Errors
/// When another user owns the file or can write to it, or it cannot be opened.
pub fn open_named(path: &Path) -> Result<File, NotTrusted> {
    open_judged(path, false, Owners::of_caller())
}

fn open_judged(path: &Path, is_file: bool, owners: Owners) -> Result<File, NotTrusted> {
    // To open a pipe may take for ever, and to open a device does something.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?;
    let found = File::from(found);
    let about = found.metadata()?;
    // With an access list the rights of the group are those of all whom it names.
    let has_list = || has_list(Path::new(&format!("/proc/self/fd/{}", found.as_raw_fd())));
    let owners = match owners.group {
        Some(_) if has_list().unwrap_or(true) => Owners::of_caller(),
        _ => owners,
    };
    match judge(&about, GROUP_WRITES | OTHERS_WRITE, owners) {
        Some(why) => Err(distrust(path, why)),
        None if is_file && about.is_dir() => Err(io::Error::from(rustix::io::Errno::ISDIR).into()),
        None if is_file && !about.is_file() => Err(NotTrusted::Distrust(format!(
            "{}: it is no regular file: it is not used",
            path.display()
        ))),
        None => open_found(&found, path),
    }
}

fn distrust(path: &Path, why: TrustWhy) -> NotTrusted {
    NotTrusted::Distrust(format!(
        "{}: {}, and it can make you run commands: it is not used; {}",
        path.display(),
        why.text(),
        match why {
            TrustWhy::Owner(_) => "chown it, or name a copy of your own".to_owned(),
            TrustWhy::Writable(_) => format!("mend it with: chmod go-w {}", path.display()),
        }
    ))
}

/// Opens the file that was judged.
fn open_found(found: &File, path: &Path) -> Result<File, NotTrusted> {
    match File::open(format!("/proc/self/fd/{}", found.as_raw_fd())) {
        // Without /proc it is looked up again, and must be the same.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (opened, found) = (File::open(path)?, found.metadata()?);
            let about = opened.metadata()?;
            let is_same = (about.dev(), about.ino()) == (found.dev(), found.ino());
            is_same.then_some(opened).ok_or_else(|| {
                NotTrusted::Distrust(format!("{}: it was exchanged just now", path.display()))
            })
        }
        opened => Ok(opened?),
    }
}

/// Whether the files of a directory may be believed, as far as that depends on the directory.
///
/// # Errors
/// When another user could put files there, or it cannot be examined.
pub fn check_directory(path: &Path) -> Result<(), NotTrusted> {
    let about = std::fs::metadata(path)?;
    // Whoever may write to a directory may move a file of the caller's or of root's there, also where it is sticky.
    match judge(&about, OTHERS_WRITE, Owners::of_caller()) {
        None => Ok(()),
        Some(why) => Err(NotTrusted::Distrust(format!(
            "{}: {} and could change files there that make you run commands: they are not used; {}",
            path.display(),
            why.text_of_directory(),
            match why {
                TrustWhy::Owner(_) => "chown it, or name a file of your own".to_owned(),
                TrustWhy::Writable(_) => format!("mend it with: chmod o-w {}", path.display()),
            }
        ))),
    }
}

/// Who could have another file found at this path, by a directory or a link on its way: neither the caller nor root; nobody,
/// if nothing is said. Groups that may write are trusted, and of the file itself nothing is said.
///
/// # Errors
/// When a directory or a link cannot be examined.
pub fn exchangeable(path: &Path) -> io::Result<Option<String>> {
    let (is_unknown, caller) = (is_root_unknown()?, Owners::of_caller());
    let mut is_roots = is_unknown;
    exchanging(path, |at, about, writers| {
        // A link may begin again.
        is_roots = is_roots || (is_unknown && at == Path::new("/"));
        // In a user namespace root has no number, nor have others: the first directories, which everybody may only
        // look at, are root's.
        is_roots &= about.uid() == OVERFLOW && at.components().count() <= ROOTS_DEPTH;
        let why = judge(about, writers, caller);
        let why = why.filter(|why| !is_roots || *why != TrustWhy::Owner(OVERFLOW));
        is_roots &= about.mode() & OTHERS_WRITE == 0 || about.is_symlink();
        why
    })
}

/// How many parts the path of a directory has at most that is root's where root has no number, as `/var/home`.
const ROOTS_DEPTH: usize = 3;

/// As [`exchangeable`], by this judgement of directories and links.
fn exchanging(
    path: &Path,
    mut judged: impl FnMut(&Path, &Metadata, u32) -> Option<TrustWhy>,
) -> io::Result<Option<String>> {
    let (mut here, mut rest, mut links) = (PathBuf::new(), steps(&std::path::absolute(path)?), 0);
    while let Some(step) = rest.pop() {
        let name = match &step {
            Step::Root => {
                here = PathBuf::from("/");
                continue;
            }
            Step::Up => {
                here.pop();
                continue;
            }
            Step::Name(name) => name,
        };
        let above = std::fs::symlink_metadata(&here)?;
        // What is in a sticky directory has an owner, who is judged as well.
        let writers = if above.mode() & STICKY == 0 { OTHERS_WRITE } else { 0 };
        if let Some(why) = judged(&here, &above, writers) {
            return Ok(Some(format!("{}: {} and", here.display(), why.text_of_directory())));
        }
        let at = here.join(name);
        let about = match std::fs::symlink_metadata(&at) {
            // It is to be made.
            Err(error) if error.kind() == io::ErrorKind::NotFound && rest.is_empty() => break,
            about => about?,
        };
        if !about.is_symlink() {
            // Whoever may write to a directory may move it to where everybody may write.
            if about.is_dir() && above.mode() & OTHERS_WRITE != 0 && is_others_to_move(&at, &about)?
            {
                let why = TrustWhy::Writable(about.mode() & 0o7777).text_of_directory();
                return Ok(Some(format!("{}: {why} and", at.display())));
            }
            here = at;
            continue;
        }
        if let Some(why) = judged(&at, &about, 0) {
            return Ok(Some(format!("{}: {}, and its owner", at.display(), why.text())));
        }
        // Everybody may move a link there, whoever owns it.
        if above.mode() & OTHERS_WRITE != 0 {
            let why = format!(
                "{}: this link is in a directory that everybody may write to, who",
                at.display()
            );
            return Ok(Some(why));
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(rustix::io::Errno::LOOP.into());
        }
        rest.extend(steps(&std::fs::read_link(&at)?));
    }
    Ok(None)
}

/// Whether a directory is one that another user may move: who may write to it, and to where it is and where it goes.
fn is_others_to_move(path: &Path, about: &Metadata) -> io::Result<bool> {
    if about.mode() & OTHERS_WRITE != 0 {
        return Ok(true);
    }
    // With an access list these are the rights of all whom it names.
    let is_groups = about.mode() & GROUP_WRITES != 0;
    Ok(is_groups && (private_group() != Some(about.gid()) || has_list(path)?))
}

fn has_list(path: &Path) -> io::Result<bool> {
    use rustix::io::Errno;
    match rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0u8; 256][..]) {
        Ok(_) | Err(Errno::RANGE) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The caller's group, where it is the caller's alone: as systems make one of the same number for each user.
fn private_group() -> Option<u32> {
    let group = getegid().as_raw();
    (group == geteuid().as_raw()).then_some(group)
}

/// The most links that are followed, as by the kernel.
const LINKS_MAX: usize = 40;

/// A part of a path.
enum Step {
    Root,
    Up,
    Name(std::ffi::OsString),
}

/// The parts of a path, the last one first.
fn steps(path: &Path) -> Vec<Step> {
    let steps = path.components().rev().filter_map(|part| match part {
        Component::RootDir => Some(Step::Root),
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Name(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    });
    steps.collect()
}

/// The number of users that a namespace does not know.
const OVERFLOW: u32 = 65534;

/// Whether this process is in a user namespace that does not know root: neither root nor other users have a number there.
fn is_root_unknown() -> io::Result<bool> {
    let map = std::fs::read_to_string("/proc/self/uid_map");
    let is_whole = map.map_or(true, |map| is_whole(&map));
    Ok(!is_whole && std::fs::symlink_metadata("/")?.uid() == OVERFLOW)
}

/// Whether a user namespace with this map knows all users.
fn is_whole(map: &str) -> bool {
    let counts = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u32>().ok());
    counts.max().is_none_or(|count| count == u32::MAX)
}

/// Whether only the caller and root can put another directory, or another file, in the place of this
/// one or of one above it. `directory` is a real path.
///
/// # Errors
/// When another user could, or a directory cannot be examined.
pub fn check_way(directory: &Path) -> Result<(), NotTrusted> {
    for above in directory.ancestors() {
        let about = std::fs::symlink_metadata(above)?;
        // What is in a sticky directory has an owner, who is judged as well.
        let writers = if about.mode() & STICKY == 0 { GROUP_WRITES | OTHERS_WRITE } else { 0 };
        if let Some(why) = judge(&about, writers, Owners::of_caller()) {
            return Err(NotTrusted::Distrust(format!(
                "{}: {} and could exchange files on the way to the sheaf.toml in {}, which makes \
                 you run commands: it is not used; {}",
                above.display(),
                why.text_of_directory(),
                directory.display(),
                match why {
                    TrustWhy::Owner(_) => "name a file of your own with --config".to_owned(),
                    TrustWhy::Writable(_) =>
                        format!("mend it with: chmod go-w {}", above.display()),
                }
            )));
        }
    }
    Ok(())
}

/// Whether a directory that has sockets of root's sessions is nobody else's; why not. It need not
/// be there.
///
/// # Errors
/// When a user other than root owns the directory or can write to it, or it cannot be examined.
pub fn check_roots(path: &Path) -> Result<(), NotTrusted> {
    check_of(path, 0)
}

/// Whether a directory that has sockets of the caller's sessions is nobody else's; why not. It need
/// not be there.
///
/// # Errors
/// When another user owns the directory or can write to it, or it cannot be examined.
pub fn check_private(path: &Path) -> Result<(), NotTrusted> {
    check_of(path, geteuid().as_raw())
}

fn check_of(path: &Path, own: u32) -> Result<(), NotTrusted> {
    let about = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        about => about?,
    };
    check_about(path, &about, own)
}

/// [`check_private`] of a directory that is open.
pub(crate) fn check_private_open(path: &Path, directory: &File) -> Result<(), NotTrusted> {
    check_about(path, &directory.metadata()?, geteuid().as_raw())
}

fn check_about(path: &Path, about: &Metadata, own: u32) -> Result<(), NotTrusted> {
    let shown = path.display();
    let whose = if own == geteuid().as_raw() { "you" } else { "root" };
    Err(NotTrusted::Distrust(if !about.is_dir() {
        format!("{shown}: this is to be a directory for your sessions, and is none")
    } else if about.uid() != own {
        format!(
            "{shown}: this directory for sessions belongs to user {}, not to {whose}; it is not \
             used",
            about.uid()
        )
    } else if about.mode() & (GROUP_WRITES | OTHERS_WRITE) != 0 {
        let mode = about.mode() & 0o7777;
        format!(
            "{shown}: others can write to this directory of your sessions (mode {mode:04o}); mend \
             it with: chmod 700 {shown}"
        )
    } else {
        return Ok(());
    }))
}

/// What is wrong with the owner or the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrustWhy {
    /// Somebody else's, of that number.
    Owner(u32),
    /// Somebody else may write, by this mode.
    Writable(u32),
}

impl TrustWhy {
    fn text(self) -> String {
        match self {
            Self::Owner(uid) => format!("it belongs to user {uid}, neither to you nor to root"),
            Self::Writable(mode) => format!("others can write to it (mode {mode:04o})"),
        }
    }

    fn text_of_directory(self) -> String {
        match self {
            Self::Owner(uid) => {
                format!("this directory belongs to user {uid}, who is neither you nor root,")
            }
            Self::Writable(mode) => format!("others can write to this directory (mode {mode:04o})"),
        }
    }
}

/// Whose files are trusted: the caller's and root's.
#[derive(Clone, Copy)]
struct Owners {
    caller: u32,
    /// Who may write as a group, too.
    group: Option<u32>,
}

impl Owners {
    fn of_caller() -> Self {
        Self { caller: geteuid().as_raw(), group: None }
    }
}

fn judge(about: &Metadata, writers: u32, owners: Owners) -> Option<TrustWhy> {
    let (owner, mode) = (about.uid(), about.mode() & 0o7777);
    if owner != owners.caller && owner != 0 {
        return Some(TrustWhy::Owner(owner));
    }
    let writers = if owners.group == Some(about.gid()) { writers & !GROUP_WRITES } else { writers };
    // What is no file of a file system (the pipe of a shell's `<(…)`) has no mode that says
    // anything.
    (mode & writers != 0 && (about.is_file() || about.is_dir())).then_some(TrustWhy::Writable(mode))
}

/// The directory of a path and, where that is a link, the one in which the file really is.
fn directories(path: &Path) -> io::Result<Vec<PathBuf>> {
    let parent = |path: &Path| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let (named, real) = (parent(path).canonicalize()?, parent(&path.canonicalize()?));
    Ok(if named == real { vec![named] } else { vec![named, real] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    /// A directory with a file, both as a careful person has them, in one of the caller's.
    struct Place(PathBuf, #[expect(dead_code, reason = "goes with this")] tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            let above = tempfile::tempdir().unwrap();
            let place = Self(above.path().join("place"), above);
            std::fs::create_dir(place.dir()).unwrap();
            std::fs::write(place.file(), "").unwrap();
            place.modes(0o755, 0o644);
            place
        }

        fn dir(&self) -> &Path {
            &self.0
        }

        fn file(&self) -> PathBuf {
            self.dir().join("sheaf.toml")
        }

        fn modes(&self, dir: u32, file: u32) {
            for (path, mode) in [(self.dir(), dir), (&self.file(), file)] {
                std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
            }
        }

        /// What is said when the file is found, and when it is named.
        fn said(&self) -> (String, String) {
            let said = |opened: Result<File, NotTrusted>| {
                let text =
                    opened.map_or_else(|refusal| refusal.text(&self.file()), |_| String::new());
                text.replace(self.dir().to_str().unwrap(), "DIR")
            };
            (said(open(&self.file())), said(open_named(&self.file())))
        }
    }

    #[test]
    fn config_writable_by_others_is_not_used() {
        let place = Place::new();
        for (dir, file) in
            [(0o755, 0o644), (0o700, 0o600), (0o775, 0o755), (0o1775, 0o644), (0o755, 0o444)]
        {
            place.modes(dir, file);
            assert_eq!(place.said(), (String::new(), String::new()), "{dir:o} {file:o}");
        }
        for mode in [0o664, 0o646, 0o666] {
            place.modes(0o755, mode);
            let told = format!(
                "DIR/sheaf.toml: others can write to it (mode {mode:04o}), and it can make you \
                 run commands: it is not used; mend it with: chmod go-w DIR/sheaf.toml"
            );
            assert_eq!(place.said(), (told.clone(), told));
        }
        for mode in [0o777, 0o1777] {
            place.modes(mode, 0o644);
            let told = format!(
                "DIR: others can write to this directory (mode {mode:04o}) and could change files \
                 there that make you run commands: they are not used; mend it with: chmod o-w DIR"
            );
            assert_eq!(
                place.said(),
                (told, String::new()),
                "a file that is named counts by itself"
            );
        }
        place.modes(0o755, 0o644);
    }

    #[test]
    fn link_counts_as_what_it_leads_to_and_as_where_it_is() {
        let (place, other) = (Place::new(), Place::new());
        let link = place.dir().join("link");
        symlink(other.file(), &link).unwrap();
        assert!(open(&link).is_ok());
        other.modes(0o777, 0o644);
        assert!(matches!(open(&link), Err(NotTrusted::Distrust(_))));
        other.modes(0o755, 0o666);
        assert!(matches!(open(&link), Err(NotTrusted::Distrust(_))));
        other.modes(0o755, 0o644);
        place.modes(0o777, 0o644);
        assert!(matches!(open(&link), Err(NotTrusted::Distrust(_))));
    }

    #[test]
    fn file_that_is_not_there_is_absent_and_no_more() {
        let place = Place::new();
        assert!(open(&place.dir().join("none")).unwrap_err().is_absence());
        assert!(open(&place.file().join("none")).unwrap_err().is_absence());
        place.modes(0o755, 0o666);
        assert!(!open(&place.file()).unwrap_err().is_absence());
    }

    #[test]
    fn config_owned_by_another_user_is_not_used() {
        const SOMEBODY: u32 = 4711;
        let place = Place::new();
        if !geteuid().is_root() {
            let (own, root) = (place.dir().metadata().unwrap(), Path::new("/").metadata().unwrap());
            assert_eq!(
                judge(&root, OTHERS_WRITE, Owners::of_caller()),
                None,
                "root's is as good as one's own"
            );
            let other = Owners { caller: geteuid().as_raw() + 1, group: None };
            assert_eq!(judge(&own, 0, other), Some(TrustWhy::Owner(own.uid())));
            return;
        }
        chown(place.file(), Some(SOMEBODY), None).unwrap();
        let told = "DIR/sheaf.toml: it belongs to user 4711, neither to you nor to root, and it \
                    can make you run commands: it is not used; chown it, or name a copy of your \
                    own";
        assert_eq!(place.said(), (told.to_owned(), told.to_owned()));
        chown(place.file(), Some(0), None).unwrap();
        chown(place.dir(), Some(SOMEBODY), None).unwrap();
        let told = "DIR: this directory belongs to user 4711, who is neither you nor root, and \
                    could change files there that make you run commands: they are not used; chown \
                    it, or name a file of your own";
        assert_eq!(place.said(), (told.to_owned(), String::new()));
        let about = place.file().metadata().unwrap();
        assert_eq!(
            judge(&about, GROUP_WRITES | OTHERS_WRITE, Owners { caller: SOMEBODY, group: None }),
            None,
            "root's is as good as one's own"
        );
        let told = check_private(place.dir()).unwrap_err().to_string();
        assert!(told.contains("belongs to user 4711, not to you"), "{told}");
        chown(place.dir(), Some(0), None).unwrap();
    }

    #[test]
    fn directory_of_sessions_is_its_users_alone() {
        let place = Place::new();
        assert!(check_private(&place.dir().join("none")).is_ok());
        for mode in [0o700, 0o755] {
            place.modes(mode, 0o644);
            assert!(check_private(place.dir()).is_ok());
        }
        for mode in [0o777, 0o1777, 0o770] {
            place.modes(mode, 0o644);
            let told = check_private(place.dir()).unwrap_err().to_string();
            let dir = place.dir().display();
            let mend = format!("(mode {mode:04o}); mend it with: chmod 700 {dir}");
            assert!(told.ends_with(&mend), "{told}");
        }
        place.modes(0o755, 0o644);
        assert!(check_private(&place.file()).unwrap_err().to_string().contains("is none"));
        let link = place.dir().join("link");
        symlink(place.dir(), &link).unwrap();
        assert!(check_private(&link).is_err(), "nobody can lead it elsewhere");
    }

    #[test]
    fn way_to_a_directory_is_its_users_or_roots() {
        let place = Place::new();
        let (shared, project) = (place.dir().join("shared"), place.dir().join("shared/project"));
        std::fs::create_dir_all(&project).unwrap();
        let project = project.canonicalize().unwrap();
        for (open, mode, is_trusted) in [
            (&shared, 0o755, true),
            (&shared, 0o1777, true),
            (&shared, 0o775, false),
            (&shared, 0o757, false),
            (&project, 0o775, false),
        ] {
            std::fs::set_permissions(open, PermissionsExt::from_mode(mode)).unwrap();
            let checked = check_way(&project);
            assert_eq!(checked.is_ok(), is_trusted, "{mode:o} {checked:?}");
            std::fs::set_permissions(open, PermissionsExt::from_mode(0o755)).unwrap();
        }
        if geteuid().is_root() {
            chown(&shared, Some(4711), None).unwrap();
            let told = check_way(&project).unwrap_err().to_string();
            assert!(told.contains("shared: this directory belongs to user 4711"), "{told}");
        }
    }

    /// It would wait for somebody who writes.
    #[test]
    fn pipe_of_another_user_is_not_opened() {
        if !geteuid().is_root() {
            return;
        }
        let place = Place::new();
        std::fs::remove_file(place.file()).unwrap();
        let (kind, mode) = (rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o666));
        rustix::fs::mknodat(rustix::fs::CWD, place.file(), kind, mode, 0).unwrap();
        chown(place.file(), Some(4711), None).unwrap();
        symlink(place.file(), place.dir().join("link")).unwrap();
        for name in ["sheaf.toml", "link"] {
            let path = place.dir().join(name);
            for refused in [open(&path), open_named(&path)] {
                let text = refused.unwrap_err().text(&path);
                assert!(text.contains("it belongs to user 4711"), "{text}");
            }
        }
        // One that the caller has named is a file like any; a link of another user's leads to none.
        chown(place.file(), Some(0), None).unwrap();
        let text = open(&place.file()).unwrap_err().text(&place.file());
        assert!(text.contains("it is no regular file"), "{text}");
        let link = place.dir().join("link");
        std::os::unix::fs::lchown(&link, Some(4711), None).unwrap();
        let text = open(&link).unwrap_err().text(&link);
        assert!(text.contains("it belongs to user 4711"), "{text}");
        let keep = std::fs::OpenOptions::new().read(true).write(true).open(place.file()).unwrap();
        io::Write::write_all(&mut &keep, b"x").unwrap();
        let mut read = [0];
        io::Read::read_exact(&mut open_named(&place.file()).unwrap(), &mut read).unwrap();
        assert_eq!(read, *b"x");
    }

    /// Whoever owns a directory above could move another one of root's into its place.
    #[test]
    fn file_below_a_directory_of_another_user_is_not_used() {
        const SOMEBODY: u32 = 4711;
        if !geteuid().is_root() {
            return sheaf_testing::skipped("only root can give directories away");
        }
        let place = Place::new();
        let (home, own) = (place.dir().join("home"), place.dir().join("home/own"));
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("sheaf.toml"), "").unwrap();
        assert!(open(&own.join("sheaf.toml")).is_ok());
        chown(&home, Some(SOMEBODY), None).unwrap();
        let Err(NotTrusted::Distrust(why)) = open(&own.join("sheaf.toml")) else { panic!("used") };
        let told = format!("{}: this directory belongs to user {SOMEBODY}, who", home.display());
        assert!(why.contains(&told), "{why}");
        chown(&home, Some(0), None).unwrap();
        for (mode, is_used) in [(0o777, false), (0o1777, true), (0o775, true)] {
            std::fs::set_permissions(&home, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(open(&own.join("sheaf.toml")).is_ok(), is_used, "{mode:o}");
        }
        // A link of another user's leads wherever it leads tomorrow.
        let link = place.dir().join("link");
        symlink("home", &link).unwrap();
        assert!(open(&link.join("own/sheaf.toml")).is_ok());
        std::os::unix::fs::lchown(&link, Some(SOMEBODY), None).unwrap();
        assert!(matches!(open(&link.join("own/sheaf.toml")), Err(NotTrusted::Distrust(_))));
        std::os::unix::fs::lchown(&link, Some(0), None).unwrap();
        std::fs::set_permissions(place.dir(), PermissionsExt::from_mode(0o1777)).unwrap();
        assert!(open(&home.join("own/sheaf.toml")).is_ok());
        assert!(matches!(open(&link.join("own/sheaf.toml")), Err(NotTrusted::Distrust(_))));
        // So it may be with a directory to which everybody may write, though it is sticky.
        std::fs::set_permissions(&home, PermissionsExt::from_mode(0o1777)).unwrap();
        assert!(matches!(open(&home.join("own/sheaf.toml")), Err(NotTrusted::Distrust(_))));
        // And with one to which its group may write, or others whom an access list names.
        std::fs::set_permissions(&home, PermissionsExt::from_mode(0o1775)).unwrap();
        assert!(open(&home.join("own/sheaf.toml")).is_ok());
        let entry = |(tag, may, id): (u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let list = [(1, 7, none), (2, 7, SOMEBODY), (4, 5, none), (0x10, 7, none), (0x20, 5, none)];
        let list = [2u32.to_le_bytes().to_vec(), list.map(entry).concat()].concat();
        let (name, flags) = ("system.posix_acl_access", rustix::fs::XattrFlags::empty());
        if rustix::fs::setxattr(&home, name, &list, flags).is_ok() {
            assert!(matches!(open(&home.join("own/sheaf.toml")), Err(NotTrusted::Distrust(_))));
            rustix::fs::removexattr(&home, name).unwrap();
        }
        chown(&home, None, Some(4711)).unwrap();
        assert!(matches!(open(&home.join("own/sheaf.toml")), Err(NotTrusted::Distrust(_))));
        // A user namespace knows few users, and the machine's root is none of them.
        assert!(is_whole("         0          0 4294967295\n") && is_whole(""));
        assert!(!is_whole("0 1000 1\n"));
    }
}
