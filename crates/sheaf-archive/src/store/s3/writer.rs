//! An object that is written: a short one at once, a longer one in parts.
use super::failure::{S3Cause, S3Failure};
use super::link::{S3Attempts, S3Link, units};
use super::{S3Limits, head};
use crate::store::{StoreError, StoreWriter};
use bytes::Bytes;
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::path::Path;
use object_store::{
    Attributes, GetOptions, ObjectStore as _, ObjectStoreExt as _, PutMode, PutMultipartOptions,
    PutOptions, PutPayload,
};
use sheaf_core::{Errno, lock};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

const DOING: &str = "cannot be written";
/// How long it is tried to take back what was sent.
const ABORT_MAX: Duration = Duration::from_secs(15);

/// An object of a bucket that is being written.
pub(super) struct S3Writer {
    link: Arc<S3Link>,
    path: Path,
    /// What the server is told of it.
    attributes: Attributes,
    /// What is not sent yet.
    buffer: Vec<u8>,
    upload: Option<S3Upload>,
}

/// An upload in parts. The server shows nothing of it before it is completed.
struct S3Upload {
    id: String,
    parts: Vec<JoinHandle<Result<PartId, S3Failure>>>,
    bytes: u64,
    /// Why one of its parts is not there.
    failed: Arc<Mutex<Option<S3Failure>>>,
}

impl S3Writer {
    pub fn new(link: Arc<S3Link>, path: Path, attributes: Attributes) -> Self {
        Self { link, path, attributes, buffer: Vec::new(), upload: None }
    }

    fn failed(&self, failure: S3Failure) -> StoreError {
        self.link.failed(failure, &self.path, DOING)
    }

    /// How much is sent at once.
    fn part_bytes(&self) -> usize {
        self.link.memory(self.upload.as_ref().map_or(0, |upload| upload.parts.len())).1
    }

    /// Begins an upload in parts.
    fn begin(&self) -> Result<S3Upload, S3Failure> {
        let link = &*self.link;
        link.wait(async {
            // Keys are fresh. Who uses one that is taken is told before all is sent.
            match head(link, &self.path).await {
                Err(failure) if failure.cause == S3Cause::Missing => {}
                Err(failure) => return Err(failure),
                Ok(_) => return Err(S3Failure::new(S3Cause::Taken)),
            }
            let begin = || {
                let attributes = self.attributes.clone();
                let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
                link.s3.create_multipart_opts(&self.path, options)
            };
            let id = link.tried(0, begin).await?;
            Ok(S3Upload { id, parts: Vec::new(), bytes: 0, failed: Arc::default() })
        })
    }

    /// Sends what is there as a part; waits only until there is room for it.
    fn send_part(&mut self) -> Result<(), S3Failure> {
        if self.upload.is_none() {
            self.upload = Some(self.begin()?);
        }
        let upload = self.upload.as_mut().expect("it was begun above");
        if let Some(failure) = *lock(&upload.failed) {
            return Err(failure);
        }
        if upload.parts.len() == S3Limits::PARTS_MAX {
            return Err(S3Failure::new(S3Cause::TooLong));
        }
        let bytes = self.link.sending(std::mem::take(&mut self.buffer));
        upload.bytes += bytes.len() as u64;
        // A part that is larger than the whole room is sent when nothing else is.
        let units = units(bytes.len()).min(units(self.link.memory(0).0));
        let room = self.link.wait(self.link.room.clone().acquire_many_owned(units));
        let room = room.expect("nobody closes it");
        let (link, path) = (self.link.clone(), self.path.clone());
        let (id, number) = (upload.id.clone(), upload.parts.len());
        let failed = upload.failed.clone();
        upload.parts.push(self.link.runtime.spawn(async move {
            // Given back when the part is sent, or given up.
            let _room = room;
            let send = || link.s3.put_part(&path, &id, number, PutPayload::from(bytes.clone()));
            let sent = link.tried(bytes.len(), send).await;
            if let Err(failure) = &sent {
                lock(&failed).get_or_insert(*failure);
            }
            sent
        }));
        Ok(())
    }

    /// Makes an object of the parts.
    fn complete(&mut self) -> Result<(), StoreError> {
        if !self.buffer.is_empty() {
            self.send_part().map_err(|failure| self.failed(failure))?;
        }
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let (link, path) = (self.link.clone(), self.path.clone());
        let stored = link.wait(async {
            let mut parts = Vec::new();
            // All of them end, also where one has failed: nothing is sent any more then.
            for part in std::mem::take(&mut upload.parts) {
                parts.push(part.await.unwrap_or(Err(S3Failure::BROKEN)));
            }
            let parts: Vec<_> = parts.into_iter().collect::<Result<_, _>>()?;
            complete(&link, &path, upload, &parts).await
        });
        match stored {
            Ok(bytes) if bytes == upload.bytes => {
                // It is no upload any more.
                self.upload = None;
                Ok(())
            }
            Ok(_) => {
                self.upload = None;
                // Nobody is to take it for what it should be.
                let removed = link.wait(link.tried(0, || link.s3.delete(&path)));
                let doing = match removed {
                    Ok(()) => "the server has not kept all that was sent",
                    Err(_) => "the server has not kept all that was sent, and does not remove it",
                };
                Err(StoreError { place: link.said(&path), doing, errno: Errno::IO })
            }
            Err(failure) => Err(self.failed(failure)),
        }
    }
}

/// Completes an upload; how many bytes the object has that is there then.
async fn complete(
    link: &S3Link,
    path: &Path,
    upload: &S3Upload,
    parts: &[PartId],
) -> Result<u64, S3Failure> {
    let (mut attempts, mut may_be_done) = (S3Attempts::new(link), false);
    loop {
        let complete = link.s3.complete_multipart(path, &upload.id, parts.to_vec());
        let failure = match link.once(0, complete).await {
            Ok(_) => return head(link, path).await,
            Err(failure) => failure,
        };
        match failure.cause {
            // The key is this upload's alone: what is there is of it.
            S3Cause::Taken | S3Cause::NoUpload | S3Cause::Missing if may_be_done => {
                return match head(link, path).await {
                    Err(none) if none.cause == S3Cause::Missing => Err(failure),
                    there => there,
                };
            }
            // The server may not know the condition: once more without it.
            S3Cause::Unknown if link.without_condition() => {}
            _ => {
                may_be_done |= failure.may_be_done();
                attempts.again(failure).await?;
            }
        }
    }
}

/// Writes a short object, where there is none.
pub(super) async fn put_new(
    link: &S3Link,
    path: &Path,
    bytes: &Bytes,
    attributes: &Attributes,
) -> Result<(), S3Failure> {
    let (mut attempts, mut may_be_done) = (S3Attempts::new(link), false);
    loop {
        let mut options = PutOptions::from(PutMode::Create);
        options.attributes = attributes.clone();
        let put = link.s3.put_opts(path, bytes.clone().into(), options);
        let failure = match link.once(bytes.len(), put).await {
            Ok(_) => return Ok(()),
            Err(failure) => failure,
        };
        // An earlier attempt that got no answer may have written the object.
        let is_mine =
            may_be_done && failure.cause == S3Cause::Taken && is_there(link, path, bytes).await?;
        if is_mine {
            return Ok(());
        }
        may_be_done |= failure.may_be_done();
        attempts.again(failure).await?;
    }
}

/// Whether an object has just these bytes.
async fn is_there(link: &S3Link, path: &Path, bytes: &Bytes) -> Result<bool, S3Failure> {
    let there = link
        .tried(0, || async {
            let got = link.s3.get_opts(path, GetOptions::default()).await?;
            if got.meta.size == bytes.len() as u64 { got.bytes().await.map(Some) } else { Ok(None) }
        })
        .await?;
    Ok(there.is_some_and(|there| there == *bytes))
}

impl Write for S3Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() >= self.part_bytes() {
            let sent = self.send_part();
            sent.map_err(|failure| io::Error::other(self.failed(failure)))?;
        }
        let part = self.part_bytes();
        let taken = bytes.len().min(part.saturating_sub(self.buffer.len()));
        // What grows by doubling would take more than a part. Pages that nobody writes to take nothing.
        if self.buffer.capacity() < part {
            if self.buffer.is_empty() {
                self.buffer = self.link.buffer();
            }
            self.buffer.reserve_exact(part - self.buffer.len());
        }
        self.buffer.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl StoreWriter for S3Writer {
    fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        if self.upload.is_some() {
            return self.complete();
        }
        let bytes = self.link.sending(std::mem::take(&mut self.buffer));
        let put = self.link.wait(put_new(&self.link, &self.path, &bytes, &self.attributes));
        put.map_err(|failure| self.failed(failure))
    }
}

impl Drop for S3Writer {
    fn drop(&mut self) {
        let Some(upload) = self.upload.take() else { return };
        let link = &*self.link;
        link.wait(async {
            for part in &upload.parts {
                part.abort();
            }
            for part in upload.parts {
                // Whatever came of it, it is no longer sent.
                let _ = part.await;
            }
            // What stays is no object: nobody sees it, and a rule of the bucket's may remove it.
            let abort = link.tried(0, || link.s3.abort_multipart(&self.path, &upload.id));
            let _ = tokio::time::timeout(ABORT_MAX, abort).await;
        });
    }
}
