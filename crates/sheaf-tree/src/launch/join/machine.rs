//! What machine a leaf is on, for the root: one that is among the hosts under two names would be
//! written to twice, and counted twice.
use super::super::start::plan::Station;
use crate::launch::{Program, Starter};
use crate::proto::control::Machine;
use crate::service::Configs;
use sheaf_core::boot_id;
use std::io;

/// The machine or container that this leaf is on; `None` where several leaves may be on one, and
/// where that is not known, which is logged.
///
/// Containers of a machine are told apart by their PID namespaces and root directories. (A login
/// may have a mount namespace of its own, and shows the same files all the same.) The
/// identifier is of this session: that of another says nothing.
///
/// Where what is served depends on the host's name, as the export `/srv/%h` does, another name is
/// another machine.
pub(super) fn machine_of(station: &Station, configs: &Configs) -> Option<Machine> {
    if !is_sole(&station.program) {
        return None;
    }
    let by_name = configs.values().any(|config| config.windows(2).any(|pair| pair == b"%h"));
    let found = identify(&station.secret.session, if by_name { &station.host } else { "" });
    let log = |error: &io::Error| {
        tracing::warn!(host = station.host, %error, "this machine may be in the session under two names");
    };
    Some(Machine { id: found.inspect_err(log).ok()?, host: station.host.clone() })
}

/// Whether a machine is to have one leaf: not where leaves are processes of one machine by design,
/// or somebody else's programs, of which a host may have several. In a job, Slurm sees to it.
fn is_sole(program: &Program) -> bool {
    let come_alone = match program.starter {
        Starter::Ssh(_) | Starter::Come { until_asked: true, .. } => true,
        Starter::Fork | Starter::Come { .. } => false,
    };
    come_alone && program.leaf.is_none() && !program.guests
}

fn identify(session: &[u8; 16], name: &str) -> io::Result<[u8; 16]> {
    let boot = boot_id().ok_or_else(|| io::Error::other("the boot has no identifier"))?;
    let (root, processes) = (rustix::fs::stat("/")?, rustix::fs::stat("/proc/self/ns/pid")?);
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"sheaf machine");
    hasher.update(session);
    hasher.update(&boot.to_le_bytes());
    for number in [root.st_dev, root.st_ino, processes.st_ino] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(name.as_bytes());
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::time::Duration;

    #[test]
    fn machine_is_the_same_in_one_session_and_another_in_the_next() {
        let [one, two] = [[1; 16], [2; 16]].map(|session| identify(&session, "").unwrap());
        assert_eq!(one, identify(&[1; 16], "").unwrap());
        assert_ne!(one, two);
        assert_ne!(identify(&[1; 16], "h1").unwrap(), identify(&[1; 16], "h2").unwrap());
    }

    #[test]
    fn programs_that_share_a_machine_by_design_are_not_told_apart() {
        let program = |starter| Program { starter, ..Program::new(PathBuf::new(), Vec::new()) };
        let come = |until_asked| Starter::Come { patience: Duration::ZERO, until_asked };
        assert!(is_sole(&program(come(true))));
        assert!(!is_sole(&program(come(false))));
        assert!(!is_sole(&program(Starter::Fork)));
        assert!(!is_sole(&Program { guests: true, ..program(come(true)) }));
    }
}
