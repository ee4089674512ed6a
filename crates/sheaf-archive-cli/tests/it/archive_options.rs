//! The options of commands for trees are those that the documentation lists.
use sheaf_testing::home::Home;
use std::collections::BTreeSet;

/// Flags in a text.
fn flags(text: &str) -> BTreeSet<String> {
    let words = text.split([' ', ',', '`']).filter(|word| word.starts_with('-'));
    words.map(|word| word.trim_end_matches("...").to_owned()).collect()
}

#[test]
fn options_of_each_command_are_listed() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/archive.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let home = Home::new();
    for command in ["find", "ls", "du", "chmod", "cp", "rm", "grep"] {
        let help = home.run(&["archive", command, "--help"]).stdout;
        let options = help.lines().map(str::trim_start).skip_while(|line| *line != "Options:");
        let options = options.filter(|line| line.starts_with('-'));
        let options = options.take_while(|line| !line.contains("--cluster"));
        let mut known = BTreeSet::new();
        for option in options {
            let option = option.split("  ").next().unwrap();
            if !option.contains("--help") && !option.contains("--catalog") {
                known.extend(flags(option));
            }
        }
        let row = format!("| `{command}` | ");
        let listed = docs.lines().find_map(|line| line.strip_prefix(&row)).unwrap();
        assert_eq!(flags(listed), known, "{command}");
        assert!(known.contains("--local"), "{help}");
    }
}
