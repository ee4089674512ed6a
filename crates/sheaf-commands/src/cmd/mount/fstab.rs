//! `mount.sheaf`: what `mount(8)` calls for a line of `/etc/fstab` of type `sheaf`, in the words of `sheaf mount`.
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The name by which this program is called for that.
const NAME: &str = "mount.sheaf";
/// Options of any file system that say nothing here: what they ask for is so, or is for others to heed.
const PLAIN: [&str; 17] = [
    "rw", "defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group", "_netdev",
    "nofail", "nosuid", "nodev", "exec", "async", "relatime", "noatime",
];

/// The words of `sheaf mount`, if this program is called as `mount.sheaf SESSION POINT [-o OPTIONS]`; nothing
/// otherwise.
///
/// # Errors
/// What is wrong with them.
pub fn words(called: &[OsString]) -> Option<Result<Vec<OsString>, String>> {
    let (program, words) = called.split_first()?;
    let is_meant = Path::new(program).file_name() == Some(OsStr::new(NAME));
    is_meant.then(|| translate(program, words))
}

fn translate(program: &OsStr, words: &[OsString]) -> Result<Vec<OsString>, String> {
    let (mut places, mut ours) = (Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-o") => {
                let said = words.next().ok_or("-o: options are missing")?;
                let said = said.to_str().ok_or("-o: not UTF-8")?;
                for option in said.split(',').filter(|option| !option.is_empty()) {
                    ours.extend(option_of(option)?.map(OsString::from));
                }
            }
            // That it is to be done as if (-f) is for who mounts; -n is about a file that is no more.
            Some("-n" | "-v" | "-s") => {}
            Some("-f") => return Err("-f: nothing can be tried without being done".to_owned()),
            Some("-t" | "-N") => drop(words.next()),
            Some(option) if option.starts_with('-') => {
                return Err(format!("{option}: there is no such option"));
            }
            _ => places.push(word.clone()),
        }
    }
    let [session, point] = &places[..] else {
        return Err(format!("usage: {NAME} SESSION POINT [-o OPTIONS]"));
    };
    let mut all = vec![program.to_owned(), "mount".into()];
    // `sheaf` and `none` are of the session whose server runs on this host.
    let is_directory = session.to_string_lossy().contains(":/");
    if session != "sheaf" && session != "none" && !is_directory {
        all.extend(["--session".into(), session.clone()]);
    }
    all.extend(ours);
    if is_directory {
        all.push(session.clone());
    }
    if !Path::new(point).is_absolute() {
        return Err(format!("{}: not an absolute path", point.display()));
    }
    all.push(point.clone());
    Ok(all)
}

/// The words for an option.
fn option_of(option: &str) -> Result<Option<String>, String> {
    if PLAIN.contains(&option) || option.starts_with("x-") || option.starts_with("comment=") {
        return Ok(None);
    }
    match option.split_once('=') {
        None if option == "ro" => Ok(Some("--read-only".to_owned())),
        None if option == "noexec" => Ok(Some("--no-exec".to_owned())),
        None if option == "mmap" => Ok(Some("--mmap".to_owned())),
        None if option == "writebehind" => Ok(Some("--write-behind".to_owned())),
        None if option == "devices" => Ok(Some("--devices".to_owned())),
        None if option == "nolease" => Ok(Some("--no-lease".to_owned())),
        Some(("actimeo", value)) => Ok(Some(format!("--attribute-cache={value}"))),
        Some(("uid" | "gid" | "umask", _)) => Ok(Some(format!("-o{option}"))),
        Some((name @ ("config" | "idmap" | "links" | "session" | "timeout"), value)) => {
            Ok(Some(format!("--{name}={value}")))
        }
        _ => Err(format!(
            "-o {option}: there is no such option; there are ro, noexec, nolease, mmap, writebehind, devices, actimeo=SECONDS, links=RULE, idmap=FILE, \
             uid=N, gid=N, umask=OCTAL, session=NAME, config=FILE, timeout=SECONDS, and those for mount(8) itself"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{OsString, words as words_of};

    fn of(words: &[&str]) -> Result<Vec<String>, String> {
        let called: Vec<OsString> = words.iter().map(Into::into).collect();
        let ours = words_of(&called).unwrap()?;
        Ok(ours.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn line_of_fstab_is_a_command() {
        let line = [
            "/sbin/mount.sheaf",
            "lab",
            "/sheaf",
            "-o",
            "ro,_netdev,x-systemd.automount,timeout=5",
        ];
        let ours = [
            "/sbin/mount.sheaf",
            "mount",
            "--session",
            "lab",
            "--read-only",
            "--timeout=5",
            "/sheaf",
        ];
        assert_eq!(of(&line).unwrap(), ours);
        // As mount(8) says it for a line with `user`.
        let user = ["mount.sheaf", "lab", "/sheaf", "-o", "rw,noexec,nosuid,nodev,user"];
        let ours = ["mount.sheaf", "mount", "--session", "lab", "--no-exec", "/sheaf"];
        assert_eq!(of(&user).unwrap(), ours);
        let one = ["mount.sheaf", "n1:/srv", "/mnt", "-o", "session=lab,uid=7,idmap=/etc/ids"];
        let ours = [
            "mount.sheaf",
            "mount",
            "--session=lab",
            "-ouid=7",
            "--idmap=/etc/ids",
            "n1:/srv",
            "/mnt",
        ];
        assert_eq!(of(&one).unwrap(), ours);
        let named = ["mount.sheaf", "sheaf", "/sheaf", "-o", "session=lab"];
        assert_eq!(of(&named).unwrap(), ["mount.sheaf", "mount", "--session=lab", "/sheaf"]);
        let here = ["mount.sheaf", "sheaf", "/sheaf", "-n", "-o", "rw", "-t", "sheaf"];
        assert_eq!(of(&here).unwrap(), ["mount.sheaf", "mount", "/sheaf"]);
        assert!(words_of(&["sheaf".into(), "mount".into()]).is_none());
    }

    #[test]
    fn invalid_mount_helper_arguments_are_reported() {
        for (words, why) in [
            (&["mount.sheaf", "lab"][..], "usage:"),
            (&["mount.sheaf", "lab", "/s", "-o", "allow_other"], "no such option"),
            (&["mount.sheaf", "lab", "/s", "-o"], "options are missing"),
            (&["mount.sheaf", "lab", "/s", "-x"], "no such option"),
            (&["mount.sheaf", "lab", "s"], "absolute"),
            (&["mount.sheaf", "lab", "/s", "-f"], "without being done"),
        ] {
            assert!(of(words).unwrap_err().contains(why), "{words:?}");
        }
    }
}
