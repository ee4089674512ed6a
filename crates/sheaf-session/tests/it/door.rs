//! A session started, joined and ended.
use sheaf_core::Errno;
use sheaf_group::message::DataAggregation;
use sheaf_group::{GroupError, Servers, Value};
use sheaf_session::address::Purpose;
use sheaf_session::{
    Choices, Come, Config, Environment, Reserved, Session, SessionError, Start, started,
};
use std::time::Duration;

/// Hosts n1 … that are directories, each with a file that holds its number.
fn hosts(count: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for n in 1..=count {
        let host = dir.path().join(format!("n{n}"));
        std::fs::create_dir(&host).unwrap();
        std::fs::write(host.join("number"), n.to_string()).unwrap();
    }
    dir
}

fn export(dir: &tempfile::TempDir) -> String {
    format!("{}/%h", dir.path().display())
}

#[tokio::test]
async fn session_inside_this_process_is_started_read_and_ended() {
    let dir = hosts(8);
    let builder =
        Session::builder(&Environment::default()).embedded(8).export(export(&dir)).tree("k-ary:2");
    let session = builder.start().await.unwrap();
    assert_eq!((session.hosts().to_string(), session.is_own()), ("n[1-8]".to_owned(), true));
    let target = session.address("n[2-5]:/num*").unwrap();
    let group = session.client().gopenat(&target.members, &target.path, 0, 0).await.unwrap();
    let sum = DataAggregation::by_name("sum", &[1], 1 << 20, 0).unwrap();
    let reading = group.read(64, sum).await.unwrap();
    assert_eq!(reading.outcome.status.count, 4);
    let Value::Numbers(numbers) = reading.value else { panic!("{:?}", reading.value) };
    assert_eq!(numbers[0].number.to_string(), "14");
    let client = session.client().clone();
    session.end().await;
    let late = client.gopenat(&target.members, &target.path, 0, 0).await;
    assert!(late.is_err(), "{:?}", late.map(drop));
}

#[tokio::test]
async fn addresses_name_hosts_of_the_session() {
    let session = Session::builder(&Environment::default()).embedded(4).start().await.unwrap();
    let told = |address: &str| session.address(address).unwrap_err();
    assert!(matches!(told("n[3-5]:/x"), SessionError::UnknownHosts(_)), "{}", told("n5:/x"));
    assert!(matches!(told("n1:x"), SessionError::Address(_)), "{}", told("n1:x"));
    assert_eq!(session.address("/x").unwrap().members.len(), 4);
    let change = session.address_for("/x", Purpose::Change("rm")).unwrap_err();
    assert!(change.to_string().contains("say on which hosts"), "{change}");
    session.end().await;
}

#[tokio::test]
async fn session_that_stays_is_joined_by_its_name() {
    let (dir, runtime) = (hosts(3), tempfile::tempdir().unwrap());
    let environment = Environment::default()
        .with("XDG_RUNTIME_DIR", runtime.path())
        .with("TMPDIR", runtime.path());
    let absent = Session::join(&environment, "lab").await.unwrap_err();
    assert!(matches!(absent, SessionError::Absent(_)) && absent.is_unreachable(), "{absent}");
    assert_eq!(absent.errno(), Errno::NOENT);

    let choices = Choices {
        embedded: Some(3),
        export: Some(export(&dir)),
        session: Some("lab".to_owned()),
        ..Choices::default()
    };
    let config = Config::load(&choices, &environment).unwrap();
    let post = Reserved::take(&config).unwrap();
    let taken = Reserved::take(&config).map(drop).unwrap_err();
    assert!(matches!(taken, SessionError::Taken(_)), "{taken}");
    let services = Servers::default().services();
    let start = Start {
        services: &services,
        configs: Default::default(),
        program: None,
        umask: None,
        depth: 1,
    };
    let root = start.start(config).await.unwrap();
    assert_eq!(started(&root, None).await, Come { count: 3, ..Come::default() });
    let open = post.open(&root).unwrap();

    let used = async {
        let joined = Session::join(&environment, "lab").await.unwrap();
        assert!(!joined.is_own());
        assert_eq!((joined.name(), joined.about().unwrap().hosts.as_str()), ("lab", "n[1-3]"));
        let target = joined.address("@all:/number").unwrap();
        let group = joined.client().gopenat(&target.members, &target.path, 0, 0).await.unwrap();
        assert_eq!(group.size(), 3);
        drop(group);
        // It is left, and goes on.
        joined.end().await;
        Session::join(&environment, "lab").await.unwrap()
    };
    let joined = tokio::select! {
        joined = used => joined,
        served = open.serve(&root) => panic!("{served:?}"),
    };
    drop(open);
    root.end().await;
    let ended = Session::join(&environment, "lab").await.unwrap_err();
    assert!(matches!(ended, SessionError::Absent(_)), "{ended}");
    let target = joined.address("n1:/number").unwrap();
    let wait = joined.client().gopenat(&target.members, &target.path, 0, 0);
    let gone =
        tokio::time::timeout(Duration::from_secs(30), wait).await.expect("it is not waited for");
    assert!(
        matches!(gone, Err(GroupError::Members(_) | GroupError::Ended)),
        "{:?}",
        gone.map(drop)
    );
}

#[tokio::test]
async fn processes_need_a_program_that_serves() {
    let told = Session::builder(&Environment::default()).processes(2).start().await.unwrap_err();
    assert!(matches!(told, SessionError::Choice(_)), "{told}");
}

/// The services of a session that was started without a choice are those that `services` lists.
#[cfg(feature = "full")]
#[tokio::test]
async fn default_session_has_every_service() {
    let environment = Environment::default();
    let services = sheaf_session::services(&environment);
    let mut names: Vec<_> = services.names().collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["files", "files-near", "gate", "groups", "probe", "survey", "tools", "trace"]
    );

    let session = Session::builder(&environment).embedded(2).start().await.unwrap();
    let client = session.client();
    let (servers, outcome) =
        sheaf_tools::about::about(client, &client.network().everyone()).await.unwrap();
    assert_eq!((servers.len(), outcome.silent.len()), (2, 0), "tools answer");
    let remotes = sheaf_mount::HostRemotes::new(client.network(), Duration::from_secs(10)).unwrap();
    let exported = remotes.host(0).export().await;
    assert_eq!(exported.unwrap(), std::path::Path::new("/"), "files of a view are served");
    session.end().await;
}
