//! Patterns, with bash as the oracle.

use crate::tree;
use proptest::prelude::*;
use sheaf_core::Errno;
use sheaf_file::{Export, GLOB_DEPTH_MAX, GLOB_ERRORS_MAX, NameFilter, Pattern, is_pattern};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

fn glob(export: &Export, pattern: &str) -> Vec<String> {
    let found = export.glob(&Pattern::new(pattern).unwrap()).unwrap();
    assert_eq!(found.errors, [], "{pattern}");
    found.paths.into_iter().map(|path| path.into_os_string().into_string().unwrap()).collect()
}

#[test]
fn patterns_find_what_a_shell_finds() {
    let (_dir, export) = tree(&[
        "var/log/syslog",
        "var/log/messages",
        "var/log/.hidden",
        "var/log/apt/term.log",
        "var/log/café",
        "var/link -> log",
        "var/abs -> /var/log",
        "var/loop -> .",
        "var/dangling -> nowhere",
        "etc/a*b",
        "etc/axb",
    ]);
    let log = ["/var/log/apt", "/var/log/café", "/var/log/messages", "/var/log/syslog"];
    for (pattern, expected) in [
        ("/var/log/*", &log[..]),
        ("/var/log/.*", &["/var/log/.hidden"]),
        ("/var/*/syslog", &["/var/abs/syslog", "/var/link/syslog", "/var/log/syslog"]),
        ("/var/**/*.log", &["/var/log/apt/term.log"]),
        ("/**/term.*", &["/var/log/apt/term.log"]),
        ("var/log/{sys,mess}*", &["var/log/messages", "var/log/syslog"]),
        // Without anything special each choice is a name, which the shell does not look for.
        ("var/log/{syslog,none}", &["var/log/none", "var/log/syslog"]),
        ("/var/log/{sys*,none}", &["/var/log/none", "/var/log/syslog"]),
        ("/v*/log/{syslog,none}", &["/var/log/syslog"]),
        ("{/var/log,/etc}/[am]*", &["/etc/a*b", "/etc/axb", "/var/log/apt", "/var/log/messages"]),
        ("/etc/a\\*?", &["/etc/a*b"]),
        ("/etc/a?b", &["/etc/a*b", "/etc/axb"]),
        ("/var/log/caf?", &["/var/log/café"]),
        ("/var/log/*/", &["/var/log/apt/"]),
        ("/v*/../etc/ax*", &["/var/../etc/axb"]),
        ("/../../var/log/sys*", &["/../../var/log/syslog"]),
        ("/var/d*", &["/var/dangling"]),
        ("/var/d*/x", &[]),
        ("/none/*", &[]),
        (
            "/var/log/**",
            &[
                "/var/log/apt",
                "/var/log/apt/term.log",
                "/var/log/café",
                "/var/log/messages",
                "/var/log/syslog",
            ],
        ),
    ] {
        assert_eq!(glob(&export, pattern), expected, "{pattern}");
    }
}

/// What can go wrong on the way is told beside the matches; what is known not to match is not.
#[test]
fn glob_reports_paths_it_cannot_search() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, export) = tree(&[
        "a/x",
        "b/x",
        "c/x",
        "file",
        "gone -> none",
        "loop -> loop",
        "e/sub/x",
        "e/s -> /b/x",
    ]);
    let mode = |name: &str, mode| {
        std::fs::set_permissions(dir.path().join(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    crate::open_to_all(dir.path());
    // What is in `b` cannot be listed, and nothing can be looked up in `c` and in `e`.
    mode("b", 0o711);
    mode("c", 0o744);
    mode("e", 0o744);
    let cases = [
        ("/[abc]/*", &["/a/x", "/c/x"][..], &[("/b", Errno::ACCES)][..]),
        (
            "/*/x",
            &["/a/x", "/b/x"],
            &[("/c/x", Errno::ACCES), ("/e/x", Errno::ACCES), ("/loop/x", Errno::LOOP)],
        ),
        ("/?/x/", &[], &[("/c/x/", Errno::ACCES), ("/e/x/", Errno::ACCES)]),
        ("/e/*/x", &[], &[("/e/s/x", Errno::ACCES), ("/e/sub/x", Errno::ACCES)]),
        (
            "/**/x",
            &["/a/x", "/b/x"],
            &[
                ("/b", Errno::ACCES),
                ("/c/x", Errno::ACCES),
                ("/e/sub", Errno::ACCES),
                ("/e/sub/x", Errno::ACCES),
                ("/e/x", Errno::ACCES),
            ],
        ),
        ("/{gone,file}/*", &[], &[]),
        ("/{b,b}/{y,z}*", &[], &[("/b", Errno::ACCES)]),
    ];
    crate::as_nobody(|| {
        for (pattern, paths, errors) in cases {
            let found = export.glob(&Pattern::new(pattern).unwrap()).unwrap();
            assert_eq!(found.paths, paths.iter().map(Path::new).collect::<Vec<_>>(), "{pattern}");
            let told: Vec<_> = found
                .errors
                .iter()
                .map(|error| (error.path.to_str().unwrap().trim_end_matches('/'), error.errno))
                .collect();
            let errors: Vec<_> =
                errors.iter().map(|(path, errno)| (path.trim_end_matches('/'), *errno)).collect();
            assert_eq!(told, errors, "{pattern}");
        }
    });
}

#[test]
fn errors_of_a_pattern_are_bounded() {
    let links: Vec<String> = (0..GLOB_ERRORS_MAX + 5).map(|n| format!("l{n} -> l{n}")).collect();
    let (_dir, export) = tree(&links.iter().map(String::as_str).collect::<Vec<_>>());
    let found = export.expand("/*/x");
    assert_eq!((found.paths.len(), found.errors.len()), (0, GLOB_ERRORS_MAX + 1));
    let of = |errno| found.errors.iter().filter(move |error| error.errno == errno);
    assert_eq!(of(Errno::LOOP).count(), GLOB_ERRORS_MAX);
    assert_eq!(
        of(Errno::MSGSIZE).map(|error| error.path.clone()).collect::<Vec<_>>(),
        [Path::new("/*/x")]
    );
}

#[test]
fn directories_below_the_depth_of_a_pattern_are_named() {
    let (dir, export) = tree(&[]);
    let deep: std::path::PathBuf = std::iter::repeat_n("d", GLOB_DEPTH_MAX + 1).collect();
    std::fs::create_dir_all(dir.path().join(&deep)).unwrap();
    let found = export.expand("**/d");
    assert_eq!(found.paths.len(), GLOB_DEPTH_MAX + 1);
    let errors: Vec<_> = found.errors.into_iter().map(|error| (error.path, error.errno)).collect();
    assert_eq!(errors, [(deep, Errno::NAMETOOLONG)]);
}

#[test]
fn text_is_expanded_or_says_why_not() {
    let (_dir, export) = tree(&["d1/a", "d2/", "f"]);
    let expand = |text: &str, is_new: bool| {
        let found = if is_new { export.expand_new(text) } else { export.expand(text) };
        let paths: Vec<String> =
            found.paths.iter().map(|path| path.display().to_string()).collect();
        let errors: Vec<_> = found
            .errors
            .iter()
            .map(|error| (error.path.display().to_string(), error.errno))
            .collect();
        (paths.join(" "), errors)
    };
    let nothing = |text: &str, errno| (String::new(), vec![(text.to_owned(), errno)]);
    assert_eq!(expand("/no/such", false), ("/no/such".to_owned(), vec![]));
    assert_eq!(expand("/no*", false), nothing("/no*", Errno::NOMATCH));
    assert_eq!(expand("[z-a]", false), nothing("[z-a]", Errno::INVAL));
    assert_eq!(expand("/d*/a", false), ("/d1/a".to_owned(), vec![]));
    assert_eq!(expand("/d*/a", true), ("/d1/a /d2/a".to_owned(), vec![]));
    assert_eq!(expand("/[df]*/{x,y}/", true), ("/d1/x /d1/y /d2/x /d2/y".to_owned(), vec![]));
    assert_eq!(expand("/{new,d1/n*}", true), ("/new".to_owned(), vec![]));
    assert_eq!(expand("/z*/new", true), nothing("/z*/new", Errno::NOMATCH));
}

#[test]
fn path_without_special_characters_is_itself() {
    let (_dir, export) = tree(&["a*"]);
    for (text, path) in [
        ("/no/such", "/no/such"),
        (r"a\*", "a*"),
        ("x[", "x["),
        ("{a}", "{a}"),
        ("d/", "d/"),
        ("/", "/"),
    ] {
        assert!(!is_pattern(text), "{text}");
        assert_eq!(glob(&export, text), [path], "{text}");
    }
    for text in ["*", "a?", "[a]", "{a,b}", "/x/**/y", "[z-a]"] {
        assert!(is_pattern(text), "{text}");
    }
}

#[test]
fn filters_look_at_the_name_or_the_whole_path() {
    for (pattern, path, expected) in [
        ("*.rs", "src/main.rs", true),
        ("*.rs", ".x.rs", true),
        ("*.rs", "src/main.c", false),
        ("src/*.rs", "src/main.rs", true),
        ("src/*.rs", "src/a/main.rs", false),
        ("/*.rs", "src/main.rs", false),
        ("/*.rs", "main.rs", true),
        ("src/**", "src/a/main.rs", true),
        ("**/main.rs", "src/a/main.rs", true),
        ("**/main.rs", "main.rs", true),
        ("src/**", "src", false),
        ("*.{c,h}", "a/b.h", true),
        ("target/", "a/target", true),
    ] {
        let filter = NameFilter::new(&[pattern.to_owned()]).unwrap();
        assert_eq!(filter.matches(Path::new(path)), expected, "{pattern} {path}");
    }
}

/// What bash makes of a pattern, or nothing where there is no bash.
fn bash(dir: &Path, pattern: &str) -> Option<Vec<String>> {
    let script = format!("shopt -s nullglob globstar; printf '%s\\0' {pattern}");
    let output = Command::new("bash")
        .args(["--norc", "-c", &script])
        .env("LC_ALL", "C")
        .current_dir(dir)
        .output()
        .ok()?;
    assert!(output.status.success(), "{pattern}");
    let mut found: Vec<String> = output
        .stdout
        .split(|&byte| byte == 0)
        .map(|path| String::from_utf8(path.to_vec()).unwrap())
        // Words that are no patterns stay although nothing has their name, and a final `**` stands
        // for the directory itself, too.
        .filter(|path| {
            !path.is_empty()
                && !path.ends_with('/')
                && std::fs::symlink_metadata(dir.join(path)).is_ok()
        })
        .collect();
    found.sort();
    found.dedup();
    Some(found)
}

fn pattern() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a", "b", "*", "?", "[ab]", "[!a]", "{a,b}", "{a,.b}", ".a", "*b", "\\*", "[]a]",
    ]);
    let name = prop_oneof![
        1 => Just("**".to_owned()),
        4 => prop::collection::vec(piece, 1..3).prop_map(|pieces| pieces.concat()),
    ];
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_patterns_mean_what_they_mean_to_bash(
        names in prop::collection::vec("[ab.*]{1,2}(/[ab.]{1,2}){0,2}", 1..12),
        patterns in prop::collection::vec(pattern(), 1..4),
    ) {
        let (dir, export) = tree(&[]);
        for name in names.iter().filter(|name| !name.split('/').any(|part| part == "." || part == "..")) {
            let path = dir.path().join(name);
            if std::fs::create_dir_all(path.parent().unwrap()).is_ok() {
                let _ = std::fs::write(path, "");
            }
        }
        for pattern in &patterns {
            // At the end bash takes `**` for the start itself as well, sometimes with a slash.
            if pattern.contains("**/**") || pattern.ends_with("/**") || Pattern::new(pattern).is_err() {
                continue;
            }
            let Some(expected) = bash(dir.path(), pattern) else {
                crate::skipped("there is no bash to compare with");
                return Ok(());
            };
            let ours: Vec<String> = glob(&export, pattern).into_iter().filter(|path| dir.path().join(path).symlink_metadata().is_ok()).collect();
            // What is found matches by its text, too, by which clients judge what hosts say.
            let by_text = Pattern::new(pattern).unwrap();
            let unmatched = ours.iter().find(|path| !by_text.matches(Path::new(path)));
            prop_assert_eq!(unmatched, None, "{}", pattern);
            prop_assert_eq!(ours, expected, "{}", pattern);
        }
    }

    /// Any text is a pattern or a clear error, and matching ends.
    #[test]
    fn garbage_never_panics(text in "\\PC{0,40}|[a\\[\\]{},*?!/\\\\:.-]{0,30}", path in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(pattern) = Pattern::new(&text) {
            let _ = pattern.matches(Path::new(std::ffi::OsStr::from_bytes(&path)));
        }
        let _ = is_pattern(&text);
    }

    /// An escaped name is itself.
    #[test]
    fn escaped_name_is_literal(name in "[^/\0]{1,12}") {
        let escaped: String = name.chars().flat_map(|char| ['\\', char]).collect();
        prop_assert_eq!(Pattern::new(&escaped).unwrap().literal(), Some(name.clone().into()));
        prop_assert!(Pattern::new(&escaped).unwrap().matches(Path::new(&name)));
    }
}
