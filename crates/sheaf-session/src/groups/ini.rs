//! Files of sections and `key: value` lines, as Python's ConfigParser reads them.
use crate::config::without_mark;
use std::collections::BTreeMap;

/// Sections in the order of the file, each with its keys in lower case.
pub type Sections = Vec<(String, BTreeMap<String, String>)>;

/// Adds what `text` says to `sections`; a value said again replaces the one before.
pub fn merge(sections: &mut Sections, text: &str) -> Result<(), String> {
    let mut section: Option<usize> = None;
    let mut key: Option<String> = None;
    for (at, line) in without_mark(text).lines().enumerate() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        let bad = |what: &str| format!("line {}: {what}", at + 1);
        if let Some(values) = section.map(|section| &mut sections[section].1) {
            // An indented line goes on with the value above it.
            let open = key.as_ref().filter(|_| line.starts_with([' ', '\t']));
            if let Some(value) = open.and_then(|key| values.get_mut(key)) {
                value.push('\n');
                value.push_str(content);
                continue;
            }
        }
        if let Some(rest) = content.strip_prefix('[') {
            let end = rest.find(']').ok_or_else(|| bad("a section without ]"))?;
            section = Some(place(sections, &rest[..end]));
            key = None;
            continue;
        }
        let section = section.ok_or_else(|| bad("a value before the first section"))?;
        let (name, value) = content
            .split_once([':', '='])
            .ok_or_else(|| bad("neither a section nor key: value"))?;
        let name = name.trim().to_ascii_lowercase();
        sections[section].1.insert(name.clone(), value.trim().to_owned());
        key = Some(name);
    }
    Ok(())
}

fn place(sections: &mut Sections, name: &str) -> usize {
    sections.iter().position(|(have, _)| have == name).unwrap_or_else(|| {
        sections.push((name.to_owned(), BTreeMap::new()));
        sections.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sections_merge_and_values_go_on() {
        let mut sections = Sections::new();
        merge(
            &mut sections,
            "\u{feff}# a\n[Main]\ndefault: local\n[local,l]\nMap = a\n  b: c\n\nall: x",
        )
        .unwrap();
        merge(&mut sections, "[Main]\ndefault: other\n").unwrap();
        assert_eq!(sections[0].1["default"], "other");
        assert_eq!(sections[1].0, "local,l");
        assert_eq!(sections[1].1["map"], "a\nb: c");
        assert_eq!(sections[1].1["all"], "x");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in "[\\[\\]a-z:=\n #]{0,80}") {
            let _ = merge(&mut Sections::new(), &text);
        }
    }
}
