//! What is wrong with a cluster beyond the words of its section: hosts that cannot be found out,
//! trees that are none, programs that are not there.
use super::{Cluster, ClusterGroups, Hosts, Sourced, hosts, tree};
use crate::clients::users_without_clients;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::groups::GroupSources;
use sheaf_core::Errno;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

impl Cluster {
    /// Everything that is wrong with it, each with where that is said.
    #[must_use]
    pub fn problems(&self, groups: &GroupSources, environment: &Environment) -> Vec<String> {
        let mut problems = Vec::new();
        let hosts = self.find_hosts(groups, environment);
        // Hosts that are missing are a problem that has been named.
        if let Err(error) = &hosts
            && !self.hosts.value.is_empty()
        {
            problems.push(format!("{}: {error}", self.hosts.origin));
        }
        let inner = self.find_inner_hosts(groups, environment);
        if let (Err(error), Some(said)) = (&inner, &self.inner_hosts) {
            problems.push(format!("{}: {error}", said.origin));
        }
        problems.extend(self.client_problems(hosts.as_ref().ok(), groups, environment));
        if let Err(why) = self.check_tree(hosts.as_ref().ok()) {
            problems.push(format!("{}: {why}", self.tree.origin));
        }
        for program in [self.check_ssh(environment), self.check_srun(environment)] {
            problems.extend(program.err().map(|error| crate::error::one_line(&error)));
        }
        problems
    }

    /// What is wrong with the settings of clients.
    fn client_problems(
        &self,
        hosts: Option<&Hosts>,
        groups: &GroupSources,
        environment: &Environment,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        if let (Some(users), Some(why)) = (&self.users, users_without_clients(self)) {
            problems.push(format!("{}: {why}", users.origin));
        }
        if let Some(said) = self.client_settings.host_set() {
            let groups = ClusterGroups::alone(groups);
            match (hosts::find(said, &groups, environment), hosts) {
                (Err(text), _) => {
                    problems.push(format!("{}: clients: {}", said.origin, groups.told(text)));
                }
                (Ok(named), Some(hosts)) => {
                    let unknown = named.names().iter().find(|name| hosts.leaf(name).is_none());
                    problems.extend(unknown.map(|name| {
                        let (origin, value, cluster) = (&said.origin, &said.value, &self.name.value);
                        format!("{origin}: clients = {value:?}: {name} is not a host of cluster {cluster}")
                    }));
                }
                (Ok(_), None) => {}
            }
        }
        problems
    }

    /// Whether the tree is one, and one of these hosts.
    fn check_tree(&self, hosts: Option<&Hosts>) -> Result<(), String> {
        tree::check(&self.tree.value, &self.name.value, hosts)
    }

    /// That the client is there that logs in to hosts, if one is named.
    pub(crate) fn check_ssh(&self, environment: &Environment) -> Result<(), SessionError> {
        self.ssh.as_ref().map_or(Ok(()), |said| check_program("ssh", said, environment))
    }

    /// That the launcher is there, if one is named.
    pub(crate) fn check_srun(&self, environment: &Environment) -> Result<(), SessionError> {
        self.srun.as_ref().map_or(Ok(()), |said| check_program("srun", said, environment))
    }
}

fn check_program(
    key: &str,
    said: &Sourced<String>,
    environment: &Environment,
) -> Result<(), SessionError> {
    let program = said.value.split_whitespace().next().unwrap_or_default();
    find_program(program, environment).map_err(|errno| SessionError::Io {
        what: format!("{}: {key} = {:?}: {program} cannot be run", said.origin, said.value),
        source: io::Error::from_raw_os_error(errno.0),
    })
}

/// Whether there is such a program, as the system looks for it.
fn find_program(program: &str, environment: &Environment) -> Result<(), Errno> {
    if program.contains('/') {
        return runnable(Path::new(program));
    }
    // Where nothing says where programs are, the system has places of its own.
    let Some(path) = environment.path("PATH") else { return Ok(()) };
    let mut found = Err(Errno::NOENT);
    for directory in std::env::split_paths(&path) {
        match runnable(&directory.join(program)) {
            Ok(()) => return Ok(()),
            Err(Errno::ACCES) => found = Err(Errno::ACCES),
            Err(_) => {}
        }
    }
    found
}

fn runnable(path: &Path) -> Result<(), Errno> {
    let about = std::fs::metadata(path).map_err(|error| Errno::from_io(&error))?;
    let can_run = about.is_file() && about.permissions().mode() & 0o111 != 0;
    if can_run { Ok(()) } else { Err(Errno::ACCES) }
}
