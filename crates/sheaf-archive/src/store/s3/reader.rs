//! An object that is read: a connection that breaks off goes on where it was.
use super::failure::{S3Cause, S3Failure};
use super::link::{S3Attempts, S3Link};
use crate::store::StoreError;
use bytes::{Buf as _, Bytes};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore as _};
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

const DOING: &str = "cannot be read";

/// Some bytes of an object, from one on.
pub(super) struct S3Reader {
    link: Arc<S3Link>,
    path: Path,
    at: u64,
    /// Where it ends; nothing until a server has said it.
    end: Option<u64>,
    /// How long the object is, and which one it is.
    of: Option<(u64, Option<String>)>,
    stream: Option<BoxStream<'static, object_store::Result<Bytes>>>,
    rest: Bytes,
}

impl S3Reader {
    /// Begins to read, to a byte or to the end.
    pub fn open(
        link: &Arc<S3Link>,
        path: Path,
        at: u64,
        end: Option<u64>,
    ) -> Result<Self, StoreError> {
        let (link, rest) = (link.clone(), Bytes::new());
        let mut reader = Self { link, path, at, end, of: None, stream: None, rest };
        let link = reader.link.clone();
        link.wait(reader.fill()).map_err(|failure| link.failed(failure, &reader.path, DOING))?;
        Ok(reader)
    }

    /// All bytes of a range.
    pub fn whole(link: &Arc<S3Link>, path: Path, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let short = S3Failure::new(S3Cause::Range);
        let short = link.failed(short, &path, DOING);
        let mut reader = match Self::open(link, path, range.start, Some(range.end)) {
            Err(error) if error.errno == short.errno => return Err(short),
            opened => opened?,
        };
        if reader.of.as_ref().is_some_and(|(bytes, _)| *bytes < range.end) {
            return Err(short);
        }
        // It is not longer than the object, so there may be memory for it.
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        match reader.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(as_store_error(error, &reader)),
        }
    }

    /// Has some bytes at hand, if there are more.
    async fn fill(&mut self) -> Result<(), S3Failure> {
        let link = self.link.clone();
        let mut attempts = S3Attempts::new(&link);
        while self.rest.is_empty() && self.end.is_none_or(|end| self.at < end) {
            let failure = match self.more(&link).await {
                Ok(()) => continue,
                Err(failure) => failure,
            };
            self.stream = None;
            attempts.again(failure).await?;
        }
        Ok(())
    }

    async fn more(&mut self, link: &S3Link) -> Result<(), S3Failure> {
        if self.stream.is_none() {
            self.connect(link).await?;
        }
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let more = tokio::time::timeout(link.limits.silence, stream.next()).await;
        match more.map_err(|_| S3Failure::SILENT)? {
            Some(Ok(bytes)) => self.rest = bytes,
            Some(Err(error)) => return Err(S3Failure::of(&error)),
            // It has ended too early.
            None if self.end.is_some_and(|end| self.at < end) => return Err(S3Failure::BROKEN),
            None => {}
        }
        Ok(())
    }

    async fn connect(&mut self, link: &S3Link) -> Result<(), S3Failure> {
        let range = match self.end {
            Some(end) => Some(GetRange::Bounded(self.at..end)),
            None => (self.at > 0).then_some(GetRange::Offset(self.at)),
        };
        let options = GetOptions { range, ..GetOptions::default() };
        let got = match link.once(0, link.s3.get_opts(&self.path, options)).await {
            Err(failure) if failure.cause == S3Cause::Range && self.end.is_none() => {
                // There is nothing more than what was asked to be left out.
                self.end = Some(self.at);
                return Ok(());
            }
            got => got?,
        };
        let of = (got.meta.size, got.meta.e_tag.clone());
        // Bytes of another object that has the key by now, or of another range, must not be mixed
        // in.
        if got.range.start != self.at || self.of.as_ref().is_some_and(|known| *known != of) {
            return Err(S3Failure::NO_ANSWER);
        }
        self.end = Some(self.end.map_or(of.0, |end| end.min(of.0)));
        self.of = Some(of);
        self.stream = Some(got.into_stream());
        Ok(())
    }
}

/// What a reader's error is that is an error of the store within.
fn as_store_error(error: io::Error, reader: &S3Reader) -> StoreError {
    let broken = || reader.link.failed(S3Failure::BROKEN, &reader.path, DOING);
    error.downcast::<StoreError>().unwrap_or_else(|_| broken())
}

impl Read for S3Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() && !into.is_empty() {
            let link = self.link.clone();
            let filled = link.wait(self.fill());
            filled.map_err(|failure| io::Error::other(link.failed(failure, &self.path, DOING)))?;
        }
        let left = self.end.map_or(usize::MAX, |end| (end - self.at) as usize);
        let bytes = self.rest.len().min(into.len()).min(left);
        self.rest.copy_to_slice(&mut into[..bytes]);
        self.at += bytes as u64;
        if self.end == Some(self.at) {
            // What a server says beyond is not of it.
            self.rest.clear();
        }
        Ok(bytes)
    }
}
