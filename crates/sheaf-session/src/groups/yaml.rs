//! ClusterShell's `groups.d/*.yaml`: sources, each a table of groups.
use crate::config::without_mark;
use std::collections::BTreeMap;
use yaml_rust2::{Yaml, YamlLoader};

/// The groups of each source.
pub type Sources = Vec<(String, BTreeMap<String, String>)>;

/// Reads one file.
pub fn parse(text: &str) -> Result<Sources, String> {
    let documents =
        YamlLoader::load_from_str(without_mark(text)).map_err(|error| error.to_string())?;
    let Some(document) = documents.first() else { return Ok(Sources::new()) };
    let sources = document.as_hash().ok_or("the file is not a table of group sources")?;
    let mut read = Sources::new();
    for (name, groups) in sources {
        let name = name
            .as_str()
            .ok_or_else(|| format!("source {name:?} is not a text; put it in quotes"))?;
        let groups =
            groups.as_hash().ok_or_else(|| format!("source {name:?} is not a table of groups"))?;
        let mut nodes = BTreeMap::new();
        for (group, value) in groups {
            let group = group
                .as_str()
                .ok_or_else(|| format!("source {name:?} has a group whose name is not a text"))?;
            let value =
                hosts(value).ok_or_else(|| format!("group @{name}:{group} is not a host set"))?;
            nodes.insert(group.to_owned(), value);
        }
        read.push((name.to_owned(), nodes));
    }
    Ok(read)
}

/// A host set, or a list of them, which means their union.
fn hosts(value: &Yaml) -> Option<String> {
    match value {
        Yaml::String(text) => Some(text.clone()),
        Yaml::Array(parts) => {
            let parts: Option<Vec<&str>> = parts.iter().map(Yaml::as_str).collect();
            Some(parts?.join(","))
        }
        Yaml::Null => Some(String::new()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sources_and_groups_are_read() {
        let read = parse(
            "\u{feff}roles:\n    adm: 'n0'\n    io: '@racks:r2,n2'\n    both: [n1, 'n[3-4]']\n",
        )
        .unwrap();
        assert_eq!(read[0].0, "roles");
        assert_eq!(read[0].1["io"], "@racks:r2,n2");
        assert_eq!(read[0].1["both"], "n1,n[3-4]");
        assert!(parse("- a\n").is_err());
        assert!(parse("roles: n1\n").is_err());
        assert!(parse("").unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in "[\\[\\]{}a-z:'\n -]{0,60}") {
            let _ = parse(&text);
        }
    }
}
