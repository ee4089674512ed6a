//! What a group is: addresses, and how its data are combined.
use crate::combined::GroupBinding;
use rustc_hash::FxHashMap;
use sheaf_core::Errno;
use sheaf_group::Target;
use sheaf_group::message::DataAggregation;

/// What `ctl` takes.
const COMMANDS: &str =
    "add HOSTSET:PATH, remove HOSTSET:PATH, link NAME -> HOSTSET:PATH, bind read data NAME, clear";
/// What stands between the name of a link and where it leads.
const LEADS_TO: &str = " -> ";

/// Files that belong to a group.
#[derive(Clone, Debug)]
pub(super) struct GroupRule {
    /// Name and number of the symbolic link that says it; without one it was said to `ctl`.
    pub link: Option<(Vec<u8>, u64)>,
    /// As it was said.
    pub said: Vec<u8>,
    pub target: Target,
}

/// A line of `ctl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GroupCommand {
    Add(String),
    Remove(String),
    /// A symbolic link with this name and this text.
    Link(String, String),
    Bind(GroupBinding),
    Clear,
}

/// What a group is made of.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupRules {
    pub rules: Vec<GroupRule>,
    pub binding: GroupBinding,
}

impl GroupCommand {
    /// A line; nothing of one that is empty or a comment.
    pub fn parse(line: &str) -> Result<Option<Self>, String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let address = || match rest {
            "" => Err(format!("{word}: say which files: {word} HOSTSET:PATH")),
            rest => Ok(rest.to_owned()),
        };
        match word {
            "add" => address().map(Self::Add),
            "remove" => address().map(Self::Remove),
            "link" => match rest.split_once(LEADS_TO) {
                Some((name, said)) => Ok(Self::Link(name.to_owned(), said.to_owned())),
                None => Err(format!("{line}: say where it leads: link NAME -> HOSTSET:PATH")),
            },
            "bind" => bind(rest).map(Self::Bind),
            "clear" if rest.is_empty() => Ok(Self::Clear),
            _ => return Err(format!("{line}: there is no such command; there are {COMMANDS}")),
        }
        .map(Some)
    }
}

fn bind(rest: &str) -> Result<GroupBinding, String> {
    let mut words = rest.split_whitespace();
    let (Some("read"), Some("data"), Some(name)) = (words.next(), words.next(), words.next())
    else {
        return Err(format!("bind {rest}: what can be bound is: bind read data NAME [COLUMN...]"));
    };
    let column = |word: &str| word.parse().ok().filter(|column| *column > 0);
    let columns = words
        .map(|word| column(word).ok_or_else(|| format!("{word}: columns are counted from 1")))
        .collect::<Result<Vec<u32>, _>>()?;
    match DataAggregation::by_name(name, &columns, 0, 0) {
        Some(_) => Ok(GroupBinding { aggregate: name.to_owned(), columns }),
        None => Err(format!(
            "{name}: there is no such aggregation; there are concatenate, packed, sum, avg, min, max, equal, \
             zero, count, classes, lines, checksum"
        )),
    }
}

/// A path without what leads nowhere; a slash at its end says that it is a directory.
fn plain(path: &str) -> String {
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    let end = if path.ends_with('/') { "/" } else { "" };
    parts.collect::<Vec<_>>().join("/") + end
}

impl GroupRules {
    /// What is asked: rules with the same path are one, of the hosts of all of them, so that none of its files counts
    /// twice.
    pub fn targets(&self) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        let mut by_path = FxHashMap::default();
        for Target { members, path } in self.rules.iter().map(|rule| &rule.target) {
            let at = *by_path.entry(plain(path)).or_insert(targets.len());
            match targets.get_mut(at) {
                Some(target) => target.members.union_with(members),
                None => targets.push(Target { members: members.clone(), path: path.clone() }),
            }
        }
        targets
    }

    /// Whether `ctl` was told to add this in the same words.
    pub fn has(&self, said: &str) -> bool {
        self.rules.iter().any(|rule| rule.link.is_none() && rule.said == said.as_bytes())
    }

    /// Takes away what was said to `ctl` in these words.
    pub fn remove(&mut self, said: &str) -> Result<(), String> {
        let is_it = |rule: &GroupRule| rule.link.is_none() && rule.said == said.as_bytes();
        let at = self.rules.iter().position(is_it);
        let at = at.ok_or_else(|| format!("remove {said}: nothing was added in these words"))?;
        self.rules.remove(at);
        Ok(())
    }

    /// Whether there is a link with this name and text.
    pub fn has_link(&self, name: &str, said: &str) -> bool {
        self.link(name.as_bytes()).is_some_and(|rule| rule.said == said.as_bytes())
    }

    pub fn link(&self, name: &[u8]) -> Option<&GroupRule> {
        self.rules.iter().find(|rule| rule.link.as_ref().is_some_and(|link| link.0 == name))
    }

    pub fn link_of(&self, number: u64) -> Result<&GroupRule, Errno> {
        let is_it = |rule: &&GroupRule| rule.link.as_ref().is_some_and(|link| link.1 == number);
        self.rules.iter().find(is_it).ok_or(Errno::NOENT)
    }

    /// Whether a line makes a link with this text, and with the name that stands in the line.
    fn made_by(line: &str, said: &[u8]) -> bool {
        let parsed = GroupCommand::parse(line);
        let Ok(Some(GroupCommand::Link(name, text))) = parsed else { return false };
        let is_one_line =
            !line.contains(char::is_control) && !line.contains(char::REPLACEMENT_CHARACTER);
        is_one_line && text.as_bytes() == said && line == format!("link {name}{LEADS_TO}{text}")
    }

    /// The commands that make such a group. They change nothing if the group is such already. A link that no
    /// command can make stands in a comment.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for rule in &self.rules {
            let said = String::from_utf8_lossy(&rule.said);
            text += &match &rule.link {
                None => format!("add {said}\n"),
                Some((name, _)) => {
                    let name = String::from_utf8_lossy(name);
                    let line = format!("link {name}{LEADS_TO}{said}");
                    let made = Self::made_by(&line, &rule.said);
                    if made { line + "\n" } else { format!("# {}\n", line.escape_debug()) }
                }
            };
        }
        if self.binding != GroupBinding::default() {
            let columns = self.binding.columns.iter().map(|column| format!(" {column}"));
            let columns: String = columns.collect();
            text += &format!("bind read data {}{columns}\n", self.binding.aggregate);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_core::RangeSet;

    #[test]
    fn commands_are_read_as_they_are_written() {
        let parse = |line: &str| GroupCommand::parse(line).unwrap();
        assert_eq!(parse("# add x"), None);
        assert_eq!(parse("  "), None);
        assert_eq!(
            parse("add n[1-9]:/var/log/my log"),
            Some(GroupCommand::Add("n[1-9]:/var/log/my log".to_owned()))
        );
        let (aggregate, columns) = ("avg".to_owned(), vec![1, 3]);
        let bound = GroupBinding { aggregate, columns };
        assert_eq!(parse("bind read data avg 1 3"), Some(GroupCommand::Bind(bound.clone())));
        let rules = GroupRules { rules: Vec::new(), binding: bound };
        assert_eq!(rules.text(), "bind read data avg 1 3\n");
        assert_eq!(GroupRules::default().text(), "");
    }

    #[test]
    fn links_are_commands_if_a_line_can_say_them() {
        let text = |name: &str, said: &str| {
            let target = Target { members: RangeSet::new(), path: String::new() };
            let link = Some((name.as_bytes().to_vec(), 1));
            let rules = vec![GroupRule { link, said: said.into(), target }];
            GroupRules { rules, binding: GroupBinding::default() }.text()
        };
        assert_eq!(text("one", "n1:/a b"), "link one -> n1:/a b\n");
        for (name, said) in [("one", "n1:/a b"), ("o ne", "../../hosts/n1/x"), ("a->b", "n1:/c->d")]
        {
            let parsed = GroupCommand::parse(&text(name, said)).unwrap();
            assert_eq!(parsed, Some(GroupCommand::Link(name.to_owned(), said.to_owned())));
        }
        for (name, said) in [
            ("a\nb", "n1:/x"),
            ("one", "n1:/x\nclear"),
            (" one", "n1:/x"),
            ("one", "n1:/x "),
            ("a -> b", "n1:/x"),
        ] {
            let text = text(name, said);
            assert!(text.starts_with("# ") && text.lines().count() == 1, "{text:?}");
        }
    }

    #[test]
    fn rules_with_one_path_are_asked_as_one() {
        let hosts = |leaves: &[u32]| leaves.iter().copied().collect::<RangeSet>();
        let rule = |leaves: &[u32], path: &str| GroupRule {
            link: None,
            said: Vec::new(),
            target: Target { members: hosts(leaves), path: path.to_owned() },
        };
        let rules = vec![
            rule(&[1], "/a/b"),
            rule(&[5], "/a/b/"),
            rule(&[2, 1], "/a//./b"),
            rule(&[3], "/[a]/b"),
            rule(&[2, 3], "/a/b"),
        ];
        let targets = GroupRules { rules, binding: GroupBinding::default() }.targets();
        let found: Vec<_> = targets.into_iter().map(|one| (one.members, one.path)).collect();
        let expected = [
            (hosts(&[1, 2, 3]), "/a/b".to_owned()),
            (hosts(&[5]), "/a/b/".to_owned()),
            (hosts(&[3]), "/[a]/b".to_owned()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn invalid_group_commands_are_reported_with_a_hint() {
        let wrong = |line: &str| GroupCommand::parse(line).unwrap_err();
        assert!(wrong("ad n1:/x").contains("there are add"));
        assert!(wrong("add").contains("add HOSTSET:PATH"));
        assert!(wrong("link one n1:/x").contains("link NAME -> HOSTSET:PATH"));
        assert!(wrong("clear all").contains("no such command"));
        assert!(wrong("bind write data sum").contains("bind read data NAME"));
        assert!(wrong("bind read data summ").contains("sum, avg"));
        assert!(wrong("bind read data sum 0").contains("from 1"));
    }
}
