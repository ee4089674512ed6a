//! What may lean on what within this crate: a module imports those below it, and none above.
use std::path::Path;

/// Each module, and those that it must not know. From the bottom: links, filters, the driver,
/// services, the network, how nodes are, launch.
const ABOVE: [(&str, &[&str]); 6] = [
    ("link", &["filter", "driver", "service", "network", "status", "gate", "launch"]),
    ("filter", &["link", "driver", "service", "network", "status", "gate", "launch"]),
    ("driver", &["filter", "service", "network", "status", "gate", "launch"]),
    ("service", &["network", "status", "gate", "launch"]),
    ("network", &["status", "gate", "launch"]),
    ("status", &["gate", "launch"]),
];

fn sources(path: &Path, each: &mut dyn FnMut(&Path, &str)) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            sources(&entry.unwrap().path(), each);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs")
        && !path.ends_with("tests.rs")
    {
        let text = std::fs::read_to_string(path).unwrap();
        each(path, text.split("#[cfg(test)]\nmod").next().unwrap());
    }
}

#[test]
fn no_module_knows_one_above_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut seen, mut wrong) = (0, Vec::new());
    for (module, above) in ABOVE {
        let mut look = |path: &Path, text: &str| {
            seen += 1;
            for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                for other in above {
                    if line.contains(&format!("crate::{other}::")) {
                        wrong.push(format!("{}: {}", path.display(), line.trim()));
                    }
                }
            }
        };
        sources(&src.join(format!("{module}.rs")), &mut look);
        if src.join(module).is_dir() {
            sources(&src.join(module), &mut look);
        }
    }
    assert!(seen > 30, "{seen} files were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
