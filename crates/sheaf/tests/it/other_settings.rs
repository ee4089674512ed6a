//! A session that runs, and a file that was edited since it was started.
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::nothing_is_left;

/// A home with a file in each of two exports.
fn home() -> Home {
    let home = Home::new();
    for (export, host) in [("old", 1), ("old", 2), ("old", 3), ("new", 1), ("new", 2), ("new", 3)] {
        home.write(&format!("{export}/n{host}/f"), &format!("{export}\n"));
    }
    home
}

fn export(home: &Home, export: &str) -> String {
    home.path().join(export).join("%h").to_str().unwrap().to_owned()
}

fn write(home: &Home, file: &str, hosts: &str, served: &str) {
    let served = export(home, served);
    let text = format!(
        "[cluster.lab]\nhosts = {hosts:?}\nlaunch = \"processes\"\nexport = {served:?}\n[groups]\nsome = \"n[1-2]\"\n"
    );
    home.write(file, &text);
}

fn told(differences: &str, start: &str) -> String {
    format!(
        "sheaf: session lab was started with other settings ({differences}): `sheaf down lab` and `{start}` to \
         use the new ones, --session lab to use the old\n"
    )
}

#[track_caller]
fn is(run: Run, stdout: &str, stderr: &str, code: i32) {
    assert_eq!((run.stdout.as_str(), run.stderr.as_str(), run.code), (stdout, stderr, Some(code)));
}

const READ: [&str; 3] = ["grep", ".", "/f"];
const OLD: &str = "n[1-3]:/f:old\n";

#[test]
fn changes_in_a_session_with_older_config_are_refused() {
    let home = home();
    write(&home, "sheaf.toml", "n[1-3]", "old");
    assert_eq!(home.run(&["up"]).code, Some(0));
    is(home.run(&READ), OLD, "", 0);
    write(&home, "sheaf.toml", "n[1-3]", "new");
    let (old, new) = (export(&home, "old"), export(&home, "new"));
    let differences = format!("export {old}, sheaf.toml:4 says {new}");
    let other = told(&differences, "sheaf up");
    is(home.run(&READ), OLD, &other, 0);
    is(home.run(&["-C", "lab", "cat", "n1:/f"]), "old\n", &told(&differences, "sheaf up lab"), 0);
    is(home.run(&["--quiet", "cat", "n1:/f"]), "old\n", "", 0);
    home.write("here", "here\n");
    for change in [
        &["rm", "-y", "n1:/f"][..],
        &["rm", "--dry-run", "n1:/f"],
        &["-w", "n1", "rm", "/f"],
        &["write", "--data", "x", "n1:/f"],
        &["chmod", "600", "n1:/f"],
        &["chown", "root", "n1:/f"],
        &["truncate", "-s", "0", "n1:/f"],
        &["mkdir", "n1:/d"],
        &["ln", "-s", "f", "n1:/g"],
        &["cp", "here", "n1:/f"],
    ] {
        is(home.run(change), "", &other, 2);
    }
    let status = home.run(&["status"]);
    assert!(status.code == Some(0) && status.stdout.contains(&other[7..]), "{status:?}");
    let status = home.run(&["status", "lab", "--json"]);
    assert!(status.stdout.contains("\"type\":\"note\"") && status.stderr.is_empty(), "{status:?}");
    let copied = home.run(&["cp", "n1:/f", "back"]);
    assert!(copied.code == Some(0) && copied.stderr.starts_with(&other), "{copied:?}");
    // Whoever names the session means what that is.
    is(home.run(&["--session", "lab", "cat", "n1:/f"]), "old\n", "", 0);
    assert_eq!(home.run(&["--session", "lab", "rm", "n1:/f"]).code, Some(0));
    assert!(!home.path().join("old/n1/f").exists() && home.path().join("new/n1/f").exists());
    assert_eq!(home.run(&["down"]).code, Some(0));
    nothing_is_left(&home);
}

#[test]
fn hosts_of_another_file_are_not_those_of_the_session() {
    let home = home();
    write(&home, "sheaf.toml", "n[1-3]", "old");
    assert_eq!(home.run(&["up"]).code, Some(0));
    write(&home, "other.toml", "n[1-2]", "old");
    let other = told("hosts n[1-3], other.toml:2 says n[1-2]", "sheaf up");
    is(home.run(&[&["--config", "other.toml"], &READ[..]].concat()), OLD, &other, 0);
    is(home.run(&["--config", "other.toml", "rm", "-y", "@all:/f"]), "", &other, 2);
    write(&home, "other.toml", "@some", "old");
    is(home.run(&["--config", "other.toml", "rm", "-y", "@all:/f"]), "", &other, 2);
    // What cannot be found out is not taken to be the same.
    write(&home, "other.toml", "@nobodys", "old");
    let run = home.run(&["--config", "other.toml", "rm", "-y", "@all:/f"]);
    assert_eq!((run.stdout.as_str(), run.code), ("", Some(2)), "{run:?}");
    let unknown = "(hosts n[1-3], other.toml:2 says @nobodys, which cannot be found out: ";
    assert!(run.stderr.contains(unknown), "{run:?}");
    // The same hosts in other words are the same.
    write(&home, "other.toml", "@some,n3", "old");
    is(home.run(&[&["--config", "other.toml"], &READ[..]].concat()), OLD, "", 0);
    assert_eq!(home.run(&["down"]).code, Some(0));
    // Those that were left out or chosen as it was started are no other settings.
    for chosen in [&["-x", "n3"][..], &["-w", "n[1-2]"]] {
        assert_eq!(home.run(&[&["up"], chosen].concat()).code, Some(0));
        is(home.run(&READ), "n[1-2]:/f:old\n", "", 0);
        write(&home, "other.toml", "n[2-4]", "old");
        let other = told("hosts n[1-2], other.toml:2 says n[2-4]", "sheaf up");
        is(home.run(&["--config", "other.toml", "rm", "-y", "@all:/f"]), "", &other, 2);
        assert_eq!(home.run(&["down"]).code, Some(0));
    }
    nothing_is_left(&home);
}

#[test]
fn session_of_another_cluster_than_the_named_one_is_not_joined() {
    let home = home();
    let served = export(&home, "old");
    let cluster = |name| {
        format!(
            "[cluster.{name}]\nhosts = \"n[1-2]\"\nlaunch = \"processes\"\nexport = {served:?}\n"
        )
    };
    home.write("sheaf.toml", &(cluster("lab") + &cluster("web")));
    assert_eq!(home.run(&["up", "web"]).code, Some(0));
    assert_eq!(home.run(&["up", "lab", "--session", "mine"]).code, Some(0));
    let other = "sheaf: session web is one of cluster web, not of lab: leave out --cluster lab, or name a session of \
                 that cluster\n";
    for args in [&["cat", "n1:/f"][..], &["rm", "n1:/f"], &["-w", "n1", "cat", "/f"]] {
        is(home.run(&[&["-C", "lab", "--session", "web"], args].concat()), "", other, 2);
    }
    is(home.run(&["-C", "lab", "--session", "mine", "cat", "n1:/f"]), "old\n", "", 0);
    is(home.run(&["-C", "web", "--session", "web", "cat", "n1:/f"]), "old\n", "", 0);
    is(home.run(&["--session", "web", "cat", "n1:/f"]), "old\n", "", 0);
    // Nor ended, nor let anybody in.
    for args in [&["down", "web"][..], &["token", "web"]] {
        is(home.run(&[&["-C", "lab"], args].concat()), "", other, 2);
    }
    let all = "sheaf: --all ends the sessions of every cluster: leave out --cluster lab, or name one: sheaf down NAME\n";
    is(home.run(&["-C", "lab", "down", "--all"]), "", all, 2);
    let two = "sheaf: up web and --cluster lab are two clusters: say one of them\n";
    is(home.run(&["-C", "lab", "up", "web"]), "", two, 2);
    assert_eq!(home.run(&["-C", "web", "down", "web"]).code, Some(0));
    assert_eq!(home.run(&["down", "--all"]).code, Some(0));
    nothing_is_left(&home);
}
