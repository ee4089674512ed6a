//! A bucket of S3 as a store: an object is an object, by its key below a prefix.
//!
//! An object is written by a request that fails where one is there (`If-None-Match`). A server that
//! does not know this would let two writers of one commit both believe that they were first: it is
//! found out before the first object is written, and refused. Where nobody has said whether an object
//! was written, as the connection broke off, the next try finds it there and compares.
mod access;
mod failure;
mod http;
mod link;
mod reader;
mod settings;
mod writer;

pub use settings::{S3Access, S3Credentials, S3Encryption, S3Identity, S3Limits, S3Place};

use super::key::is_part;
use super::local::{MARK_BYTES_MAX, MARK_TEXT, is_store_id};
use super::{Store, StoreError, StoreKey, StoreMemory, StoreWriter, StoredObject};
use bytes::Bytes;
use failure::{S3Cause, S3Failure};
use link::S3Link;
use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, ObjectMeta, ObjectStore as _, ObjectStoreExt as _, PutMode,
};
use reader::S3Reader;
use sheaf_core::{Errno, lock};
use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use writer::{S3Writer, put_new};

/// Says that a prefix is a store, of which version, and which one.
const MARK: &str = "sheaf-archive";
const OBJECTS: &str = "objects";
/// What connections take in memory beside parts.
const CONNECTIONS_BYTES: u64 = 4 << 20;
/// Requests that are under way at once where many wait for them.
const CALLS_AT_ONCE: usize = 16;
/// Where objects end that any server has.
const OBJECT_BYTES_MAX: u64 = 1 << 60;

/// A prefix of a bucket that has an archive in it. Clones are of the same connections.
///
/// Its calls wait for the server, and are not for tasks of an asynchronous runtime.
#[derive(Clone)]
pub struct S3Store {
    link: Arc<S3Link>,
    mark: Bytes,
    /// Whether the server is known to keep what is there.
    is_proven: Arc<Mutex<bool>>,
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("S3Store").field(&self.link.place.to_string()).finish()
    }
}

impl S3Store {
    /// Makes a store of a prefix of a bucket that is there. One that is a store stays as it is.
    ///
    /// # Errors
    /// `ENOTEMPTY` where something else is in it, `EOPNOTSUPP` where the server cannot keep what is
    /// there; when it cannot be made.
    pub fn create(
        place: &S3Place,
        access: &S3Access,
        limits: S3Limits,
    ) -> Result<Self, StoreError> {
        match Self::open(place, access, limits) {
            Err(error) if error.errno == Errno::NOENT => {}
            opened => return opened,
        }
        let mut store = Self::new(place, access, limits)?;
        let mut is_empty = true;
        store.list_keys(&place.key(""), &mut |_| {
            is_empty = false;
            Ok(false)
        })?;
        if !is_empty {
            // Somebody else may have just made it one.
            match Self::open(place, access, limits) {
                Err(error) if error.errno == Errno::NOENT => {}
                opened => return opened,
            }
            return Err(StoreError {
                place: place.to_string(),
                doing: "is no store, and something is in it",
                errno: Errno::NOTEMPTY,
            });
        }
        store.mark = new_mark(place)?.into();
        let path = store.link.path(MARK)?;
        match store.link.wait(put_new(&store.link, &path, &store.mark, &Attributes::new())) {
            // Somebody else has just made it one.
            Err(failure) if failure.cause == S3Cause::Taken => {
                return Self::open(place, access, limits);
            }
            put => put.map_err(|failure| store.failed(failure, "cannot be made a store"))?,
        }
        store.prove()?;
        Ok(store)
    }

    /// A store that is there.
    ///
    /// # Errors
    /// `ENOENT` where there is none, `EOPNOTSUPP` for one of a later version; when the server or the
    /// bucket cannot be reached, or does not let one in.
    pub fn open(place: &S3Place, access: &S3Access, limits: S3Limits) -> Result<Self, StoreError> {
        let mut store = Self::new(place, access, limits)?;
        let (link, path) = (&*store.link, store.link.path(MARK)?);
        let read = link.tried(0, || async {
            let got = link.s3.get_opts(&path, GetOptions::default()).await?;
            // Something else may have this name, and be of any length: it is not read.
            if got.meta.size > MARK_BYTES_MAX {
                return Ok(Bytes::new());
            }
            got.bytes().await
        });
        store.mark = link.wait(read).map_err(|failure| store.failed(failure, "is no store"))?;
        if store.id().is_none() {
            return Err(StoreError {
                place: place.to_string(),
                doing: "a later Sheaf has made this store, or its mark is damaged",
                errno: Errno::OPNOTSUPP,
            });
        }
        Ok(store)
    }

    /// What no other store is called, also one that is made in its place.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        let rest = str::from_utf8(&self.mark).ok()?.strip_prefix(MARK_TEXT)?;
        // One that was copied from a directory has no name.
        is_store_id(rest.as_bytes()).then(|| rest.trim_start_matches("store ").trim_end())
    }

    fn new(place: &S3Place, access: &S3Access, limits: S3Limits) -> Result<Self, StoreError> {
        let link = Arc::new(S3Link::new(place, access, limits)?);
        Ok(Self { link, mark: Bytes::new(), is_proven: Arc::default() })
    }

    /// An error of the store itself.
    fn failed(&self, failure: S3Failure, doing: &'static str) -> StoreError {
        let place = match failure.cause {
            S3Cause::NoBucket | S3Cause::BucketName => format!("s3://{}", self.link.place.bucket),
            _ => self.link.place.to_string(),
        };
        failure.at(place, doing)
    }

    /// Finds out once whether the server keeps what is there: the mark is written again, as it is.
    fn prove(&self) -> Result<(), StoreError> {
        let mut is_proven = lock(&self.is_proven);
        if *is_proven {
            return Ok(());
        }
        let (link, mark) = (&*self.link, self.link.path(MARK)?);
        let put = link.tried(self.mark.len(), || {
            link.s3.put_opts(&mark, self.mark.clone().into(), PutMode::Create.into())
        });
        match link.wait(put) {
            Err(failure) if failure.cause == S3Cause::Taken => {
                *is_proven = true;
                Ok(())
            }
            Ok(_) => Err(StoreError {
                place: link.place.to_string(),
                doing: "its server overwrites what is there (it takes no If-None-Match), and can \
                        be no store",
                errno: Errno::OPNOTSUPP,
            }),
            Err(failure) => Err(self.failed(failure, "cannot be written")),
        }
    }

    fn object(&self, key: &StoreKey) -> Result<Path, StoreError> {
        self.link.path(&format!("{OBJECTS}/{key}"))
    }

    /// Lists what has a prefix, until `each` says that it is enough.
    fn list_keys(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(ObjectMeta) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let link = &*self.link;
        let failed = |failure| self.failed(failure, "cannot be listed");
        let (mut page_token, mut last) = (None, None);
        loop {
            let page = link.tried(0, || {
                let page_token = page_token.clone();
                let options = PaginatedListOptions { page_token, ..Default::default() };
                link.s3.list_paginated((!prefix.is_empty()).then_some(prefix), options)
            });
            let page = link.wait(page).map_err(failed)?;
            for object in page.result.objects {
                let key = object.location.as_ref().to_owned();
                if last.as_ref().is_some_and(|last| *last >= key) {
                    return Err(StoreError {
                        place: link.place.to_string(),
                        doing: "its server lists objects out of the order of their keys",
                        errno: Errno::OPNOTSUPP,
                    });
                }
                last = Some(key);
                if !each(object)? {
                    return Ok(());
                }
            }
            if page.page_token.is_none() {
                return Ok(());
            }
            if page.page_token == page_token {
                // It would go on for ever.
                return Err(failed(S3Failure::NO_ANSWER));
            }
            page_token = page.page_token;
        }
    }
}

/// The mark of a store that nobody has made yet.
fn new_mark(place: &S3Place) -> Result<String, StoreError> {
    let mut id = [0; 16];
    match rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty()) {
        Ok(16) => Ok(format!("{MARK_TEXT}store {:032x}\n", u128::from_be_bytes(id))),
        _ => Err(StoreError {
            place: place.to_string(),
            doing: "the system has no random numbers",
            errno: Errno::IO,
        }),
    }
}

/// How many bytes an object has.
async fn head(link: &S3Link, path: &Path) -> Result<u64, S3Failure> {
    let ask = |head| {
        let options = GetOptions { head, ..GetOptions::default() };
        link.tried(0, move || link.s3.get_opts(path, options.clone()))
    };
    let got = match ask(true).await {
        // Only what has a body says whether it is the bucket that is missing.
        Err(failure) if failure.cause == S3Cause::Missing => ask(false).await,
        got => got,
    };
    Ok(got?.meta.size)
}

/// Whether an object is a pack or a large file, which are read when their files are; all others are
/// read by every command.
fn is_bulk(key: &StoreKey) -> bool {
    let key = key.as_str();
    key.starts_with("data/") || (key.starts_with("packs/") && !key.contains(".idx"))
}

impl Store for S3Store {
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError> {
        self.prove()?;
        let class = self.link.storage_class.as_ref().filter(|_| is_bulk(key));
        let attributes = class.map(|class| (Attribute::StorageClass, class.clone()));
        let attributes = attributes.into_iter().collect();
        Ok(Box::new(S3Writer::new(self.link.clone(), self.object(key)?, attributes)))
    }

    fn open(&self, key: &StoreKey, from: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        Ok(Box::new(S3Reader::open(&self.link, self.object(key)?, from, None)?))
    }

    fn read(&self, key: &StoreKey, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let short = |errno| StoreError {
            place: format!("{}/{OBJECTS}/{key}", self.link.place),
            doing: "cannot be read",
            errno,
        };
        if range.end > OBJECT_BYTES_MAX || range.start > range.end {
            return Err(short(Errno::NODATA));
        }
        // A request cannot ask for an empty range.
        if range.is_empty() {
            let is_within = self.size(key)? >= range.end;
            return if is_within { Ok(Vec::new()) } else { Err(short(Errno::NODATA)) };
        }
        S3Reader::whole(&self.link, self.object(key)?, range)
    }

    fn size(&self, key: &StoreKey) -> Result<u64, StoreError> {
        let path = self.object(key)?;
        let size = self.link.wait(head(&self.link, &path));
        size.map_err(|failure| self.link.failed(failure, &path, "cannot be read"))
    }

    fn list(
        &self,
        parts: &[&str],
        each: &mut dyn FnMut(StoredObject) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (objects, mut prefix) = (self.link.place.key(OBJECTS) + "/", parts.join("/"));
        if !prefix.is_empty() {
            prefix += "/";
        }
        self.list_keys(&format!("{objects}{prefix}"), &mut |object| {
            let key = object.location.as_ref().strip_prefix(&objects).unwrap_or_default();
            let is_key = key.split('/').all(is_part);
            // Whoever puts other objects there has not put them into the store.
            if let Some(key) = StoreKey::new(key).filter(|_| is_key) {
                let written = object.last_modified.into();
                each(StoredObject { key, bytes: object.size, written })?;
            }
            Ok(true)
        })
    }

    fn remove(&self, key: &StoreKey) -> Result<(), StoreError> {
        let (link, path) = (&*self.link, self.object(key)?);
        let removed = link.wait(async {
            // A server removes what is not there, too.
            head(link, &path).await?;
            link.tried(0, || link.s3.delete(&path)).await
        });
        removed.map_err(|failure| link.failed(failure, &path, "cannot be removed"))
    }

    fn calls_at_once(&self) -> usize {
        CALLS_AT_ONCE
    }

    fn share_memory(&self, bytes: u64) -> StoreMemory {
        let (part, room) = self.link.share_memory(bytes);
        StoreMemory { writer_bytes: part, shared_bytes: room + CONNECTIONS_BYTES }
    }
}
