//! Which cluster is meant, by the file and by what is chosen.
use super::said::{self, Said};
use super::{Cluster, ClusterSection, ConfigFile, Launch, Sourced, nearest, own_name, some_of};
use crate::choices::Choices;
use crate::clients::ClientSettings;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::groups::GroupSources;

pub(super) const TREE_DEFAULT: &str = "auto";
pub(super) const EXPORT_DEFAULT: &str = "/";

/// An export that only a shell understands is none: no host opens it.
pub(super) fn check_export(export: &str) -> Result<(), &'static str> {
    if export.starts_with('~') {
        return Err("~ is for shells to replace, and is in quotes or behind = here: write the \
                    directory's path");
    }
    if export.contains("%H") && !export.contains("%h") {
        return Err("%H is not replaced: write %h for the host's name");
    }
    Ok(())
}

/// The cluster the options and the file mean, with the options' changes.
pub(super) fn choose(
    file: &ConfigFile,
    groups: &GroupSources,
    choices: &Choices,
    environment: &Environment,
) -> Result<Said, SessionError> {
    let hosts = (!choices.on_hosts.is_empty()).then(|| choices.on_hosts.join(","));
    let made =
        |cluster| Said { cluster, selects: false, is_free: false, note: None, mixture: None };
    let mut said = match (choices.embedded, choices.processes, hosts) {
        (None, None, Some(hosts)) => {
            said::find(file, &said::Around { groups, environment }, choices, hosts)?
        }
        (None, None, None) => made(match named(file, choices)? {
            Some((name, section)) => section.cluster(name),
            None => this_machine(),
        }),
        (_, _, hosts) if hosts.is_some() || choices.launch.is_some() => {
            let text = "--embedded N and --processes N say what the hosts are and how they are \
                        started: write --hosts HOSTSET --launch processes for hosts of other names";
            return Err(SessionError::Choice(text.to_owned()));
        }
        (Some(count), _, _) => made(numbered(count, Launch::Embedded, "--embedded")),
        (_, Some(count), _) => made(numbered(count, Launch::Processes, "--processes")),
    };
    let cluster = &mut said.cluster;
    if let Some(launch) = choices.launch {
        cluster.launch = Sourced::option(launch, "--launch");
    }
    if let Some(user) = &choices.user {
        cluster.user = Some(Sourced::option(user.clone(), "--user"));
    }
    if choices.sudo {
        cluster.sudo = Some(Sourced::option(true, "--sudo"));
    }
    if let Some(tree) = &choices.tree {
        cluster.tree = Sourced::option(tree.clone(), "--tree");
    }
    if let Some(export) = &choices.export {
        check_export(export)
            .map_err(|why| SessionError::Choice(format!("--export {export}: {why}")))?;
        cluster.export = Sourced::option(export.clone(), "--export");
    }
    if let Some(hosts) = &choices.inner_hosts {
        cluster.inner_hosts = Some(Sourced::option(hosts.clone(), "--inner-hosts"));
    }
    if let Some(link) = choices.link {
        cluster.link = Some(Sourced::option(link, "--link"));
    }
    Ok(said)
}

/// The cluster as the file has it, where that and not the name of a session says what is joined.
pub(super) fn section(file: &ConfigFile, choices: &Choices) -> Option<Cluster> {
    let by_name = choices.session.is_some() && choices.cluster.is_none();
    if by_name || choices.embedded.is_some() || choices.processes.is_some() {
        return None;
    }
    let (name, section) = named(file, choices).ok()??;
    Some(section.cluster(name))
}

/// The section of the file that is meant: by option, by the file's `default`, or as its only one.
pub(super) fn named<'a>(
    file: &'a ConfigFile,
    choices: &Choices,
) -> Result<Option<(Sourced<String>, &'a ClusterSection)>, SessionError> {
    let asked = match &choices.cluster {
        Some(name) => Some(Sourced::option(name.clone(), "--cluster")),
        None => file.default.clone(),
    };
    if let Some(name) = asked {
        return match file.clusters.get(&name.value) {
            Some(section) => Ok(Some((name, section))),
            None => Err(unknown_cluster(file, &name.value)),
        };
    }
    let mut sections = file.clusters.iter();
    match (sections.next(), sections.next()) {
        (None, _) => Ok(None),
        (Some((name, section)), None) => {
            Ok(Some((Sourced { value: name.clone(), origin: section.origin.clone() }, section)))
        }
        (Some((first, _)), Some(_)) => Err(SessionError::Cluster(format!(
            "{} has {} clusters ({}): choose one with --cluster, or by default = {first:?} in the \
             file",
            file.name(),
            file.clusters.len(),
            some_of(file.clusters.keys())
        ))),
    }
}

fn unknown_cluster(file: &ConfigFile, name: &str) -> SessionError {
    let Some(path) = &file.path else {
        return SessionError::Cluster(format!(
            "no cluster {name}: no sheaf.toml was found; see sheaf config --help"
        ));
    };
    let known = file.clusters.keys().map(String::as_str);
    SessionError::Cluster(match nearest(name, known) {
        Some(near) => format!("no cluster {name} in {}; did you mean {near}?", path.display()),
        None if file.clusters.is_empty() => {
            format!(
                "no cluster {name} in {}: it names none; see sheaf config --help",
                path.display()
            )
        }
        None => {
            let are = if file.clusters.len() == 1 { "is" } else { "are" };
            format!(
                "no cluster {name} in {}; there {are} {}",
                path.display(),
                some_of(file.clusters.keys())
            )
        }
    })
}

/// The cluster of `--embedded N` and `--processes N`.
fn numbered(count: u32, launch: Launch, option: &'static str) -> Cluster {
    let hosts = if count == 1 { "n1".to_owned() } else { format!("n[1-{count}]") };
    Cluster { hosts: Sourced::option(hosts, option), ..ad_hoc(&launch.to_string(), launch, option) }
}

/// A cluster that no file names, without its hosts.
pub(super) fn ad_hoc(name: &str, launch: Launch, option: &'static str) -> Cluster {
    let (name, hosts) = (Sourced::option(name.to_owned(), option), String::new());
    unnamed(name, Sourced::option(hosts, option), Sourced::option(launch, option))
}

/// The cluster there is without any configuration.
fn this_machine() -> Cluster {
    let (name, hosts) = (Sourced::default("local".to_owned()), Sourced::default(own_name()));
    unnamed(name, hosts, Sourced::default(Launch::Embedded))
}

/// A cluster of which no file says more.
fn unnamed(name: Sourced<String>, hosts: Sourced<String>, launch: Sourced<Launch>) -> Cluster {
    Cluster {
        name,
        hosts,
        launch,
        tree: Sourced::default(TREE_DEFAULT.to_owned()),
        export: Sourced::default(EXPORT_DEFAULT.to_owned()),
        inner_hosts: None,
        link: None,
        listen: None,
        ports: None,
        program: None,
        remote_dir: None,
        ssh: None,
        srun: None,
        users: None,
        client_settings: ClientSettings::default(),
        user: None,
        sudo: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::*;

    #[test]
    fn options_make_clusters_of_their_own() {
        let choices =
            Choices { embedded: Some(4), tree: Some("flat".into()), ..Choices::default() };
        let (file, groups) = (ConfigFile::default(), GroupSources::default());
        let cluster = choose(&file, &groups, &choices, &Environment::default()).unwrap().cluster;
        assert_eq!(cluster.hosts.value, "n[1-4]");
        assert_eq!(cluster.launch.value, Launch::Embedded);
        assert_eq!(cluster.tree, Sourced::option("flat".to_owned(), "--tree"));
        assert_eq!(cluster.export.origin, Origin::Default);
    }
}
