//! Nothing counts but the environment that is handed over.
use sheaf_core::Errno;
use sheaf_session::{Choices, Config, Environment, Session, SessionError, Sessions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap();
}

#[test]
fn configuration_and_groups_are_found_through_it_alone() {
    let home = tempfile::tempdir().unwrap();
    write(
        &home.path().join("sheaf/sheaf.toml"),
        "[cluster.lab]\nhosts = \"@rack:r1\"\nlaunch = \"attach\"\n",
    );
    let shell = home.path().join("clustershell");
    write(&shell.join("groups.conf"), "[Main]\ndefault: rack\nautodir: $CFGDIR/groups.d\n");
    write(&shell.join("groups.d/rack.yaml"), "rack:\n  r1: n[1-3]\n");
    let here = Environment::default().with("XDG_CONFIG_HOME", home.path());
    let config = Config::load(&Choices::default(), &here).unwrap();
    assert_eq!(config.hosts().unwrap().everyone(), "n[1-3]");
    let nowhere = Config::load(&Choices::default(), &Environment::default()).unwrap();
    assert!(nowhere.is_this_machine(), "{nowhere:?}");
}

#[test]
fn sessions_are_where_it_says() {
    let place = |environment: &Environment| Sessions::of(environment).directory().to_owned();
    let temporary = Environment::default().with("TMPDIR", "/var/tmp");
    assert!(place(&temporary).starts_with("/var/tmp"));
    assert_eq!(
        place(&temporary.clone().with("XDG_RUNTIME_DIR", "/run/user/7")),
        Path::new("/run/user/7/sheaf")
    );
    assert!(
        place(&temporary.with("XDG_RUNTIME_DIR", "run")).starts_with("/var/tmp"),
        "it has to be absolute"
    );
    assert!(place(&Environment::default().with("TMPDIR", "")).starts_with("/tmp"));
}

#[test]
fn error_says_what_it_means() {
    let load = |choices: &Choices| Config::load(choices, &Environment::default()).unwrap_err();
    let unknown = load(&Choices { cluster: Some("lab".to_owned()), ..Choices::default() });
    assert!(matches!(unknown, SessionError::Cluster(_)) && unknown.is_usage(), "{unknown}");
    assert_eq!(unknown.errno(), Errno::NOENT);
    let both =
        load(&Choices { embedded: Some(2), on_hosts: vec!["n1".to_owned()], ..Choices::default() });
    assert!(matches!(both, SessionError::Choice(_)), "{both}");
    assert_eq!(both.errno(), Errno::INVAL);
}

#[test]
fn configuration_and_a_session_go_from_thread_to_thread() {
    fn both<T: Send + Sync>() {}
    both::<Config>();
    both::<Session>();
    both::<SessionError>();
}
