//! Which machine this is, until it is started anew.
use std::sync::OnceLock;

/// A new one for each boot. Containers of one kernel share it.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The same below `/proc` itself.
const WITHIN_PROC: &str = "sys/kernel/random/boot_id";

/// The kernel's own identifier, which is read once; `None` where `/proc` hides it, as with `ProcSubset=pid`,
/// from whoever may mount no other.
#[must_use]
pub fn boot_id() -> Option<u128> {
    static MACHINE: OnceLock<Option<u128>> = OnceLock::new();
    *MACHINE.get_or_init(|| {
        let text = std::fs::read_to_string(BOOT_ID).ok().or_else(hidden)?;
        u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
    })
}

/// What a `/proc` says that is mounted nowhere, which takes root.
fn hidden() -> Option<String> {
    use rustix::fs::{Mode, OFlags};
    use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
    let proc = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    rustix::mount::fsconfig_create(&proc).ok()?;
    let flags = MountAttrFlags::MOUNT_ATTR_RDONLY;
    let proc = rustix::mount::fsmount(proc, FsMountFlags::FSMOUNT_CLOEXEC, flags).ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&proc, WITHIN_PROC, flags, Mode::empty()).ok()?;
    std::io::read_to_string(std::fs::File::from(file)).ok()
}

/// What this machine is called: its identifier, and its host name, which stands for an identifier that there
/// is none of. Logins of one machine may have one or the other of their own. Before each is what it is.
#[must_use]
pub fn machine_names() -> [(&'static str, Vec<u8>); 2] {
    let host = ("sheaf host", rustix::system::uname().nodename().to_bytes().to_vec());
    match std::fs::read("/etc/machine-id") {
        Ok(id) if !id.trim_ascii().is_empty() => [("sheaf machine", id), host],
        _ => [host.clone(), host],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_that_is_hidden_is_the_one_that_is_not() {
        // Whoever is not root may mount none.
        if let Some(hidden) = hidden() {
            assert_eq!(Some(hidden), std::fs::read_to_string(BOOT_ID).ok());
        }
    }
}
