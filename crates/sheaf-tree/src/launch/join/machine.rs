//! What machine a leaf is on, for the root: one that is among the hosts under two names would be
//! written to twice, and counted twice.
use super::super::start::plan::Station;
use crate::launch::{Program, Starter};
use crate::proto::control::{Machine, MachineId};
use crate::service::Configs;
use sheaf_core::{boot_id, machine_names};
use std::io;

/// The machine or container that this leaf is on; `None` where several leaves may be on one, and
/// where that is not known, which is logged.
///
/// It is known by its boot. A login may hide a part of `/proc`: what the machine is called stands for the boot then.
///
/// Containers of a machine are told apart by their PID namespaces and root directories. (A login
/// may have a mount namespace of its own, and shows the same files all the same.) The
/// identifier is of this session: that of another says nothing.
///
/// Where what is served depends on the host's name, as the export `/srv/%h` does, another directory
/// is another machine.
pub(super) fn machine_of(station: &Station, configs: &Configs) -> Option<Machine> {
    if !is_sole(&station.program) {
        return None;
    }
    let place = match place() {
        Ok(place) => place,
        Err(error) => {
            tracing::warn!(host = station.host, %error, "this machine may be in the session under two names");
            return None;
        }
    };
    let digest = |of: &str, what: &[u8]| {
        let mut hasher = blake3::Hasher::new();
        hasher.update(of.as_bytes());
        hasher.update(&station.secret.session);
        for number in place {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(what);
        for config in configs.values() {
            served(&mut hasher, config, &station.host);
        }
        let mut id = [0; 16];
        hasher.finalize_xof().fill(&mut id);
        id
    };
    let boot = boot_id().map(|boot| digest("sheaf boot", &boot.to_le_bytes()));
    let names = machine_names().map(|(of, name)| digest(of, &name));
    let id = MachineId { boot, names };
    Some(Machine { id, host: station.host.clone(), rank: station.rank })
}

/// Whether a machine is to have one leaf: not where leaves are processes of one machine by design,
/// or somebody else's programs, of which a host may have several.
fn is_sole(program: &Program) -> bool {
    program.starter != Starter::Fork && program.leaf.is_none() && !program.guests
}

/// Where on the machine this process is: root directory and PID namespace.
fn place() -> io::Result<[u64; 3]> {
    let (root, processes) = (rustix::fs::stat("/")?, rustix::fs::stat("/proc/self/ns/pid")?);
    Ok([root.st_dev, root.st_ino, processes.st_ino])
}

/// Tells what is served where that depends on the host's name: by the directory, if it is one. Services have it
/// before the first NUL of what they are told.
fn served(hasher: &mut blake3::Hasher, config: &[u8], host: &str) {
    if !config.windows(2).any(|pair| pair == b"%h") {
        return;
    }
    let path = config.split(|byte| *byte == 0).next().unwrap_or_default();
    let path = str::from_utf8(path).ok().map(|text| text.replace("%h", host));
    match path.filter(|path| path.starts_with('/')).and_then(|path| rustix::fs::stat(path).ok()) {
        Some(there) => {
            hasher.update(&there.st_dev.to_le_bytes());
            hasher.update(&there.st_ino.to_le_bytes());
        }
        None => drop(hasher.update(host.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::time::Duration;

    #[test]
    fn export_by_name_is_known_by_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["h1", "h2"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink("h1", dir.path().join("alias")).unwrap();
        let of = |config: &str, host: &str| {
            let mut hasher = blake3::Hasher::new();
            served(&mut hasher, config.as_bytes(), host);
            hasher.finalize()
        };
        let export = format!("{}/%h", dir.path().display());
        assert_eq!(of(&export, "h1"), of(&export, "alias"));
        assert_ne!(of(&export, "h1"), of(&export, "h2"));
        // As the servers of files are told it, with a umask.
        let export = format!("{export}\u{0}022");
        assert_eq!(of(&export, "h1"), of(&export, "alias"));
        assert_ne!(of(&export, "h1"), of(&export, "h2"));
        assert_eq!(of("/srv", "h1"), of("/srv", "h2"));
        assert_ne!(of("/nowhere/%h", "h1"), of("/nowhere/%h", "h2"));
    }

    #[test]
    fn programs_that_share_a_machine_by_design_are_not_told_apart() {
        let program = |starter| Program { starter, ..Program::new(PathBuf::new(), Vec::new()) };
        let come = || Starter::Come { patience: Duration::ZERO, until_asked: false };
        assert!(is_sole(&program(come())));
        assert!(!is_sole(&program(Starter::Fork)));
        assert!(!is_sole(&Program { guests: true, ..program(come()) }));
    }
}
