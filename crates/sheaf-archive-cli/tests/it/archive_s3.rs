//! `sheaf archive` with a bucket of S3, as its user types it.
use sheaf_testing::S3Server;
use sheaf_testing::home::{Home, Run};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const STORE: &str = "s3://bucket/some/prefix::";

/// A home with a small tree, and a server.
struct Place {
    home: Home,
    server: S3Server,
}

impl Place {
    fn new() -> Option<Self> {
        let (home, server) = (Home::new(), S3Server::start()?);
        fs::create_dir_all(home.path().join("tree/sub")).unwrap();
        for number in 0..50 {
            fs::write(home.path().join(format!("tree/sub/{number}")), format!("{number}\n"))
                .unwrap();
        }
        let long: Vec<u8> = (0..20_000_000u32).map(|at| (at * 31 / 100) as u8).collect();
        fs::write(home.path().join("tree/long"), long).unwrap();
        Some(Self { home, server })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(&[&["archive"], args].concat());
        command
            .env("AWS_ACCESS_KEY_ID", S3Server::ACCESS_KEY_ID)
            .env("AWS_SECRET_ACCESS_KEY", S3Server::SECRET_ACCESS_KEY)
            .env("AWS_ENDPOINT_URL", self.server.url())
            .env("XDG_STATE_HOME", self.home.path().join("state"));
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    /// Its catalogs on this machine.
    fn catalogs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.home.path().join("state/sheaf/archives")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "sqlite")).collect()
    }
}

#[test]
fn tree_is_stored_in_a_bucket_and_got_back() {
    let Some(place) = Place::new() else { return };
    let no_store = place.run(&["ls", STORE]);
    let text = "sheaf: s3://bucket/some/prefix: there is no store: sheaf archive store --create \
                makes one\n";
    assert_eq!((no_store.code, &no_store.stderr[..]), (Some(2), text));
    let stored = place.run(&["store", "--create", "tree", STORE]);
    assert_eq!(stored.code, Some(0), "{stored:?}");
    let text = "sheaf: stored 51 files (20M) of 2 directories\n";
    assert_eq!(stored.stderr, text);
    let again = place.run(&["store", "tree", STORE]);
    assert!(again.stderr.contains("stored 0 files") && again.stderr.contains("51 unchanged"));

    let listed = place.run(&["ls", "-R", STORE]);
    assert!(listed.stdout.starts_with("/:\ntree\n\n/tree:\nlong\nsub\n\n/tree/sub:\n0\n1\n10\n"));
    // What is known of it is made again, of the bucket alone.
    let catalogs = place.catalogs();
    assert_eq!(catalogs.len(), 1, "{catalogs:?}");
    fs::remove_dir_all(place.home.path().join("state")).unwrap();
    assert_eq!(place.run(&["ls", "-R", STORE]).stdout, listed.stdout);
    assert_eq!(place.catalogs(), catalogs);

    let got = place.run(&["get", &format!("{STORE}/tree"), "back"]);
    assert_eq!(got.stderr, "sheaf: got 51 files (20M) of 2 directories\n");
    let mut diff = Command::new("diff");
    let diff = diff.args(["-r", "tree", "back/tree"]).current_dir(place.home.path());
    assert!(diff.status().unwrap().success());
    let one = place.run(&["get", &format!("{STORE}/tree/sub/7"), "one"]);
    assert_eq!(one.stderr, "sheaf: got 1 file (2) of 0 directories\n");

    let whole = place.run(&["verify", STORE]);
    assert!(whole.stderr.ends_with(": nothing is damaged\n"), "{whole:?}");
    assert_eq!(whole.code, Some(0));
    let removed = place.run(&["rm", "-r", &format!("{STORE}/tree/sub")]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let repaired = place.run(&["repair", "--age", "0", STORE]);
    assert!(repaired.stderr.starts_with("sheaf: removed 2 leftovers"), "{repaired:?}");
    assert_eq!(place.run(&["ls", &format!("{STORE}/tree")]).stdout, "long\n");
}

#[test]
fn store_that_is_made_again_has_another_catalog() {
    let Some(place) = Place::new() else { return };
    place.run(&["store", "--create", "tree", STORE]);
    fs::remove_dir_all(place.server.bucket().join("some")).unwrap();
    let other = place.home.path().join("other");
    fs::write(&other, "other").unwrap();
    let stored = place.run(&["store", "--create", "other", STORE]);
    assert_eq!(stored.code, Some(0), "{stored:?}");
    assert_eq!(place.run(&["ls", STORE]).stdout, "other\n");
}

#[test]
fn s3_bucket_errors_do_not_reveal_the_secret() {
    let Some(place) = Place::new() else { return };
    place.run(&["store", "--create", "tree", STORE]);
    let run = |change: &dyn Fn(&mut Command), store: &str| {
        let mut command = place.command(&["ls", store]);
        change(&mut command);
        let run = Run::of(command.output().unwrap());
        let printed = format!("{}{}", run.stdout, run.stderr);
        assert!(!printed.contains(S3Server::SECRET_ACCESS_KEY) && !printed.contains("hidden"));
        (run.code, run.stderr)
    };
    let said = |text: &str| format!("sheaf: {text}\n");
    let set = "s3://bucket/some/prefix: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        let without = |command: &mut Command| {
            command.env_remove(name);
        };
        assert_eq!(run(&without, STORE), (Some(2), said(set)));
    }
    let secret = |command: &mut Command| {
        command.env("AWS_SECRET_ACCESS_KEY", "hidden");
    };
    let text = "s3://bucket/some/prefix: the secret is not the access key's: Permission denied \
                (EACCES)";
    assert_eq!(run(&secret, STORE), (Some(4), said(text)));
    let same = |_: &mut Command| {};
    let text = "s3://none: there is no such bucket: No such device or address (ENXIO)";
    assert_eq!(run(&same, "s3://none/a::"), (Some(4), said(text)));
    let text = "s3://a//b: a bucket is s3://BUCKET or s3://BUCKET/PREFIX";
    assert_eq!(run(&same, "s3://a//b::"), (Some(2), said(text)));
}
