//! A place for a store of each kind, for tests of what all of them do.
use sheaf_archive::{
    LocalStore, S3Access, S3Credentials, S3Limits, S3Place, S3Store, Store, StoreError, StoreKey,
    TapeSettings, TapeStore,
};
use sheaf_testing::S3Server;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A place where nothing is yet.
pub struct StorePlace {
    pub directory: tempfile::TempDir,
    pub is_tape: bool,
    pub server: Option<S3Server>,
}

impl StorePlace {
    /// In a directory.
    pub fn local() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), is_tape: false, server: None }
    }

    /// On tapes.
    pub fn tape() -> Self {
        Self { is_tape: true, ..Self::local() }
    }

    /// In a bucket; nothing, with a word, where there is no server.
    pub fn s3() -> Option<Self> {
        let server = Some(S3Server::start()?);
        Some(Self { server, ..Self::local() })
    }

    /// One of each kind that there is here.
    pub fn all() -> Vec<Self> {
        [Some(Self::local()), Some(Self::tape()), Self::s3()].into_iter().flatten().collect()
    }

    pub fn create(&self) -> Result<Arc<dyn Store>, StoreError> {
        match &self.server {
            Some(server) => {
                let (place, credentials) = s3_place(server);
                Ok(Arc::new(S3Store::create(&place, &credentials, s3_limits())?))
            }
            None => create(&self.said()),
        }
    }

    pub fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        open(&self.name())
    }

    /// What another process opens it by, by [`open`].
    pub fn name(&self) -> String {
        match &self.server {
            Some(server) => server.url(),
            None => self.said(),
        }
    }

    /// What errors call the store.
    pub fn said(&self) -> String {
        match &self.server {
            Some(server) => s3_place(server).0.to_string(),
            None if self.is_tape => format!("tape:{}", self.root().display()),
            None => self.root().display().to_string(),
        }
    }

    /// What errors call an object.
    pub fn said_of(&self, key: &StoreKey) -> String {
        format!("{}/{}{key}", self.said(), if self.is_tape { "" } else { "objects/" })
    }

    /// Where its files are on this machine.
    pub fn root(&self) -> PathBuf {
        match &self.server {
            Some(server) => server.bucket().join("some/prefix"),
            None => self.directory.path().join("store"),
        }
    }

    /// Where files of its objects are on this machine.
    pub fn objects(&self) -> PathBuf {
        self.root().join(if self.is_tape { "disk/objects" } else { "objects" })
    }

    /// Files that a store has in which nothing is.
    pub fn own_files(&self) -> usize {
        if self.is_tape { 2 } else { 1 }
    }
}

/// All files of a directory, the store's own among them.
pub fn files(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

/// Opens the store that is called so.
pub fn open(name: &str) -> Result<Arc<dyn Store>, StoreError> {
    if let Some(directory) = name.strip_prefix("tape:") {
        return Ok(Arc::new(TapeStore::open(Path::new(directory))?));
    }
    if !name.starts_with("http://") {
        return Ok(Arc::new(LocalStore::open(Path::new(name))?));
    }
    Ok(Arc::new(S3Store::open(&s3_place_at(name), &test_credentials().into(), s3_limits())?))
}

/// Opens the store that is called so, or makes it.
pub fn create(name: &str) -> Result<Arc<dyn Store>, StoreError> {
    if let Some(directory) = name.strip_prefix("tape:") {
        // Some objects are longer than a cartridge.
        let settings = TapeSettings { cartridge_bytes: 3_000_000, ..tape_settings() };
        return Ok(Arc::new(TapeStore::create(Path::new(directory), settings)?));
    }
    if !name.starts_with("http://") {
        return Ok(Arc::new(LocalStore::create(Path::new(name))?));
    }
    Ok(Arc::new(S3Store::create(&s3_place_at(name), &test_credentials().into(), s3_limits())?))
}

fn test_credentials() -> S3Credentials {
    S3Credentials {
        access_key_id: S3Server::ACCESS_KEY_ID.to_owned(),
        secret_access_key: S3Server::SECRET_ACCESS_KEY.to_owned(),
        session_token: None,
    }
}

pub fn s3_place_at(endpoint: &str) -> S3Place {
    let url = format!("s3://{}/some/prefix", S3Server::BUCKET);
    S3Place { endpoint: Some(endpoint.to_owned()), ..S3Place::parse(&url).unwrap() }
}

pub fn s3_place(server: &S3Server) -> (S3Place, S3Access) {
    (s3_place_at(&server.url()), test_credentials().into())
}

/// Small parts, so that short objects have several, and short waits.
pub fn s3_limits() -> S3Limits {
    S3Limits {
        attempts: 4,
        backoff: Duration::from_millis(10),
        backoff_max: Duration::from_millis(100),
        silence: Duration::from_secs(20),
        part_bytes: 5 << 20,
        room_bytes: 15 << 20,
        ..S3Limits::default()
    }
}

/// A library that takes no time.
pub fn tape_settings() -> TapeSettings {
    TapeSettings { gather: Duration::ZERO, ..TapeSettings::default() }
}
