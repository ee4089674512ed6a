//! Symbolic links, as a client sees them.
//!
//! The text of an absolute link is a path of its own host. A client's kernel would follow it on the client's machine, so
//! the client is given a relative text that leads to the same place of the export. A path that is not within
//! the export is taken as one of the export's root, as all tools of Sheaf take it. A link into the view itself keeps its
//! text, for the view is the same on each host.
use super::nodes::{KnownNodes, path_of};
use crate::message::NodeAttributes;
use rustix::fs::CWD;
use sheaf_core::Errno;
use sheaf_tree::service::identity::as_process;
use std::os::fd::AsFd;

/// The mount point of the client's view, if links are resolved within the export.
pub(super) struct LinkRule(pub Option<Vec<u8>>);

/// The longest path.
const PATH_BYTES_MAX: usize = 4095;

impl LinkRule {
    /// The text of a link.
    pub fn read(&self, nodes: &KnownNodes, node: u64) -> Result<Vec<u8>, Errno> {
        let text = rustix::fs::readlinkat(&*nodes.fd(node)?, c"", Vec::new())?.into_bytes();
        self.resolved(nodes, node, text)
    }

    /// What the client is told instead of this text of a link.
    fn resolved(&self, nodes: &KnownNodes, node: u64, text: Vec<u8>) -> Result<Vec<u8>, Errno> {
        match &self.0 {
            Some(point) if text.starts_with(b"/") && below(&text, point).is_none() => {
                let root = path(&*nodes.served.root)?;
                let directory = path(&*nodes.directory(node)?)?;
                let within = below(&directory, &root).ok_or(Errno::XDEV)?;
                let inside = relative(within, below(&text, &root).unwrap_or(&text));
                if inside.len() > PATH_BYTES_MAX { Err(Errno::NAMETOOLONG) } else { Ok(inside) }
            }
            _ => Ok(text),
        }
    }

    /// Attributes of a node, of which a link has the size of the text that the client reads. The link is read once: that
    /// sets the time of its last access, which who looks at it does not change.
    pub fn shown(&self, nodes: &KnownNodes, found: NodeAttributes) -> NodeAttributes {
        if self.0.is_none() || found.mode & libc::S_IFMT != libc::S_IFLNK {
            return found;
        }
        let text = nodes.link_text(found.node);
        let text = text.and_then(|text| self.resolved(nodes, found.node, text.to_vec()));
        NodeAttributes { size: text.map_or(found.size, |text| text.len() as u64), ..found }
    }
}

/// The path of a node below the export.
pub(super) fn place(nodes: &KnownNodes, node: u64) -> Result<Vec<u8>, Errno> {
    let (root, place) = (path(&*nodes.served.root)?, path(&*nodes.fd(node)?)?);
    Ok(below(&place, &root).ok_or(Errno::XDEV)?.to_vec())
}

/// The path of an open file on this host.
fn path(file: impl AsFd) -> Result<Vec<u8>, Errno> {
    let path = as_process(|| rustix::fs::readlinkat(CWD, path_of(file), Vec::new()));
    Ok(path?.into_bytes())
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty())
}

/// What of a path is below a directory.
fn below<'a>(path: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
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
