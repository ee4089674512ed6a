//! What went wrong at a server, and what that means.
use crate::StoreError;
use object_store::client::{HttpError, HttpErrorKind};
use sheaf_core::Errno;
use std::error::Error;
use std::time::Duration;

/// What a server said that refused something.
#[derive(Debug, thiserror::Error)]
#[error("the server refuses it")]
pub(super) struct Refusal {
    pub status: u16,
    /// Its code of S3, if it says one.
    pub code: String,
    /// How long it asks to wait.
    pub wait: Option<Duration>,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// There is no such object.
    Missing,
    /// Its key is taken.
    Taken,
    /// Another is writing it just now.
    Conflict,
    /// There are no such bytes of it.
    Range,
    /// There is no such upload (any more).
    NoUpload,
    /// The server does not know what was asked of it.
    Unknown,
    NoBucket,
    Key,
    Secret,
    Token,
    Clock,
    Region,
    Denied,
    Full,
    TooLong,
    /// The server is not to be asked so often.
    SlowDown,
    /// The server fails.
    Fails,
    /// The server refuses it, for a reason of its own.
    Refused,
    Unreachable,
    Silent,
    /// The connection ended in the middle.
    Broken,
    /// What the server says is no answer.
    NoAnswer,
}

/// Why something was not done at a server, once or at last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub cause: Cause,
    /// How long the server asks to wait.
    pub wait: Option<Duration>,
}

impl Failure {
    pub const SILENT: Self = Self { cause: Cause::Silent, wait: None };
    pub const BROKEN: Self = Self { cause: Cause::Broken, wait: None };
    pub const NO_ANSWER: Self = Self { cause: Cause::NoAnswer, wait: None };

    /// What an error of the client's means.
    pub fn of(error: &object_store::Error) -> Self {
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        let mut failure = Self::NO_ANSWER;
        while let Some(error) = next {
            if let Some(refusal) = error.downcast_ref::<Refusal>() {
                return Self { cause: refusal.cause(), wait: refusal.wait };
            }
            if let Some(http) = error.downcast_ref::<HttpError>() {
                failure.cause = match http.kind() {
                    HttpErrorKind::Connect => Cause::Unreachable,
                    HttpErrorKind::Timeout => Cause::Silent,
                    _ => Cause::Broken,
                };
            }
            next = error.source();
        }
        failure
    }

    /// Whether it may be done all the same: nobody has said that it was not.
    pub fn may_be_done(&self) -> bool {
        matches!(self.cause, Cause::Fails | Cause::Silent | Cause::Broken | Cause::NoAnswer)
    }

    /// Whether it is to be tried again.
    pub fn may_pass(&self) -> bool {
        let passing = [Cause::Conflict, Cause::SlowDown, Cause::Unreachable];
        self.may_be_done() || passing.contains(&self.cause)
    }

    /// As an error of a store: `doing` is what was to be done to what is at `place`.
    pub fn at(self, place: String, doing: &'static str) -> StoreError {
        let (doing, errno) = match self.cause {
            Cause::Missing => (doing, Errno::NOENT),
            Cause::Taken => (doing, Errno::EXIST),
            Cause::Range => (doing, Errno::NODATA),
            Cause::Denied => (doing, Errno::ACCES),
            Cause::Full => (doing, Errno::NOSPC),
            Cause::TooLong => (doing, Errno::FBIG),
            Cause::NoUpload => ("its upload is gone from the server", Errno::IO),
            Cause::Unknown => ("the server does not know this request", Errno::OPNOTSUPP),
            Cause::Conflict => ("others write it all the time", Errno::AGAIN),
            Cause::NoBucket => ("there is no such bucket", Errno::NXIO),
            Cause::Key => ("the server does not know the access key", Errno::ACCES),
            Cause::Secret => ("the secret is not the access key's", Errno::ACCES),
            Cause::Token => ("the session token is not valid, or no longer", Errno::ACCES),
            Cause::Clock => ("the clocks here and at the server differ too much", Errno::ACCES),
            Cause::Region => ("the bucket is in another region", Errno::INVAL),
            Cause::SlowDown => ("the server asks again and again to slow down", Errno::AGAIN),
            Cause::Fails => ("the server fails again and again", Errno::IO),
            Cause::Refused => ("the server refuses it", Errno::IO),
            Cause::Unreachable => ("the server cannot be reached", Errno::CONNREFUSED),
            Cause::Silent => ("the server says nothing", Errno::TIMEDOUT),
            Cause::Broken => ("the connection breaks off again and again", Errno::IO),
            Cause::NoAnswer => ("what the server says is no answer", Errno::IO),
        };
        StoreError { place, doing, errno }
    }
}

impl Refusal {
    fn cause(&self) -> Cause {
        match (&self.code[..], self.status) {
            ("NoSuchBucket", _) => Cause::NoBucket,
            ("NoSuchUpload", _) => Cause::NoUpload,
            ("InvalidAccessKeyId" | "XAdminUserNotFound", _) => Cause::Key,
            ("SignatureDoesNotMatch", _) => Cause::Secret,
            ("ExpiredToken" | "InvalidToken" | "TokenRefreshRequired", _) => Cause::Token,
            ("RequestTimeTooSkewed" | "RequestExpired", _) => Cause::Clock,
            ("AuthorizationHeaderMalformed" | "PermanentRedirect", _) => Cause::Region,
            ("QuotaExceeded" | "XMinioStorageFull" | "InsufficientStorage", _) => Cause::Full,
            ("EntityTooLarge", _) => Cause::TooLong,
            ("SlowDown" | "RequestLimitExceeded" | "Throttling", _) => Cause::SlowDown,
            ("InternalError" | "RequestTimeout", _) => Cause::Fails,
            (_, 301 | 307 | 308) => Cause::Region,
            (_, 401 | 403) => Cause::Denied,
            // What says nothing more is an answer without a body. Of others it is something else that
            // is not there.
            ("" | "NoSuchKey" | "NotFound", 404) => Cause::Missing,
            (_, 409) => Cause::Conflict,
            (_, 412) => Cause::Taken,
            (_, 416) => Cause::Range,
            (_, 501) => Cause::Unknown,
            (_, 507) => Cause::Full,
            (_, 429 | 503) => Cause::SlowDown,
            (_, 408 | 500..) => Cause::Fails,
            _ => Cause::Refused,
        }
    }
}
