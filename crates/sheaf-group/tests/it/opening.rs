//! A group opens everywhere or nowhere: what opening changes, and what it takes back.
use crate::cluster::{Cluster, SHAPES, run};
use rustix::fs::OFlags;
use sheaf_core::Errno;
use sheaf_group::GroupError;
use sheaf_group::flags::{O_BESTEFFORT, O_PARTIAL};
use sheaf_group::message::{OpenMessage, Operation};
use std::fs::File;
use std::os::unix::fs::symlink;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant, UNIX_EPOCH};

const CREATE: OFlags = OFlags::WRONLY.union(OFlags::CREATE);

/// Waits until `is_so`; what goes on at the hosts needs the runtime meanwhile.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn group_that_does_not_open_empties_nobody() {
    for access in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
        for more in [OFlags::empty(), OFlags::CREATE, OFlags::APPEND] {
            let cluster = Cluster::new(7);
            (0..7).filter(|leaf| *leaf != 4).for_each(|leaf| cluster.write(leaf, "f", "old"));
            std::fs::create_dir(cluster.path(4, "f")).unwrap();
            let flags = (access | more | OFlags::TRUNC).bits();
            let contents = |expected: &[u8]| {
                for leaf in (0..7).filter(|leaf| *leaf != 4) {
                    assert_eq!(
                        std::fs::read(cluster.path(leaf, "f")).unwrap(),
                        expected,
                        "{flags:o}"
                    );
                }
            };
            run(async {
                let client = cluster.client("k-ary:2");
                let opened = client.gopenat(&cluster.everyone(), "/f", flags, 0o600).await;
                let Err(GroupError::Members(outcome)) = opened else { panic!("{flags:o} opened") };
                assert_eq!(outcome.errors[0].errno, Errno::ISDIR);
                contents(b"old");
                let open = OpenMessage::new(vec!["/f".into()], flags, 0);
                let once = client.once(&cluster.everyone(), open, Operation::Write, b"new").await;
                assert!(matches!(once, Err(GroupError::Members(_))));
                contents(b"old");
                // With best effort the others are the group.
                let flags = flags | O_BESTEFFORT;
                let group = client.gopenat(&cluster.everyone(), "/f", flags, 0).await.unwrap();
                assert_eq!(group.size(), 6);
                contents(b"");
            });
        }
    }
}

#[test]
fn group_that_opens_is_emptied_and_what_it_made_stays() {
    for shape in SHAPES {
        let cluster = Cluster::new(9);
        (0..9).filter(|leaf| leaf % 2 == 0).for_each(|leaf| cluster.write(leaf, "f", "old"));
        run(async {
            let client = cluster.client(shape);
            let flags = (CREATE | OFlags::TRUNC).bits();
            let group = client.gopenat(&cluster.everyone(), "/f", flags, 0o600).await.unwrap();
            assert_eq!(group.size(), 9);
        });
        for leaf in 0..9 {
            assert_eq!(std::fs::read(cluster.path(leaf, "f")).unwrap(), b"", "{shape}");
        }
    }
}

#[test]
fn dropped_opening_leaves_no_file_behind() {
    for polls in 0..24 {
        let cluster = Cluster::new(6);
        // The group cannot open: one has the file.
        cluster.write(5, "f", "mine");
        let old = UNIX_EPOCH + Duration::from_secs(1);
        for leaf in 0..5 {
            File::open(cluster.path(leaf, "")).unwrap().set_modified(old).unwrap();
        }
        run(async {
            let client = cluster.client("k-ary:2");
            let flags = (CREATE | OFlags::EXCL).bits();
            let everyone = cluster.everyone();
            let is_made = |leaf: &u32| cluster.path(*leaf, "f").exists();
            {
                let mut opening = pin!(client.gopenat(&everyone, "/f", flags, 0o600));
                for _ in 0..polls {
                    if opening.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_micros(300)).await;
                }
                if polls == 1 {
                    // Hosts may be so quick that the file is gone again by now.
                    let was_made = |leaf| {
                        let dir = std::fs::metadata(cluster.path(leaf, "")).unwrap();
                        dir.modified().unwrap() != old
                    };
                    until("nobody made the file", || (0..5).any(was_made)).await;
                }
            }
            until("files stay", || (0..6).filter(is_made).eq([5])).await;
        });
    }
}

#[test]
fn opening_that_is_dropped_late_is_done_by_all_or_by_none() {
    for polls in 1..24 {
        let cluster = Cluster::new(6);
        run(async {
            let client = cluster.client("1x2x1x3");
            let everyone = cluster.everyone();
            let made = || (0..6).filter(|leaf| cluster.path(*leaf, "f").exists()).count();
            {
                let mut opening = pin!(client.gopenat(&everyone, "/f", CREATE.bits(), 0o600));
                for _ in 0..polls {
                    if opening.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_micros(300)).await;
                }
            }
            until("some have the file", || [0, 6].contains(&made())).await;
        });
    }
}

#[test]
fn undo_removes_no_file_of_others() {
    let cluster = Cluster::new(3);
    run(async {
        let client = cluster.client("flat");
        let group = client.gopenat(&cluster.everyone(), "/f", CREATE.bits(), 0o600).await.unwrap();
        std::fs::remove_file(cluster.path(0, "f")).unwrap();
        cluster.write(0, "f", "theirs");
        std::fs::rename(cluster.path(1, "f"), cluster.path(1, "g")).unwrap();
        symlink("g", cluster.path(1, "f")).unwrap();
        group.abandon().await.unwrap();
    });
    assert_eq!(std::fs::read(cluster.path(0, "f")).unwrap(), b"theirs");
    assert!(cluster.path(1, "g").exists() && cluster.path(1, "f").is_symlink());
    assert!(!cluster.path(2, "f").exists());
}

#[test]
fn file_made_through_a_link_is_removed_again() {
    let cluster = Cluster::new(3);
    (0..2).for_each(|leaf| symlink("target", cluster.path(leaf, "f")).unwrap());
    std::fs::create_dir(cluster.path(2, "f")).unwrap();
    run(async {
        let client = cluster.client("flat");
        let opened = client.gopenat(&cluster.everyone(), "/f", CREATE.bits(), 0o600).await;
        assert!(matches!(opened, Err(GroupError::Members(_))));
    });
    for leaf in 0..2 {
        assert!(cluster.path(leaf, "f").is_symlink() && !cluster.path(leaf, "target").exists());
    }
}

#[test]
fn directory_is_named_and_not_described() {
    let cluster = Cluster::new(2);
    cluster.write_all("dir[1]/a", "brackets");
    cluster.write_all("dir1/b", "none");
    for leaf in 0..2 {
        // Neither a directory nor a link to one is a member.
        std::fs::create_dir(cluster.path(leaf, "dir[1]/sub")).unwrap();
        symlink("sub", cluster.path(leaf, "dir[1]/link")).unwrap();
        symlink("/dir1", cluster.path(leaf, "dir[1]/absolute")).unwrap();
        symlink("a", cluster.path(leaf, "dir[1]/c")).unwrap();
    }
    run(async {
        let client = cluster.client("flat");
        for flags in [0, 2] {
            let group = client.gopen(&cluster.everyone(), "/dir[1]", flags, 0).await.unwrap();
            let files = ["n1:/dir[1]/a", "n1:/dir[1]/c", "n2:/dir[1]/a", "n2:/dir[1]/c"];
            assert_eq!(group.files().await.unwrap(), files);
        }
    });
}

#[test]
fn empty_directory_is_an_empty_group() {
    let cluster = Cluster::new(3);
    (0..3).for_each(|leaf| std::fs::create_dir(cluster.path(leaf, "d")).unwrap());
    run(async {
        let client = cluster.client("flat");
        for flags in [0, O_BESTEFFORT, O_PARTIAL, O_BESTEFFORT | O_PARTIAL] {
            assert_eq!(client.gopen(&cluster.everyone(), "/d", flags, 0).await.unwrap().size(), 0);
        }
    });
}
