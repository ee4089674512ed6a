//! The group sources of an installed ClusterShell, so that `@group` means here what it means there.
use super::{SourceError, ini, upcall, yaml};
use crate::awaited::LocalWait;
use crate::environment::Environment;
use crate::error::io_text;
use crate::trust;
use sheaf_core::hostset::HostSet;
use sheaf_core::lock;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Files read of one directory of sources.
const FILES_MAX: usize = 1_024;

/// Every source, and which of them is the default.
#[derive(Debug, Default)]
pub struct ClusterShell {
    /// In the order in which they are defined.
    sources: Vec<(String, GroupSource)>,
    default: Option<String>,
}

/// One source of groups.
#[derive(Debug)]
pub enum GroupSource {
    /// Commands to ask.
    Upcall(Box<Upcall>),
    /// A table of a YAML file.
    Table(BTreeMap<String, String>),
}

/// Commands that answer questions, with the answers so far.
#[derive(Debug)]
pub struct Upcall {
    name: String,
    directory: PathBuf,
    map: String,
    all: Option<String>,
    list: Option<String>,
    /// What asks for the groups of one host.
    reverse: Option<String>,
    answers: Mutex<BTreeMap<String, String>>,
    /// It is never run.
    is_quiet: bool,
}

impl ClusterShell {
    /// The sources of the `groups.conf` files there are; none when there is no such file.
    pub fn find(directories: &[PathBuf]) -> Result<Self, SourceError> {
        let (mut sections, mut directory) = (ini::Sections::new(), None);
        for path in directories {
            let file = path.join("groups.conf");
            let Some(text) = read_if_there(&file)? else { continue };
            ini::merge(&mut sections, &text).map_err(|error| in_file(&file, &error))?;
            directory = Some(path);
        }
        match directory {
            Some(directory) => Self::read(&sections, directory),
            None => Ok(Self::default()),
        }
    }

    /// The sources of one `groups.conf`, whose directory is `$CFGDIR`.
    pub fn of_file(file: &Path) -> Result<Self, SourceError> {
        let _awaited = LocalWait::file(file);
        let text = trust::open_named(file).and_then(|file| Ok(std::io::read_to_string(file)?));
        let text = text.map_err(|why| SourceError(why.text(file)))?;
        let mut sections = ini::Sections::new();
        ini::merge(&mut sections, &text).map_err(|error| in_file(file, &error))?;
        let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        Self::read(&sections, directory.unwrap_or(Path::new(".")))
    }

    /// The same, whose sources run no command.
    pub fn quiet(mut self) -> Self {
        for (_, source) in &mut self.sources {
            if let GroupSource::Upcall(upcall) = source {
                upcall.is_quiet = true;
            }
        }
        self
    }

    fn read(sections: &ini::Sections, directory: &Path) -> Result<Self, SourceError> {
        let main = sections.iter().find(|(name, _)| name == "Main").map(|(_, values)| values);
        let main = |key: &str| main.and_then(|values| values.get(key)).map(String::as_str);
        let mut shell = Self::default();
        for part in directories(main("groupsdir").or(main("confdir")), directory) {
            for file in files(&part, "conf")? {
                let Some(text) = read_if_there(&file)? else { continue };
                let mut more = ini::Sections::new();
                ini::merge(&mut more, &text).map_err(|error| in_file(&file, &error))?;
                shell.add_upcalls(&more, &part).map_err(|error| in_file(&file, &error))?;
            }
        }
        for part in directories(main("autodir"), directory) {
            for file in files(&part, "yaml")? {
                let Some(text) = read_if_there(&file)? else { continue };
                for (name, groups) in yaml::parse(&text).map_err(|error| in_file(&file, &error))? {
                    let source = GroupSource::Table(groups);
                    shell.add(name, source).map_err(|error| in_file(&file, &error))?;
                }
            }
        }
        let file = directory.join("groups.conf");
        shell.add_upcalls(sections, directory).map_err(|error| in_file(&file, &error))?;
        shell.default = match main("default").filter(|name| !name.is_empty()) {
            Some(name) if shell.find_source(name).is_none() => {
                return Err(in_file(
                    &file,
                    &format!("default names a group source {name:?} that there is not"),
                ));
            }
            Some(name) => Some(name.to_owned()),
            None => shell.sources.first().map(|(name, _)| name.clone()),
        };
        Ok(shell)
    }

    fn add_upcalls(&mut self, sections: &ini::Sections, directory: &Path) -> Result<(), String> {
        for (section, values) in sections {
            for name in section.split(',').map(str::trim).filter(|name| *name != "Main") {
                // A command without words is none.
                let value =
                    |key: &str| values.get(key).filter(|command| !command.is_empty()).cloned();
                let upcall = Upcall {
                    name: name.to_owned(),
                    directory: directory.to_path_buf(),
                    map: value("map").ok_or_else(|| format!("[{section}] says no map command"))?,
                    all: value("all"),
                    list: value("list"),
                    reverse: value("reverse"),
                    answers: Mutex::default(),
                    is_quiet: false,
                };
                self.add(name.to_owned(), GroupSource::Upcall(Box::new(upcall)))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, name: String, source: GroupSource) -> Result<(), String> {
        if self.find_source(&name).is_some() {
            return Err(format!("group source {name:?} is defined twice"));
        }
        self.sources.push((name, source));
        Ok(())
    }

    fn find_source(&self, name: &str) -> Option<&GroupSource> {
        self.sources.iter().find(|(have, _)| have == name).map(|(_, source)| source)
    }

    /// Whether there is no source at all.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The names of the sources, the default first.
    pub fn names(&self) -> Vec<String> {
        let others = self
            .sources
            .iter()
            .map(|(name, _)| name)
            .filter(|name| Some(*name) != self.default.as_ref());
        self.default.iter().chain(others).cloned().collect()
    }

    /// The source of this name, or the default one.
    pub fn source(&self, name: Option<&str>) -> Result<&GroupSource, SourceError> {
        let Some(name) = name.or(self.default.as_deref()) else {
            return Err(SourceError::new("there is no default group source"));
        };
        self.find_source(name).ok_or_else(|| {
            let near =
                crate::config::nearest(name, self.sources.iter().map(|(name, _)| name.as_str()));
            let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            SourceError(format!("no group source {name}{hint}"))
        })
    }
}

impl GroupSource {
    /// The hosts of a group, as a host set; empty when there is no such group.
    pub fn map(&self, group: &str) -> Result<String, SourceError> {
        match self {
            Self::Upcall(upcall) => upcall.ask(&upcall.map, "GROUP", group),
            Self::Table(groups) => Ok(groups.get(group).cloned().unwrap_or_default()),
        }
    }

    /// Every host of the source: what it says, or else all of its groups together.
    pub fn all(&self) -> Result<String, SourceError> {
        match self {
            Self::Upcall(upcall) if upcall.all.is_some() => {
                upcall.ask_optional("all", upcall.all.as_deref())
            }
            Self::Table(groups) if groups.contains_key("all") => Ok(groups["all"].clone()),
            _ => {
                let groups = self.list()?;
                let hosts: Result<Vec<String>, _> =
                    groups.iter().map(|group| self.map(group)).collect();
                Ok(hosts?.join(" "))
            }
        }
    }

    /// The names of the groups.
    pub fn list(&self) -> Result<Vec<String>, SourceError> {
        match self {
            Self::Upcall(upcall) => {
                let names = upcall.ask_optional("list", upcall.list.as_deref())?;
                Ok(names.split_whitespace().flat_map(spelled_out).collect())
            }
            // A name with a blank is listed as nodeset lists it: as two, which stand for nothing.
            Self::Table(groups) => {
                let names = groups.keys().flat_map(|name| name.split_whitespace());
                Ok(names.flat_map(spelled_out).collect())
            }
        }
    }

    /// The groups of a host, where there is a command that tells. `None`: every group that is
    /// listed may have it.
    pub fn groups_of(&self, host: &str) -> Result<Option<Vec<String>>, SourceError> {
        let Self::Upcall(upcall) = self else { return Ok(None) };
        let Some(command) = &upcall.reverse else {
            // Who can neither list nor tell has no groups that one could find.
            return Ok(if upcall.list.is_some() { None } else { Some(Vec::new()) });
        };
        let names = upcall.ask(command, "NODE", host)?;
        Ok(Some(names.split_whitespace().flat_map(spelled_out).collect()))
    }
}

/// The groups that a listed name stands for: in `@rack[1-2]` the brackets are ranges, so they are
/// here. What is malformed stays as it is, and fails when it is asked for.
fn spelled_out(name: &str) -> Vec<String> {
    match HostSet::parse(name) {
        Ok(names) if name.contains('[') => names.iter().collect(),
        _ => vec![name.to_owned()],
    }
}

impl Upcall {
    fn ask_optional(&self, what: &str, command: Option<&str>) -> Result<String, SourceError> {
        match command {
            Some(command) => self.ask(command, "SOURCE", &self.name),
            None => Err(SourceError(format!("group source {} has no {what} command", self.name))),
        }
    }

    fn ask(&self, command: &str, variable: &str, value: &str) -> Result<String, SourceError> {
        if !upcall::is_plain(value) {
            return Err(SourceError(format!(
                "{value:?} cannot be asked of group source {}",
                self.name
            )));
        }
        let directory = self.directory.to_string_lossy();
        let values = [(variable, value), ("SOURCE", &self.name), ("CFGDIR", &directory)];
        let command = upcall::substitute(command, &values);
        if self.is_quiet {
            return Err(upcall::not_run(&command));
        }
        let answers = || lock(&self.answers);
        if let Some(answer) = answers().get(&command) {
            return Ok(answer.clone());
        }
        let answer = upcall::run(&command, &self.directory)?;
        let answer = answer.trim().to_owned();
        answers().insert(command, answer.clone());
        Ok(answer)
    }
}

/// The text of a file that was found; `None` when there is none.
fn read_if_there(path: &Path) -> Result<Option<String>, SourceError> {
    let _awaited = LocalWait::file(path);
    match trust::open(path).and_then(|file| Ok(std::io::read_to_string(file)?)) {
        Ok(text) => Ok(Some(text)),
        Err(why) if why.is_absence() => Ok(None),
        Err(why) => Err(SourceError(why.text(path))),
    }
}

fn in_file(file: &Path, error: &str) -> SourceError {
    SourceError(format!("{}: {error}", file.display()))
}

/// Where ClusterShell looks for its files; a later directory goes before an earlier one.
pub fn configuration_directories(environment: &Environment) -> Vec<PathBuf> {
    let home = environment.path("HOME");
    let config = environment
        .path("XDG_CONFIG_HOME")
        .or_else(|| home.as_ref().map(|home| home.join(".config")));
    let mut directories = vec![PathBuf::from("/etc/clustershell")];
    directories.extend(home.map(|home| home.join(".local/etc/clustershell")));
    directories.extend(config.map(|config| config.join("clustershell")));
    directories.extend(environment.path("CLUSTERSHELL_CFGDIR"));
    directories
}

/// The directories a setting lists, `$CFGDIR` replaced, each once, those that exist.
fn directories(setting: Option<&str>, directory: &Path) -> Vec<PathBuf> {
    let own = directory.to_string_lossy();
    let mut found: Vec<PathBuf> = Vec::new();
    for part in setting.unwrap_or_default().split_whitespace() {
        let path =
            PathBuf::from(upcall::substitute(part.trim_matches(['"', '\'']), &[("CFGDIR", &own)]));
        // Comparing components takes doubled and trailing slashes as one.
        if path.is_dir() && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// The files of a directory with this ending, by name.
fn files(directory: &Path, ending: &str) -> Result<Vec<PathBuf>, SourceError> {
    trust::check_directory(directory).map_err(|why| SourceError(why.text(directory)))?;
    let unreadable = |error: std::io::Error| SourceError(io_text(directory, &error));
    let entries = std::fs::read_dir(directory).map_err(unreadable)?;
    let paths: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<Result<_, _>>().map_err(unreadable)?;
    let visible = |path: &PathBuf| {
        path.extension().is_some_and(|have| have == ending)
            && path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'))
    };
    let mut files: Vec<PathBuf> = paths.into_iter().filter(visible).collect();
    files.sort();
    if files.len() > FILES_MAX {
        let text =
            format!("{}: {} files are more than {FILES_MAX}", directory.display(), files.len());
        return Err(SourceError(text));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn sources_come_from_all_three_kinds_of_file() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at("conf.d")).unwrap();
        fs::create_dir_all(at("groups.d")).unwrap();
        fs::write(at("conf.d/x.conf"), "[echo,e]\nmap: echo $SOURCE-$GROUP\nlist: echo a b\n")
            .unwrap();
        fs::write(at("groups.d/r.yaml"), "racks:\n  r1: 'n[1-2]'\n  r2: n3\n").unwrap();
        fs::write(at("groups.d/local.cfg"), "adm: n0\nall: n[0-9]\n").unwrap();
        let text = "[Main]\ndefault: local\nconfdir: $CFGDIR/conf.d\nautodir: $CFGDIR/groups.d\n[local]\n\
                    map: sed -n 's/^$GROUP:\\(.*\\)/\\1/p' $CFGDIR/groups.d/local.cfg\n";
        let mut sections = ini::Sections::new();
        ini::merge(&mut sections, text).unwrap();
        let shell = ClusterShell::read(&sections, home.path()).unwrap();
        assert_eq!(shell.names(), ["local", "echo", "e", "racks"]);
        assert_eq!(shell.source(None).unwrap().map("adm").unwrap(), "n0");
        assert_eq!(shell.source(None).unwrap().map("none").unwrap(), "");
        assert_eq!(shell.source(Some("e")).unwrap().all().unwrap(), "e-a e-b");
        assert_eq!(shell.source(Some("racks")).unwrap().all().unwrap(), "n[1-2] n3");
        assert!(shell.source(None).unwrap().map("$(touch x)").is_err());
        let error = shell.source(Some("rack")).unwrap_err();
        assert_eq!(error.to_string(), "no group source rack; did you mean racks?");
    }
}
