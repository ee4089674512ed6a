//! Threads say in which file system they are about to work, before they do.
use sheaf_core::Errno;
use sheaf_core::place::{Worker, set_worker};
use sheaf_file::{Export, Mode, OFlags};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Too many threads hang in the file system of this device.
struct Hung(u64);

impl Worker for Hung {
    fn show_life(&self) {}

    fn enter(&self, device: u64) -> Result<(), Errno> {
        if device == self.0 { Err(Errno::AGAIN) } else { Ok(()) }
    }
}

/// On a thread of its own, as a pool has them.
fn as_worker(device: u64, act: impl FnOnce() + Send + 'static) {
    let act = move || {
        set_worker(Arc::new(Hung(device)));
        act();
    };
    std::thread::spawn(act).join().unwrap();
}

#[test]
fn nothing_is_begun_in_a_file_system_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "kept").unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    let device = std::fs::metadata(dir.path()).unwrap().dev();
    let root = dir.path().to_owned();
    as_worker(device, move || {
        let export = Export::open(&root).unwrap();
        let (file, new) = (Path::new("f"), Path::new("new"));
        let open =
            |path, flags| export.open_file(path, flags, Mode::from_raw_mode(0o600)).map(drop);
        let refused = [
            ("a write", open(file, OFlags::WRONLY)),
            ("a creation", open(new, OFlags::WRONLY | OFlags::CREATE)),
            ("a read", export.open_read(file).map(drop)),
            ("a stat", export.stat(file).map(drop)),
            ("a directory", export.create_dir(new, Mode::from_raw_mode(0o700))),
            ("a renaming", export.rename(file, new, true)),
        ];
        for (what, done) in refused {
            assert_eq!(done, Err(Errno::AGAIN), "{what}");
        }
    });
    assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"kept");
    assert!(!dir.path().join("new").exists());
    // Another file system goes on.
    let root = dir.path().to_owned();
    as_worker(device + 1, move || {
        let export = Export::open(&root).unwrap();
        assert_eq!(export.stat(Path::new("f")).unwrap().size, 4);
        assert!(export.open_file(Path::new("f"), OFlags::WRONLY, Mode::empty()).is_ok());
    });
}
