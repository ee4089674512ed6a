//! `sheaf archive` with a bucket of S3, as its user types it.
use crate::archive_limits::peak_of_command;
use sheaf_testing::S3Server;
use sheaf_testing::home::{Home, Run};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
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
            .env("XDG_CACHE_HOME", self.home.path().join("state"));
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
    let kept = place.run(&["repair", "--age", "0", STORE]);
    assert!(kept.stderr.starts_with("sheaf: removed 0 leftovers"), "{kept:?}");
    let forgot = place.run(&["forget", "--keep-last", "0", STORE]);
    assert_eq!(forgot.code, Some(0), "{forgot:?}");
    let repaired = place.run(&["repair", "--age", "0", STORE]);
    assert!(repaired.stderr.starts_with("sheaf: removed 2 leftovers"), "{repaired:?}");
    assert_eq!(place.run(&["ls", &format!("{STORE}/tree")]).stdout, "long\n");
}

/// The URL of a port at which nobody listens.
fn closed() -> String {
    format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
}

/// Answers requests for credentials as the hosts of containers and of machines do.
fn answers_for_credentials() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (key, secret) = (S3Server::ACCESS_KEY_ID, S3Server::SECRET_ACCESS_KEY);
    let keys = format!(
        r#"{{"AccessKeyId":"{key}","SecretAccessKey":"{secret}","Token":"","Expiration":"2100-01-01T00:00:00Z"}}"#
    );
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut line, mut lines) =
                (String::new(), BufReader::new(stream.try_clone().unwrap()));
            lines.read_line(&mut line).unwrap();
            let mut head = line.clone();
            while lines.read_line(&mut head).unwrap() > 2 {}
            let is_known = head.contains("of the container") || head.contains("of the machine");
            let body = match &line {
                line if line.starts_with("PUT /latest/api/token ") => "of the machine",
                line if line.contains("/security-credentials/role ") && is_known => &keys,
                line if line.contains("/security-credentials/ ") => "role",
                line if line.starts_with("GET /container ") && is_known => &keys,
                _ => "",
            };
            let status = if body.is_empty() { "403 Forbidden" } else { "200 OK" };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    url
}

#[test]
fn credentials_come_from_where_programs_of_aws_find_them() {
    let Some(place) = Place::new() else { return };
    assert_eq!(place.run(&["store", "--create", "tree", STORE]).code, Some(0));
    let home = place.home.path();
    fs::create_dir(home.join(".aws")).unwrap();
    let (key, secret) = (S3Server::ACCESS_KEY_ID, S3Server::SECRET_ACCESS_KEY);
    let process = format!(
        "#!/bin/sh\necho '{{\"Version\":1,\"AccessKeyId\":\"{key}\",\"SecretAccessKey\":\"{secret}\"}}'\n"
    );
    fs::write(home.join("process"), process).unwrap();
    fs::write(home.join("token"), "of the container").unwrap();
    let url = place.server.url();
    let config = format!(
        "[profile process]\ncredential_process = sh {}/process\nendpoint_url = {url}\n\
         [profile sso]\nsso_session = ours\n[profile empty]\nregion = eu\n",
        home.display()
    );
    fs::write(home.join(".aws/config"), config).unwrap();
    let keys = format!("aws_access_key_id = {key}\naws_secret_access_key = {secret}\n");
    let credentials = format!("[keys]\n{keys}[other]\n{keys}aws_session_token = no\n");
    fs::write(home.join(".aws/credentials"), credentials).unwrap();
    let service = answers_for_credentials();
    let listed = |variables: &[(&str, &str)]| {
        let mut command = place.command(&["ls", STORE]);
        if !variables.iter().any(|(name, _)| *name == "AWS_ACCESS_KEY_ID") {
            command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        }
        command.envs(variables.iter().copied());
        Run::of(command.output().unwrap())
    };
    let container = format!("{service}/container");
    let token = home.join("token").display().to_string();
    for variables in [
        &[("AWS_PROFILE", "keys")][..],
        &[("AWS_PROFILE", "process"), ("AWS_ENDPOINT_URL", "")],
        // A profile that is named is meant, also where the environment has keys.
        &[("AWS_PROFILE", "keys"), ("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "y")],
        &[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &container),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &token),
        ],
        &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &service)],
    ] {
        let run = listed(variables);
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), "tree\n"), "{variables:?}: {run:?}");
    }
    for (profile, told) in [
        ("none", "AWS_PROFILE: no profile none"),
        ("empty", "s3://bucket/some/prefix: profile empty has no credentials"),
        ("sso", "gets its credentials by single sign-on (sso)"),
    ] {
        let run = listed(&[("AWS_PROFILE", profile)]);
        assert!(run.code == Some(2) && run.stderr.contains(told), "{run:?}");
    }
    let refused = listed(&[("AWS_PROFILE", "other")]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    let authorities = listed(&[("AWS_PROFILE", "keys"), ("AWS_CA_BUNDLE", &token)]);
    let told = "the file of authorities ($AWS_CA_BUNDLE) has no certificates as PEM";
    assert!(authorities.stderr.contains(told), "{authorities:?}");
    let there =
        place.run(&["store", "--sse", "AES256", "--storage-class", "STANDARD_IA", "tree", STORE]);
    assert_eq!(there.code, Some(0), "{there:?}");
    let here =
        place.run(&["store", "--create", "--storage-class", "STANDARD_IA", "tree", "here::"]);
    assert!(here.code == Some(2) && here.stderr.contains("are for buckets"), "{here:?}");
}

/// What no request can carry is refused before one is made.
#[test]
fn region_and_credentials_are_checked_before_they_are_used() {
    let Some(place) = Place::new() else { return };
    let line = place.home.path().join("line");
    fs::write(&line, "token\n").unwrap();
    let container = "http://127.0.0.1:9/container";
    let of_container = [
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_SECRET_ACCESS_KEY", ""),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", container),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", line.to_str().unwrap()),
    ];
    let key = [("AWS_ACCESS_KEY_ID", "x\ny"), ("AWS_SECRET_ACCESS_KEY", "y")];
    for (variables, code, told) in [
        (&of_container[..], 4, "or one with an end of a line"),
        (&key, 4, "the credentials have bytes that no key has"),
        (&[("AWS_REGION", "127.0.0.1:9/x?")], 2, "\"127.0.0.1:9/x?\" is no region"),
    ] {
        let mut command = place.command(&["ls", STORE]);
        let run = Run::of(command.envs(variables.iter().copied()).output().unwrap());
        assert!(run.code == Some(code) && run.stderr.contains(told), "{run:?}");
    }
}

/// It could have any file of the caller's sent to any server.
#[test]
fn profile_of_another_user_is_not_used() {
    let Some(place) = Place::new() else { return };
    assert_eq!(place.run(&["store", "--create", "tree", STORE]).code, Some(0));
    let directory = place.home.path().join(".aws");
    fs::create_dir(&directory).unwrap();
    let listed = |variables: &[(&str, &str)]| {
        let mut command = place.command(&["ls", STORE]);
        Run::of(command.envs(variables.iter().copied()).output().unwrap())
    };
    for name in ["config", "credentials"] {
        let file = directory.join(name);
        fs::write(&file, "[default]\nrole_session_name = x\n").unwrap();
        assert_eq!(listed(&[]).code, Some(0));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        let run = listed(&[]);
        assert!(run.code == Some(2) && run.stderr.contains("others can write to it"), "{run:?}");
        // A group of the caller's own number has nobody else in it.
        let mode = if rustix::process::geteuid().is_root() { 0o664 } else { 0o600 };
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(listed(&[]).code, Some(0));
        if !rustix::process::geteuid().is_root() {
            continue;
        }
        for of in [&file, &directory] {
            std::os::unix::fs::chown(of, Some(4711), None).unwrap();
            let run = listed(&[]);
            assert!(run.code == Some(2) && run.stderr.contains("belongs to user 4711"), "{run:?}");
            std::os::unix::fs::chown(of, Some(0), None).unwrap();
        }
        // Nothing waits for a writer of a pipe.
        fs::remove_file(&file).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, 0o600.into()).unwrap();
        std::os::unix::fs::chown(&file, Some(4711), None).unwrap();
        let run = listed(&[]);
        assert!(run.code == Some(2) && run.stderr.contains("belongs to user 4711"), "{run:?}");
        fs::remove_file(&file).unwrap();
    }
    let run = listed(&[("AWS_CONFIG_FILE", "/dev/null")]);
    assert_eq!(run.code, Some(0), "{run:?}");
    std::os::unix::fs::symlink("/dev/null", directory.join("config")).unwrap();
    assert_eq!(listed(&[]).code, Some(0));
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

/// The files of a store in a directory are the objects of one in a bucket, and the other way round.
#[test]
fn store_is_copied_between_a_directory_and_a_bucket() {
    let Some(place) = Place::new() else { return };
    assert_eq!(place.run(&["store", "--create", "tree", "here::"]).code, Some(0));
    let copy = |from: PathBuf, to: PathBuf| {
        fs::create_dir_all(&to).unwrap();
        let copied = Command::new("cp").arg("-r").arg(from.join(".")).arg(to).status().unwrap();
        assert!(copied.success());
    };
    copy(place.home.path().join("here"), place.server.bucket().join("some/prefix"));
    copy(place.server.bucket().join("some/prefix"), place.home.path().join("back"));
    // Programs that copy objects make no empty directory.
    fs::remove_dir(place.home.path().join("back/tmp")).unwrap();
    // (This server overwrites what it has not written itself, so nothing is written there.)
    for store in [STORE, "back::"] {
        assert_eq!(place.run(&["verify", store]).code, Some(0), "{store}");
        assert_eq!(place.run(&["cat", &format!("{store}tree/sub/7")]).stdout, "7\n", "{store}");
    }
    let stored = place.run(&["store", "tree", "back::more"]);
    assert_eq!(stored.code, Some(0), "{stored:?}");
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
    let nobody = |command: &mut Command| {
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        command.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", closed());
    };
    let (code, text) = run(&nobody, STORE);
    let none = "s3://bucket/some/prefix: this machine has no role of EC2, which would give \
                credentials: Required key not available (ENOKEY)";
    assert_eq!((code, text), (Some(4), said(none)));
    let disabled = |command: &mut Command| {
        nobody(command);
        command.env("AWS_EC2_METADATA_DISABLED", "true");
    };
    let none = "s3://bucket/some/prefix: there are no credentials: set AWS_ACCESS_KEY_ID and \
                AWS_SECRET_ACCESS_KEY";
    assert_eq!(run(&disabled, STORE), (Some(2), said(none)));
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

#[test]
fn limit_of_memory_holds_for_what_is_sent() {
    const MIB: u64 = 1 << 20;
    let Some(place) = Place::new() else { return };
    let content: Vec<u8> = (0..32 * MIB).map(|at| (at / 3) as u8).collect();
    for number in 0..16 {
        let directory = place.home.path().join(format!("many/{number}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("file"), &content).unwrap();
    }
    let store = ["store", "--create", "--limit", "memory=80M", "many", STORE];
    let stored = peak_of_command(place.command(&store));
    assert!(stored < 90 * MIB, "store had {} MiB", stored / MIB);
    let got = peak_of_command(place.command(&["get", "--limit", "memory=80M", STORE, "back"]));
    assert!(got < 90 * MIB, "get had {} MiB", got / MIB);
    assert_eq!(fs::read(place.home.path().join("back/many/7/file")).unwrap(), content);
}
