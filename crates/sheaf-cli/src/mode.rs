//! Modes on the command line: what chmod takes, and plain octal.
use sheaf_file::{Mode, ModeChange};
use sheaf_tools::cp::CopyMode;

const MODE_MAX: u32 = 0o7777;

/// Parses an octal mode, for files that are being created.
pub fn octal(text: &str) -> Result<u32, String> {
    let digits = !text.is_empty() && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = if digits { u32::from_str_radix(text, 8).ok() } else { None };
    mode.filter(|mode| *mode <= MODE_MAX)
        .ok_or_else(|| "not an octal mode from 0 to 7777".to_owned())
}

/// Parses `0644` or `u=rw,go-w`. Clauses that name nobody heed this process's umask, as chmod's do.
pub fn change(text: &str) -> Result<ModeChange, String> {
    ModeChange::parse(text, umask()).map_err(|_| {
        "write an octal mode (0644), or who, one of + - =, and of r w x X s t (u+x,go-w)".to_owned()
    })
}

/// Parses what `cp --chmod` takes, as `D755,F644`.
pub fn copies(text: &str) -> Result<CopyMode, String> {
    CopyMode::parse(text, umask()).map_err(|_| {
        "write an octal mode (0644), or who, one of + - =, and of r w x X s t (u+x,go-w); D or F \
         in front of a part: for directories or files alone (D755,F644)"
            .to_owned()
    })
}

/// The umask can only be read by setting it; no other thread makes files while a command begins.
pub fn umask() -> u32 {
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    umask.bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn octal_modes_have_twelve_bits() {
        assert_eq!(octal("0644"), Ok(0o644));
        for text in ["", "8", "77777", "+7", "u+x"] {
            assert!(octal(text).is_err(), "{text}");
        }
    }

    /// This machine's own chmod is the oracle.
    #[test]
    fn changes_agree_with_chmod() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        for text in
            ["u+x", "go=", "a=rX", "u=g", "g=o,o=u", "+x", "-w", "=r", "u-s+t", "o+t", "ug=rw,o-x"]
        {
            for old in [0o000, 0o644, 0o751, 0o4755, 0o1234, 0o6070] {
                std::fs::set_permissions(&file, PermissionsExt::from_mode(old)).unwrap();
                // chmod ends with 1 when the umask changed the meaning, but sets the mode all the
                // same.
                std::process::Command::new("chmod")
                    .arg("--")
                    .arg(text)
                    .arg(&file)
                    .output()
                    .unwrap();
                let mode = std::fs::metadata(&file).unwrap().permissions().mode() & MODE_MAX;
                assert_eq!(change(text).unwrap().apply(old, false), mode, "{text} on {old:o}");
            }
        }
    }
}
