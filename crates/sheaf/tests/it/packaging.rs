//! The files in `packaging` that start servers and sessions.
use sheaf_testing::home::Home;
use sheaf_testing::sessions::{Running, wait_until};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use yaml_rust2::{Yaml, YamlLoader};

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// What a file gives the program, word by word, from this line on.
fn words<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
    line.unwrap_or_else(|| panic!("no {key}")).split_whitespace().collect()
}

#[test]
fn units_are_what_systemd_understands() {
    let scratch = tempfile::tempdir().unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify");
    for (unit, name) in [
        ("sheaf-serve.service", "sheaf-serve.service"),
        ("sheaf@.service", "sheaf@lab.service"),
        ("sheaf-view.service", "sheaf-view.service"),
    ] {
        let text = std::fs::read_to_string(packaging("systemd").join(unit)).unwrap();
        // Installed elsewhere than here.
        let text = text.replace("/usr/local/bin/sheaf", env!("CARGO_BIN_EXE_sheaf"));
        let path = scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        verify.arg(path);
    }
    match verify.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr))
        }
        Err(error) => sheaf_testing::skipped(&format!("systemd-analyze cannot be run: {error}")),
    }
}

/// The most that systemd finds exposed of a server, of 10: it has to reach files of all users.
const EXPOSURE_MAX: u32 = 40;

#[test]
fn unit_of_a_server_exposes_no_more_than_it_has_to() {
    let unit = packaging("systemd/sheaf-serve.service");
    let tenths = (EXPOSURE_MAX).to_string();
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--no-pager", "--threshold", &tenths]).arg(unit);
    match security.output() {
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("exposure level") => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            sheaf_testing::skipped(&format!("systemd-analyze judges no unit offline: {why}"));
        }
        Err(error) => sheaf_testing::skipped(&format!("systemd-analyze cannot be run: {error}")),
    }
}

/// An option that was renamed would be found by nobody but the user.
#[test]
fn packaged_service_files_use_existing_options() {
    let home = Home::new();
    let read = |name: &str| std::fs::read_to_string(packaging(name)).unwrap();
    let serve = home.run(&["serve", "--help"]).stdout;
    let up = home.run(&["up", "--help"]).stdout;
    let mount = home.run(&["mount", "--help"]).stdout;
    let daemonset = read("kubernetes/daemonset.yaml").replace(['"', ',', '[', ']'], " ");
    for (text, key, help) in [
        (read("systemd/sheaf-serve.service"), "ExecStart=/usr/local/bin/sheaf", &serve),
        (read("systemd/sheaf@.service"), "ExecStart=/usr/local/bin/sheaf", &up),
        (read("systemd/sheaf-view.service"), "ExecStart=/usr/local/bin/sheaf", &mount),
        (daemonset, "args:", &serve),
    ] {
        let words = words(&text, key);
        let options: Vec<_> = words.iter().filter(|word| word.starts_with("--")).collect();
        assert!(!options.is_empty(), "{words:?}");
        assert!(options.iter().all(|option| help.contains(**option)), "{options:?}\n{help}");
    }
}

/// A session of one host that comes by itself, and where it comes to.
fn attach_session(host: &str) -> (Home, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    drop(listener);
    let home = Home::with_config(&format!(
        "[cluster.packed]\nhosts = \"{host}\"\nlaunch = \"attach\"\nlisten = \"{at}\"\n"
    ));
    let up = home.run(&["up", "--tokens", "token"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    (home, at)
}

/// What it takes to run a program with these capabilities alone, and none to come; nothing where only
/// root can give them up.
fn confined(capabilities: &[&str]) -> Option<Vec<String>> {
    if !rustix::process::geteuid().is_root() {
        sheaf_testing::skipped("capabilities are taken away by root alone");
        return None;
    }
    let kept: String = capabilities
        .iter()
        .map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let words =
        ["setpriv", "--no-new-privs", "--inh-caps=-all", &format!("--bounding-set=-all{kept}")];
    let words: Vec<String> = words.map(ToOwned::to_owned).into();
    let tried = Command::new(&words[0]).args(&words[1..]).arg("true").status();
    if !tried.is_ok_and(|status| status.success()) {
        sheaf_testing::skipped("setpriv cannot take capabilities away here");
        return None;
    }
    Some(words)
}

/// Uses a server as root does: files of others are read and given away.
fn is_of_use(home: &Home) {
    wait_until("it has joined", || home.run(&["status"]).stdout.contains("1 of 1 hosts answer"));
    let file = home.write("others", "here\n");
    std::os::unix::fs::chown(&file, Some(4321), Some(4321)).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let file = file.display().to_string();
    for words in [
        &["grep", "-q", "here", &file][..],
        &["chmod", "0640", &format!("@all:{file}")],
        &["chown", "4322:4322", &format!("@all:{file}")],
        &["write", "--data", "there", &format!("@all:{file}")],
        &["rm", "-y", &format!("@all:{file}")],
    ] {
        let run = home.run(words);
        assert_eq!(run.code, Some(0), "{words:?}: {run:?}");
    }
}

/// The system calls that a filter of systemd lets through, such as `@system-service`.
fn system_calls(filter: &str, into: &mut BTreeSet<String>) -> Option<()> {
    let listed = Command::new("systemd-analyze").args(["syscall-filter", filter]).output().ok()?;
    let listed = listed.status.success().then_some(listed.stdout)?;
    for word in String::from_utf8(listed).unwrap().lines().skip(1).map(str::trim) {
        if word.starts_with('@') {
            system_calls(word, into)?;
        } else if !word.starts_with('#') && !word.is_empty() {
            into.insert(word.to_owned());
        }
    }
    Some(())
}

/// Names of calls and families of sockets that are none of those that the unit allows.
fn beyond(trace: &str, calls: &BTreeSet<String>, families: &[&str]) -> BTreeSet<String> {
    let mut beyond = BTreeSet::new();
    for line in trace.lines() {
        // `PID name(arguments) = result`; what was interrupted by others comes in two lines.
        let call = line.split_once(' ').map_or("", |(_, call)| call.trim_start());
        let Some((name, arguments)) = call.split_once('(') else { continue };
        if name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
            && !calls.contains(name)
        {
            beyond.insert(name.to_owned());
        }
        let family = arguments.split(',').next().unwrap();
        if matches!(name, "socket" | "socketpair") && !families.contains(&family) {
            beyond.insert(family.to_owned());
        }
    }
    beyond
}

/// With the capabilities of the unit, no new privileges, and no system call that its filter refuses:
/// what systemd would add to that is checked by its own tools.
#[test]
fn server_lives_with_what_its_unit_leaves_it() {
    let unit = std::fs::read_to_string(packaging("systemd/sheaf-serve.service")).unwrap();
    let Some(confined) = confined(&words(&unit, "CapabilityBoundingSet=")) else {
        return;
    };
    let (home, at) = attach_session(&sheaf::session::config::own_name());
    let trace = home.path().join("trace");
    let mut command = home.command(&[]);
    let mut all = confined;
    let mut calls = BTreeSet::new();
    let traced = ["strace", "-f", "-qq", "-e", "signal=none", "-o", trace.to_str().unwrap(), "--"];
    let tried = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).status();
    let is_traced = tried.is_ok_and(|status| status.success())
        && system_calls("@system-service", &mut calls).is_some();
    if is_traced {
        all.extend(traced.map(ToOwned::to_owned));
    } else {
        sheaf_testing::skipped("system calls are not looked at without strace and systemd-analyze");
    }
    all.push(env!("CARGO_BIN_EXE_sheaf").to_owned());
    for word in words(&unit, "ExecStart=/usr/local/bin/sheaf") {
        let word = word.replace("${SHEAF_JOIN}", &at);
        all.push(word.replace("${CREDENTIALS_DIRECTORY}", home.path().to_str().unwrap()));
    }
    let mut confined = Command::new(&all[0]);
    confined.args(&all[1..]).current_dir("/").env_clear();
    confined
        .envs(command.env("PATH", "/usr/bin:/bin").get_envs().filter_map(|(k, v)| Some((k, v?))));
    let mut server = Running::start(&mut confined);
    is_of_use(&home);
    assert_eq!(home.run(&["down"]).code, Some(0));
    wait_until("its server has ended", || server.has_ended());
    if is_traced {
        let families = words(&unit, "RestrictAddressFamilies=");
        let families = [&families[..], &["AF_UNIX"]].concat();
        let trace = std::fs::read_to_string(&trace).unwrap();
        assert!(trace.contains("openat2("), "{trace}");
        assert_eq!(beyond(&trace, &calls, &families), BTreeSet::new());
    }
}

/// A table of YAML, by its path.
fn at<'a>(yaml: &'a Yaml, path: &str) -> &'a Yaml {
    path.split('.').fold(yaml, |yaml, key| match key.parse::<usize>() {
        Ok(index) => &yaml[index],
        Err(_) => &yaml[key],
    })
}

/// The words of a list.
fn list(yaml: &Yaml) -> Vec<&str> {
    yaml.as_vec().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
}

/// Kubernetes itself is not here: what it would check of names that have to agree, and what a
/// container is started with, on a file system that cannot be written to.
#[test]
fn daemon_set_is_whole_and_its_server_starts() {
    let text = std::fs::read_to_string(packaging("kubernetes/daemonset.yaml")).unwrap();
    let documents = YamlLoader::load_from_str(&text).unwrap();
    let [set] = &documents[..] else { panic!("{} documents", documents.len()) };
    assert_eq!(
        (set["apiVersion"].as_str(), set["kind"].as_str()),
        (Some("apps/v1"), Some("DaemonSet"))
    );
    let labels = at(set, "spec.template.metadata.labels");
    assert!(labels.as_hash().is_some_and(|labels| !labels.is_empty()));
    assert_eq!(at(set, "spec.selector.matchLabels"), labels);
    let pod = at(set, "spec.template.spec");
    let container = at(pod, "containers.0");
    let named = |of: &Yaml| -> BTreeSet<String> {
        of.as_vec().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(named(&container["volumeMounts"]), named(&pod["volumes"]));
    let rights = &container["securityContext"];
    assert_eq!(list(at(rights, "capabilities.drop")), ["ALL"]);
    assert_eq!(rights["allowPrivilegeEscalation"].as_bool(), Some(false));
    assert_eq!(rights["readOnlyRootFilesystem"].as_bool(), Some(true));

    let Some(confined) = confined(&list(at(rights, "capabilities.add"))) else { return };
    let (home, door) = attach_session("node-7");
    let words: Vec<String> = list(&container["args"])
        .iter()
        .map(|word| match *word {
            "sheaf-root:7440" => door.clone(),
            "/run/sheaf/token" => home.path().join("token").to_str().unwrap().to_owned(),
            "$(NODE)" => "node-7".to_owned(),
            word => word.to_owned(),
        })
        .collect();
    // Of the files that can be written to only what is below the mount is left.
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind / && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(home.path());
    command.args(confined).arg(env!("CARGO_BIN_EXE_sheaf")).args(words);
    command.current_dir("/").env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    let tried =
        Command::new("unshare").args(["--mount", "mount", "-o", "remount,ro,bind", "/"]).status();
    if !tried.is_ok_and(|status| status.success()) {
        return sheaf_testing::skipped("no mount can be made here");
    }
    let mut server = Running::start(&mut command);
    is_of_use(&home);
    assert_eq!(home.run(&["down"]).code, Some(0));
    wait_until("its server has ended", || server.has_ended());
}
