//! A server, asked by threads that wait: what fails is tried again, for a while.
use super::access::{self, Refused};
use super::failure::{S3Cause, S3Failure};
use super::http::S3Connector;
use super::{S3Access, S3Limits, S3Place};
use crate::store::StoreError;
use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ClientOptions, RetryConfig};
use sheaf_core::{Errno, lock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};

/// A part of S3 is not shorter, but for the last.
const PART_BYTES_MIN: usize = 5 << 20;
/// Bytes on their way.
struct Sending {
    buffer: Vec<u8>,
    link: Arc<S3Link>,
}

impl AsRef<[u8]> for Sending {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.buffer.clear();
        if self.buffer.capacity() > 0 {
            lock(&self.link.spare).push(std::mem::take(&mut self.buffer));
        }
    }
}

/// What parts under way are counted in.
pub(super) const ROOM_UNIT: usize = 1 << 10;

/// A client of one bucket, and who drives its connections.
pub(super) struct S3Link {
    pub s3: AmazonS3,
    pub place: S3Place,
    pub limits: S3Limits,
    /// Of packs and of large files.
    pub storage_class: Option<String>,
    /// For parts that are under way.
    pub room: Arc<Semaphore>,
    /// Buffers of parts that were sent, for later ones: freed, the allocator would keep them for single threads.
    spare: Mutex<Vec<Vec<u8>>>,
    /// How much that is, and how long a part is, where there is a limit of memory.
    memory: Mutex<(usize, usize)>,
    pub conditional: Arc<AtomicBool>,
    pub runtime: Handle,
    /// When the server may be asked again.
    not_before: Mutex<Option<Instant>>,
    /// Dropped, the connections end.
    _end: oneshot::Sender<()>,
}

impl S3Link {
    /// A client. Nothing is asked yet.
    pub fn new(place: &S3Place, access: &S3Access, limits: S3Limits) -> Result<Self, StoreError> {
        let failed = |doing| StoreError { place: place.to_string(), doing, errno: Errno::INVAL };
        // Who comes second finds it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (runtime, end) = start().map_err(|error| StoreError {
            place: place.to_string(),
            doing: "there is no thread for its connections",
            errno: Errno::from_io(&error),
        })?;
        let conditional = Arc::new(AtomicBool::new(true));
        let is_plain = place.endpoint.as_deref().is_some_and(|url| url.starts_with("http://"));
        let refused = |Refused(doing)| failed(doing);
        let options = ClientOptions::new()
            .with_timeout_disabled()
            .with_read_timeout_disabled()
            .with_connect_timeout(limits.connect)
            .with_allow_http(is_plain);
        let options = access::with_authorities(options, access).map_err(refused)?;
        // Retries are made by `S3Attempts`, whose callers know whether a failed write may be done.
        let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&place.bucket)
            .with_region(&place.region)
            .with_virtual_hosted_style_request(access.is_virtual_hosted)
            .with_client_options(options)
            .with_retry(once)
            .with_disable_bulk_delete(true)
            .with_http_connector(S3Connector { conditional: conditional.clone() });
        builder = access::with_access(builder, access);
        if let Some(endpoint) = &place.endpoint {
            let url = reqwest::Url::parse(endpoint).ok();
            let is_server = |url: reqwest::Url| {
                matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none()
            };
            if !url.is_some_and(is_server) {
                return Err(failed("the URL of its server is none"));
            }
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        let s3 = builder.build().map_err(|_| failed("is no place of a server of S3"))?;
        let room = Arc::new(Semaphore::new(units(limits.room_bytes) as usize));
        let memory = Mutex::new((limits.room_bytes, limits.part_bytes));
        let (place, not_before) = (place.clone(), Mutex::default());
        let storage_class = access.storage_class.clone();
        let link = Self {
            s3,
            place,
            limits,
            storage_class,
            room,
            spare: Mutex::default(),
            memory,
            conditional,
            runtime,
            not_before,
            _end: end,
        };
        let checked = link.wait(access::check(&link.s3, &access.identity));
        checked.map_err(|Refused(doing)| StoreError {
            place: link.place.to_string(),
            doing,
            errno: Errno::NOKEY,
        })?;
        Ok(link)
    }

    /// Takes parts of so much memory, for one that is being filled and for those that are under way. How long a part
    /// is, and how much is under way.
    pub fn share_memory(&self, bytes: u64) -> (u64, u64) {
        let mut memory = lock(&self.memory);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let part = self.limits.part_bytes.min((bytes / 8).max(PART_BYTES_MIN));
        let room = self.limits.room_bytes.min((bytes / 3).max(part));
        let less = units(memory.0).saturating_sub(units(room));
        // Nothing is under way before it is known what there is to do.
        self.room.forget_permits(less as usize);
        *memory = (room, part);
        (part as u64, room as u64)
    }

    /// A buffer for a part.
    pub fn buffer(&self) -> Vec<u8> {
        lock(&self.spare).pop().unwrap_or_default()
    }

    /// What is to be sent, whose buffer comes back when it is.
    pub fn sending(self: &Arc<Self>, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Sending { buffer, link: self.clone() })
    }

    /// How much may be under way, and how long a part of this number is.
    pub fn memory(&self, number: usize) -> (usize, usize) {
        let (room, part) = *lock(&self.memory);
        (room, part * (1 + number / S3Limits::PARTS_OF_ONE_SIZE))
    }

    /// The key of something of the store's.
    pub fn path(&self, below: &str) -> Result<Path, StoreError> {
        Path::parse(self.place.key(below)).map_err(|_| StoreError {
            place: self.place.to_string(),
            doing: "its prefix is no part of a key",
            errno: Errno::INVAL,
        })
    }

    /// What is said of the place of an object.
    pub fn said(&self, path: &Path) -> String {
        format!("s3://{}/{path}", self.place.bucket)
    }

    /// An error of what is at a place.
    pub fn failed(&self, failure: S3Failure, path: &Path, doing: &'static str) -> StoreError {
        let place = match failure.cause {
            S3Cause::NoBucket => format!("s3://{}", self.place.bucket),
            _ => self.said(path),
        };
        failure.at(place, doing)
    }

    /// Waits for an answer.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Waits for what is tried until it is done, or tried often enough. Bytes are sent with it.
    pub async fn tried<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        bytes: usize,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, S3Failure> {
        let mut attempts = S3Attempts::new(self);
        loop {
            match self.once(bytes, attempt()).await {
                Err(failure) => attempts.again(failure).await?,
                done => return done,
            }
        }
    }

    /// Waits for what is tried once.
    pub async fn once<T>(
        &self,
        bytes: usize,
        attempt: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, S3Failure> {
        let sending = Duration::from_secs(bytes as u64 / self.limits.rate_min.max(1));
        match tokio::time::timeout(self.limits.silence + sending, attempt).await {
            Err(_) => Err(S3Failure::SILENT),
            Ok(done) => done.map_err(|error| S3Failure::of(&error)),
        }
    }

    /// A server that takes no condition for an upload is not asked for it again; whether it was.
    pub fn without_condition(&self) -> bool {
        self.conditional.swap(false, Ordering::Relaxed)
    }
}

/// Something that is tried several times.
pub(super) struct S3Attempts<'a> {
    link: &'a S3Link,
    made: u32,
}

impl<'a> S3Attempts<'a> {
    pub fn new(link: &'a S3Link) -> Self {
        Self { link, made: 0 }
    }

    /// Waits before it is tried again.
    ///
    /// # Errors
    /// The failure itself, if it is not.
    pub async fn again(&mut self, failure: S3Failure) -> Result<(), S3Failure> {
        let limits = &self.link.limits;
        self.made += 1;
        if self.made >= limits.attempts || !failure.may_pass() {
            return Err(failure);
        }
        if let Some(wait) = failure.wait {
            // All who ask this server wait.
            let until = Instant::now() + wait.min(limits.backoff_max);
            let mut not_before = lock(&self.link.not_before);
            *not_before = Some(not_before.map_or(until, |known| known.max(until)));
        }
        let backoff = limits.backoff.saturating_mul(1 << (self.made - 1).min(16));
        tokio::time::sleep(backoff.min(limits.backoff_max).mul_f64(between_half_and_one())).await;
        let not_before = *lock(&self.link.not_before);
        if let Some(until) = not_before {
            tokio::time::sleep_until(until.into()).await;
        }
        Ok(())
    }
}

/// Many who were refused at once do not come back at once.
fn between_half_and_one() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = now.map_or(0, |since| since.subsec_nanos());
    f64::from(nanos % 1000).mul_add(0.0005, 0.5)
}

/// How much of the room so many bytes take.
pub(super) fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(ROOM_UNIT)).unwrap_or(u32::MAX >> 4).max(1)
}

/// Starts a thread that drives connections until the other end of what it returns is dropped.
fn start() -> std::io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (handle, (end, ended)) = (runtime.handle().clone(), oneshot::channel());
    std::thread::Builder::new().name("s3".to_owned()).spawn(move || {
        // Nothing is ever sent.
        let _ = runtime.block_on(ended);
    })?;
    Ok((handle, end))
}
