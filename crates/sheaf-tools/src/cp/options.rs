//! How to copy.
use super::CopyMode;
use super::message::Attrs;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_file::{ACCESS_LIST, FileKind, Metadata, Owner, Xattr, mode_without_list};
use std::os::fd::AsFd;

/// How to copy. The same in both directions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOptions {
    /// Copy directories with what is in them.
    pub recursive: bool,
    /// Keep mode, owner and times. A user who may not give files away keeps them, without an
    /// error and without set-id bits, as `cp -p` has it.
    pub preserve: bool,
    /// Copy what symbolic links point to, also beneath directories. Without it and without
    /// [`CopyOptions::recursive`], links that are named as sources are followed.
    pub dereference: bool,
    /// Copy symbolic links that are named as sources as links, also without directories.
    pub no_dereference: bool,
    /// Keep extended attributes other than access control lists.
    pub xattrs: bool,
    /// Keep access control lists.
    pub acls: bool,
    /// What cannot be kept of extended attributes is no error.
    pub lenient: bool,
    /// Keep names of one file as names of one file.
    pub hard_links: bool,
    /// Write blocks of zeros as holes. Holes of the source stay holes in any case.
    pub sparse: bool,
    /// Give the copies these permissions.
    pub chmod: Option<CopyMode>,
    /// Give the copies this owner: `user:group`, in the words of the host they are on.
    pub chown: Option<String>,
    /// Write over the old file in place: same inode, but a reader may see half of it.
    pub in_place: bool,
    /// Wait until the copies are on disk.
    pub sync: bool,
    /// The destination is the new name, even if it is a directory.
    pub exact_name: bool,
    /// Only say what would be copied.
    pub dry_run: bool,
    /// Bytes of contents to send or fetch in a second, at most.
    pub rate_max: Option<u64>,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            recursive: false,
            preserve: false,
            dereference: false,
            no_dereference: false,
            xattrs: false,
            acls: false,
            lenient: false,
            hard_links: false,
            sparse: false,
            chmod: None,
            chown: None,
            in_place: false,
            sync: true,
            exact_name: false,
            dry_run: false,
            rate_max: None,
        }
    }
}

impl CopyOptions {
    /// Everything that can be kept, as `cp -a`.
    #[must_use]
    pub fn archive() -> Self {
        Self {
            recursive: true,
            preserve: true,
            xattrs: true,
            acls: true,
            lenient: true,
            hard_links: true,
            ..Self::default()
        }
    }

    /// Whether a symbolic link that is named as a source is followed.
    pub(super) fn follows_named(&self) -> bool {
        self.dereference || !(self.recursive || self.no_dereference)
    }

    /// The extended attributes that are to be kept of a file. A file system without any has none.
    ///
    /// # Errors
    /// Why they cannot be read, unless what cannot be kept is no error.
    fn xattrs_of(&self, file: impl AsFd) -> Result<Vec<Xattr>, Errno> {
        if !(self.xattrs || self.acls) {
            return Ok(Vec::new());
        }
        let mut xattrs = match sheaf_file::xattrs_of(file) {
            Ok(xattrs) => xattrs,
            Err(errno) if errno == Errno::OPNOTSUPP || self.lenient => Vec::new(),
            Err(errno) => return Err(errno),
        };
        xattrs.retain(|xattr| self.keeps(&xattr.name));
        Ok(xattrs)
    }

    /// What is to be set of a copy of an open file. Without its access control list, the copy's group gets
    /// what the list gives the owning group, which may be less than the mode says; if the list
    /// cannot be read, the group gets nothing.
    ///
    /// # Errors
    /// Those of [`CopyOptions::xattrs_of`].
    pub(super) fn attrs_of(&self, file: impl AsFd, metadata: &Metadata) -> Result<Attrs, Errno> {
        let xattrs = self.xattrs_of(&file)?;
        let has_list = xattrs.iter().any(|xattr| xattr.name == ACCESS_LIST);
        let mut attrs = Attrs::of(metadata, xattrs, self);
        if !has_list && attrs.mode & 0o070 != 0 && metadata.kind != FileKind::Symlink {
            attrs.mode = match sheaf_file::access_list_of(&file) {
                Ok(None) => attrs.mode,
                Ok(Some(list)) => mode_without_list(attrs.mode, &list),
                Err(_) => attrs.mode & !0o070,
            };
        }
        Ok(attrs)
    }

    /// What is kept of what a host says that its source has.
    pub(super) fn kept(&self, said: Attrs) -> Attrs {
        let Attrs { mode, owner, atime, mtime, mut xattrs } = said;
        xattrs.retain(|xattr| self.keeps(&xattr.name));
        xattrs.shrink_to_fit();
        // No file has this number, which the kernel takes for none.
        let known = |id: Option<u32>| id.filter(|id| self.preserve && *id != u32::MAX);
        let owner = Owner { uid: known(owner.uid), gid: known(owner.gid) };
        let (atime, mtime) = if self.preserve { (atime, mtime) } else { (None, None) };
        Attrs { mode: mode & 0o7777, owner, atime, mtime, xattrs }
    }

    /// Whether an extended attribute of this name is kept.
    fn keeps(&self, xattr: &[u8]) -> bool {
        if xattr.starts_with(b"system.posix_acl_") { self.acls } else { self.xattrs }
    }
}

/// How far a copy is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files read or fetched completely.
    pub files: u64,
    /// Bytes of contents sent or fetched.
    pub bytes: u64,
    /// Bytes there are in all, where that is known.
    pub bytes_total: Option<u64>,
}
