//! Symbolic links and block devices, as a client sees them.
//!
//! The text of an absolute link is a path of its own host. A client's kernel would follow it on the client's machine, so
//! the client is given a relative text that leads to the same place of the export. A path that is not within
//! the export is taken as one of the export's root, as all tools of Sheaf take it. A link into the view itself keeps its
//! text, for the view is the same on each host. A text that would climb above the export is settled at the owner, whose
//! kernel takes `..` of the export's root as that root.
use super::nodes::{KnownNodes, path_of};
use crate::message::NodeAttributes;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use sheaf_core::Errno;
use sheaf_core::files::FileKind;
use sheaf_tree::service::identity::as_process;
use std::os::fd::AsFd;

/// How the client sees links and devices.
pub(super) struct ShowRule {
    /// The mount point of the client's view, if links are resolved within the export.
    pub links_within: Option<Vec<u8>>,
    /// Block devices are files that can be read.
    pub has_devices: bool,
}

/// Permission bits that allow to read a file.
const READ_BITS: u32 = 0o444;
/// The longest path.
const PATH_BYTES_MAX: usize = 4095;

impl ShowRule {
    /// The text of a link.
    pub fn read(&self, nodes: &KnownNodes, node: u64) -> Result<Vec<u8>, Errno> {
        let text = rustix::fs::readlinkat(&*nodes.fd(node)?, c"", Vec::new())?.into_bytes();
        self.resolved(nodes, node, text)
    }

    /// What the client is told instead of this text of a link.
    fn resolved(&self, nodes: &KnownNodes, node: u64, text: Vec<u8>) -> Result<Vec<u8>, Errno> {
        let Some(point) = &self.links_within else { return Ok(text) };
        let is_absolute = text.starts_with(b"/");
        let climbs = parts(&text).any(|part| part == b"..");
        let is_kept = if is_absolute { below(&text, point).is_some() } else { true };
        if is_kept && !climbs {
            return Ok(text);
        }
        let root = path(&*nodes.top)?;
        let directory = path(&*nodes.directory(node)?)?;
        let within = below(&directory, &root).ok_or(Errno::XDEV)?;
        let place = if is_absolute {
            below(&text, &root).unwrap_or(&text).to_vec()
        } else if levels_up(&text).is_some_and(|up| up <= parts(within).count()) {
            return Ok(text);
        } else {
            [within, b"/", &text].concat()
        };
        let place = if climbs { settled(&*nodes.top, &root, &place) } else { place };
        let inside = relative(within, &place);
        if inside.len() > PATH_BYTES_MAX { Err(Errno::NAMETOOLONG) } else { Ok(inside) }
    }

    /// Attributes of a node, of which a link has the size of the text that the client reads. The link is read once: that
    /// sets the time of its last access, which who looks at it does not change.
    pub fn shown(&self, nodes: &KnownNodes, found: NodeAttributes) -> NodeAttributes {
        match found.mode & libc::S_IFMT {
            libc::S_IFLNK if self.links_within.is_some() => {
                let text = nodes.link_text(found.node);
                let text = text.and_then(|text| self.resolved(nodes, found.node, text.to_vec()));
                NodeAttributes { size: text.map_or(found.size, |text| text.len() as u64), ..found }
            }
            libc::S_IFBLK if self.has_devices => {
                let mode = libc::S_IFREG | found.mode & READ_BITS;
                NodeAttributes { mode, size: device_bytes(found.rdev), rdev: 0, ..found }
            }
            _ => found,
        }
    }

    /// What an entry of a directory is.
    pub fn shown_kind(&self, kind: FileKind) -> FileKind {
        match kind {
            FileKind::BlockDevice if self.has_devices => FileKind::File,
            kind => kind,
        }
    }
}

/// The bytes of a block device, which is not opened for that. 0 if the kernel does not show it.
fn device_bytes(number: u64) -> u64 {
    const SECTOR_BYTES: u64 = 512;
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let text =
        as_process(|| std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/size")));
    let sectors = text.ok().and_then(|text| text.trim().parse::<u64>().ok());
    sectors.unwrap_or(0).saturating_mul(SECTOR_BYTES)
}

/// The path of a node below the export.
pub(super) fn place(nodes: &KnownNodes, node: u64) -> Result<Vec<u8>, Errno> {
    let (root, place) = (path(&*nodes.top)?, path(&*nodes.fd(node)?)?);
    Ok(below(&place, &root).ok_or(Errno::XDEV)?.to_vec())
}

/// The path of an open file on this host.
pub(super) fn path(file: impl AsFd) -> Result<Vec<u8>, Errno> {
    let path = as_process(|| rustix::fs::readlinkat(CWD, path_of(file), Vec::new()));
    Ok(path?.into_bytes())
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty())
}

/// How many directories a relative path goes up before it goes down; none if it goes up after that,
/// which may be from where a link leads.
fn levels_up(text: &[u8]) -> Option<usize> {
    let mut steps = parts(text).filter(|part| *part != b".").map(|part| part == b"..");
    let up = steps.by_ref().take_while(|is_up| *is_up).count();
    (!steps.any(|is_up| is_up)).then_some(up)
}

/// The same place below the root without `..`: a client's kernel would climb above the root. Where nothing is yet, or
/// the user may not look, each `..` takes back the name before it.
fn settled(top: impl AsFd, root: &[u8], place: &[u8]) -> Vec<u8> {
    let (names, slash) = (parts(place).collect::<Vec<_>>(), place.ends_with(b"/"));
    let found = |names: &[&[u8]]| {
        let path_there = if names.is_empty() { b".".to_vec() } else { names.join(&b'/') };
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(&top, path_there, flags, Mode::empty(), within).ok()?;
        Some(below(&path(file).ok()?, root)?.to_vec())
    };
    let of_parent = || match names.split_last() {
        Some((name, parents)) if *name != b".." && *name != b"." => {
            Some([&found(parents)?, &b"/"[..], name].concat())
        }
        _ => None,
    };
    let mut settled = found(&names).or_else(of_parent).unwrap_or_else(|| {
        let mut left: Vec<&[u8]> = Vec::new();
        for name in names.iter().copied().filter(|name| *name != b".") {
            if name == b".." {
                left.pop();
            } else {
                left.push(name);
            }
        }
        left.join(&b'/')
    });
    if slash && !settled.ends_with(b"/") {
        settled.push(b'/');
    }
    settled
}

/// What of a path is below a directory.
pub(super) fn below<'a>(path: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    let mut rest = path;
    for part in parts(directory) {
        let from = rest.iter().position(|byte| *byte != b'/')?;
        rest = rest[from..].strip_prefix(part)?;
        if !(rest.is_empty() || rest.starts_with(b"/")) {
            return None;
        }
    }
    Some(rest)
}

/// The path from one directory below a root to another place there.
fn relative(from: &[u8], to: &[u8]) -> Vec<u8> {
    let ends_in_slash = to.ends_with(b"/") && parts(to).next().is_some();
    let up = parts(from).map(|_| &b".."[..]);
    let mut text = up.chain(parts(to)).collect::<Vec<_>>().join(&b'/');
    if text.is_empty() {
        text.push(b'.');
    }
    if ends_in_slash {
        text.push(b'/');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_first_go_up_keep_their_text() {
        for (text, up) in [
            ("a/b", Some(0)),
            ("../../a", Some(2)),
            (".././../a/.", Some(2)),
            ("..", Some(1)),
            ("a/..", None),
            ("../a/../b", None),
        ] {
            assert_eq!(levels_up(text.as_bytes()), up, "{text}");
        }
    }

    #[test]
    fn absolute_paths_become_relative_to_the_directory_of_the_link() {
        for (root, directory, text, expected) in [
            ("/srv/files", "/srv/files/etc", "/srv/files/conf/c", "../conf/c"),
            ("/srv/files", "/srv/files", "/srv/files", "."),
            ("/srv/files", "/srv/files/a/b", "//srv//files/", "../.."),
            ("/srv/files", "/srv/files/a", "/srv/filesystem", "../srv/filesystem"),
            ("/", "/usr/bin", "/etc/alternatives/vi", "../../etc/alternatives/vi"),
            ("/", "/", "/etc/", "etc/"),
        ] {
            let within = below(directory.as_bytes(), root.as_bytes()).unwrap();
            let to = below(text.as_bytes(), root.as_bytes()).unwrap_or(text.as_bytes());
            let found = relative(within, to);
            assert_eq!(String::from_utf8(found).unwrap(), expected, "{text}");
        }
    }
}
