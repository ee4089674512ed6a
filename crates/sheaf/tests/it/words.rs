//! One name, one type: whoever meets a name in this workspace has met it everywhere.
use regex::Regex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn no_two_types_of_the_workspace_have_one_name() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let src = entry.unwrap().path().join("src");
        if src.is_dir() {
            sources(&src, &mut files);
        }
    }
    // A type within an `impl` or a trait is another's, and one of tests is nobody else's.
    let item = r"(?m)^\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe )?(?:struct|enum|trait|union)\s+(\w+)";
    let alias = r"(?m)^(?:pub(?:\([^)]*\))?\s+)?type\s+(\w+)";
    let (item, alias) = (Regex::new(item).unwrap(), Regex::new(alias).unwrap());
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
        let text = std::fs::read_to_string(file).unwrap();
        let text = text.split("#[cfg(test)]\nmod").next().unwrap();
        let names = item.captures_iter(text).chain(alias.captures_iter(text));
        for name in names.map(|captures| captures[1].to_owned()) {
            let file = file.strip_prefix(crates).unwrap().display().to_string();
            places.entry(name).or_default().push(file);
        }
    }
    assert!(places.len() > 700, "{} types were found", places.len());
    places.retain(|_, files| files.len() > 1);
    assert!(places.is_empty(), "names of several types: {places:#?}");
}
