//! Changes of permissions, with `chmod` as the oracle.

use proptest::prelude::*;
use sheaf_core::Errno;
use sheaf_file::ModeChange;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn malformed_changes_are_refused() {
    for text in [
        "", "8", "10000", "0x7", "u", "u+z", "+xu", "z+x", "u+x,", "7u", "u=gr", "644 ", "u=755",
        "=755+x", "=8", "+10000", "755,+x",
    ] {
        assert_eq!(ModeChange::parse(text, 0), Err(Errno::INVAL), "{text}");
    }
    assert!(ModeChange::parse(&"+x".repeat(65), 0).is_err());
}

fn change() -> impl Strategy<Value = String> {
    let clause = "[ugoa]{0,2}([-+=]([rwxXst]{0,3}|[ugo])){1,2}|[-+=][0-7]{1,4}";
    prop_oneof![1 => "[0-7]{3,4}", 1 => "0[0-7]{4}", 4 => prop::collection::vec(clause, 1..4).prop_map(|all| all.join(","))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn changes_are_those_of_chmod(text in change(), mode in 0..0o10000u32, is_dir: bool) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        if is_dir { std::fs::create_dir(&path).unwrap() } else { std::fs::write(&path, "").unwrap() }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let script = "umask 027; exec chmod -- \"$0\" \"$1\"";
        let Ok(output) = Command::new("sh").args(["-c", script, &text]).arg(&path).output() else {
            crate::skipped("there is no chmod to compare with");
            return Ok(());
        };
        // It also fails, having changed the file, when the umask kept it from an option-like `-x`.
        let complains = String::from_utf8_lossy(&output.stderr).contains("invalid mode");
        prop_assert!(!complains, "{}", text);
        let expected = std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        // A directory that may not be read could not be removed again.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        let found = ModeChange::parse(&text, 0o027).unwrap().apply(mode, is_dir);
        prop_assert_eq!(found, expected, "{} of {:o}: {:o}, not {:o}", text, mode, found, expected);
    }

    #[test]
    fn garbage_never_panics(text in "\\PC{0,20}|[ugoarwxXst,=+0-9-]{0,20}", mode: u32, umask: u32, is_dir: bool) {
        if let Ok(change) = ModeChange::parse(&text, umask) {
            prop_assert!(change.apply(mode, is_dir) <= 0o7777);
        }
    }
}
