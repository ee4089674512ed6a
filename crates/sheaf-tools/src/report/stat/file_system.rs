//! `stat -f`: the file system of a file.
use super::format::{Directive, FileSystemPart, FormatPart};
use sheaf_file::FileSystem;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A line of a format, filled in.
pub fn text(line: &[FormatPart], path: &Path, found: &FileSystem) -> Vec<u8> {
    let mut text = Vec::new();
    for part in line {
        match part {
            FormatPart::Literal(literal) => text.extend_from_slice(literal.as_bytes()),
            FormatPart::Directive(Directive::OfFileSystem(part), pad) => {
                pad.put(&value(*part, path, found), &mut text);
            }
            // The format was read as one of file systems.
            FormatPart::Directive(..) => {}
        }
    }
    text
}

fn value(part: FileSystemPart, path: &Path, found: &FileSystem) -> Vec<u8> {
    use FileSystemPart as P;
    let number = match part {
        P::Path => return path.as_os_str().as_bytes().to_vec(),
        P::Id => return format!("{:x}", found.id).into_bytes(),
        P::Magic => return format!("{:x}", found.magic).into_bytes(),
        P::Kind => return kind(found.magic).into_bytes(),
        P::NameBytesMax => found.name_bytes_max,
        P::BlockSize => found.block_size,
        P::FragmentSize => found.fragment_size,
        P::Blocks => found.blocks,
        P::Free => found.blocks_free,
        P::Available => found.blocks_available,
        P::Inodes => found.inodes,
        P::FreeInodes => found.inodes_free,
    };
    number.to_string().into_bytes()
}

/// The usual name of a file system, by its number in `linux/magic.h`.
fn kind(magic: u64) -> String {
    let name = match magic {
        0x0102_1994 => "tmpfs",
        0x5846_5342 => "xfs",
        0xef53 => "ext2/ext3",
        0x9123_683e => "btrfs",
        0x2fc1_2fc1 => "zfs",
        0x6969 => "nfs",
        0x794c_7630 => "overlayfs",
        0x6573_5546 => "fuseblk",
        0x9fa0 => "proc",
        0x6265_6572 => "sysfs",
        0x6367_7270 => "cgroup2fs",
        0x0027_e0eb => "cgroupfs",
        0x1cd1 => "devpts",
        0x8584_58f6 => "ramfs",
        0x4d44 => "msdos",
        0x7371_7368 => "squashfs",
        0x0bd0_0bd0 => "lustre",
        0x4750_4653 => "gpfs",
        0x00c3_6400 => "ceph",
        0xff53_4d42 => "cifs",
        0xfe53_4d42 => "smb2",
        0xf2f5_2010 => "f2fs",
        0x6462_6720 => "debugfs",
        0x7472_6163 => "tracefs",
        0x1980_0202 => "mqueue",
        0x9584_58f6 => "hugetlbfs",
        0xcafe_4a11 => "bpf_fs",
        0x9660 => "isofs",
        0x6c6f_6f70 => "binfmt_misc",
        other => return format!("UNKNOWN (0x{other:x})"),
    };
    name.to_owned()
}
