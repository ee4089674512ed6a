//! What went wrong at a server, and what that means.
use crate::store::StoreError;
use object_store::client::{HttpError, HttpErrorKind};
use sheaf_core::Errno;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// What a server said that refused something.
#[derive(Debug, thiserror::Error)]
#[error("the server refuses it")]
pub(super) struct S3Refusal {
    pub status: u16,
    /// Its code of S3, if it says one.
    pub code: String,
    /// How long it asks to wait.
    pub wait: Option<Duration>,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum S3Cause {
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
    BucketName,
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
pub(super) struct S3Failure {
    pub cause: S3Cause,
    /// How long the server asks to wait.
    pub wait: Option<Duration>,
    /// What the server said, if it refused it.
    said: Option<S3Said>,
}

/// The status of a refusal and its code, as far as it is one.
#[derive(Clone, Copy, Debug)]
struct S3Said {
    status: u16,
    code: [u8; CODE_BYTES_MAX],
    code_bytes: usize,
}

/// No code of S3 is longer.
const CODE_BYTES_MAX: usize = 48;

impl S3Said {
    fn of(refusal: &S3Refusal) -> Self {
        // It is the server's text, and goes to a terminal.
        let is_code =
            |code: &&str| code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
        let text = Some(refusal.code.as_str()).filter(is_code).unwrap_or_default();
        let mut code = [0; CODE_BYTES_MAX];
        let code_bytes = text.len().min(CODE_BYTES_MAX);
        code[..code_bytes].copy_from_slice(&text.as_bytes()[..code_bytes]);
        Self { status: refusal.status, code, code_bytes }
    }
}

impl fmt::Display for S3Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}", self.status)?;
        match str::from_utf8(&self.code[..self.code_bytes]) {
            Ok(code) if !code.is_empty() => write!(f, " {code}"),
            _ => Ok(()),
        }
    }
}

impl S3Failure {
    pub const SILENT: Self = Self::new(S3Cause::Silent);
    pub const BROKEN: Self = Self::new(S3Cause::Broken);
    pub const NO_ANSWER: Self = Self::new(S3Cause::NoAnswer);

    pub const fn new(cause: S3Cause) -> Self {
        Self { cause, wait: None, said: None }
    }

    /// What an error of the client's means.
    pub fn of(error: &object_store::Error) -> Self {
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        let mut failure = Self::NO_ANSWER;
        while let Some(error) = next {
            if let Some(refusal) = error.downcast_ref::<S3Refusal>() {
                let said = Some(S3Said::of(refusal));
                return Self { cause: refusal.cause(), wait: refusal.wait, said };
            }
            if let Some(http) = error.downcast_ref::<HttpError>() {
                failure.cause = match http.kind() {
                    HttpErrorKind::Connect => S3Cause::Unreachable,
                    HttpErrorKind::Timeout => S3Cause::Silent,
                    _ => S3Cause::Broken,
                };
            }
            next = error.source();
        }
        failure
    }

    /// Whether it may be done all the same: nobody has said that it was not.
    pub fn may_be_done(&self) -> bool {
        matches!(self.cause, S3Cause::Fails | S3Cause::Silent | S3Cause::Broken | S3Cause::NoAnswer)
    }

    /// Whether it is to be tried again.
    pub fn may_pass(&self) -> bool {
        let passing = [S3Cause::Conflict, S3Cause::SlowDown, S3Cause::Unreachable];
        self.may_be_done() || passing.contains(&self.cause)
    }

    /// As an error of a store: `doing` is what was to be done to what is at `place`.
    pub fn at(self, place: String, doing: &'static str) -> StoreError {
        let (doing, errno) = match self.cause {
            S3Cause::Missing => (doing, Errno::NOENT),
            S3Cause::Taken => (doing, Errno::EXIST),
            S3Cause::Range => (doing, Errno::NODATA),
            S3Cause::Denied => (doing, Errno::ACCES),
            S3Cause::Full => (doing, Errno::NOSPC),
            S3Cause::TooLong => (doing, Errno::FBIG),
            S3Cause::NoUpload => ("its upload is gone from the server", Errno::IO),
            S3Cause::Unknown => ("the server does not know this request", Errno::OPNOTSUPP),
            S3Cause::Conflict => ("others write it all the time", Errno::AGAIN),
            S3Cause::NoBucket => ("there is no such bucket", Errno::NXIO),
            S3Cause::BucketName => ("no bucket has such a name", Errno::INVAL),
            S3Cause::Key => ("the server does not know the access key", Errno::ACCES),
            S3Cause::Secret => ("the secret is not the access key's", Errno::ACCES),
            S3Cause::Token => ("the session token is not valid, or no longer", Errno::ACCES),
            S3Cause::Clock => ("the clocks here and at the server differ too much", Errno::ACCES),
            S3Cause::Region => ("the bucket is in another region", Errno::INVAL),
            S3Cause::SlowDown => ("the server asks again and again to slow down", Errno::AGAIN),
            S3Cause::Fails => ("the server fails again and again", Errno::IO),
            S3Cause::Refused => ("the server refuses it", Errno::IO),
            S3Cause::Unreachable => ("the server cannot be reached", Errno::CONNREFUSED),
            S3Cause::Silent => ("the server says nothing", Errno::TIMEDOUT),
            S3Cause::Broken => ("the connection breaks off again and again", Errno::IO),
            S3Cause::NoAnswer => ("what the server says is no answer", Errno::IO),
        };
        // Who looks for the reason at the server needs its own word for it.
        let is_own = matches!(
            self.cause,
            S3Cause::Refused | S3Cause::Denied | S3Cause::Fails | S3Cause::Unknown
        );
        let place = match self.said.filter(|_| is_own) {
            Some(said) => format!("{place} ({said})"),
            None => place,
        };
        StoreError { place, doing, errno }
    }
}

impl S3Refusal {
    fn cause(&self) -> S3Cause {
        match (&self.code[..], self.status) {
            ("NoSuchBucket", _) => S3Cause::NoBucket,
            ("InvalidBucketName", _) => S3Cause::BucketName,
            ("NoSuchUpload", _) => S3Cause::NoUpload,
            ("InvalidAccessKeyId" | "XAdminUserNotFound", _) => S3Cause::Key,
            ("SignatureDoesNotMatch", _) => S3Cause::Secret,
            ("ExpiredToken" | "InvalidToken" | "TokenRefreshRequired", _) => S3Cause::Token,
            ("RequestTimeTooSkewed" | "RequestExpired", _) => S3Cause::Clock,
            ("AuthorizationHeaderMalformed" | "PermanentRedirect", _) => S3Cause::Region,
            ("QuotaExceeded" | "XMinioStorageFull" | "InsufficientStorage", _) => S3Cause::Full,
            ("EntityTooLarge", _) => S3Cause::TooLong,
            ("SlowDown" | "RequestLimitExceeded" | "Throttling", _) => S3Cause::SlowDown,
            ("InternalError" | "RequestTimeout", _) => S3Cause::Fails,
            (_, 301 | 307 | 308) => S3Cause::Region,
            (_, 401 | 403) => S3Cause::Denied,
            // What says nothing more is an answer without a body. Of others it is something else that
            // is not there.
            ("" | "NoSuchKey" | "NotFound", 404) => S3Cause::Missing,
            (_, 409) => S3Cause::Conflict,
            (_, 412) => S3Cause::Taken,
            (_, 416) => S3Cause::Range,
            (_, 501) => S3Cause::Unknown,
            (_, 507) => S3Cause::Full,
            (_, 429 | 503) => S3Cause::SlowDown,
            (_, 408 | 500..) => S3Cause::Fails,
            _ => S3Cause::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: u16, code: &str) -> String {
        let refusal = S3Refusal { status, code: code.to_owned(), wait: None };
        let (cause, said) = (refusal.cause(), Some(S3Said::of(&refusal)));
        let failure = S3Failure { cause, wait: None, said };
        failure.at("s3://bucket/a".to_owned(), "cannot be read").to_string()
    }

    #[test]
    fn refusal_is_told_in_the_words_of_the_server() {
        let refused = "the server refuses it: Input/output error (EIO)";
        let denied = "cannot be read: Permission denied (EACCES)";
        assert_eq!(
            told(400, "BadDigest"),
            format!("s3://bucket/a (HTTP 400 BadDigest): {refused}")
        );
        assert_eq!(told(403, ""), format!("s3://bucket/a (HTTP 403): {denied}"));
        for hostile in ["\u{1b}]0;x\u{7}", "Bad\nDigest", "café"] {
            assert_eq!(told(400, hostile), format!("s3://bucket/a (HTTP 400): {refused}"));
        }
        let long = told(400, &"A".repeat(1000));
        assert!(long.len() < 130, "{long}");
        // What has a sentence of its own needs no code.
        let missing = "s3://bucket/a: cannot be read: No such file or directory (ENOENT)";
        assert_eq!(told(404, "NoSuchKey"), missing);
        let name = "s3://bucket/a: no bucket has such a name: Invalid argument (EINVAL)";
        assert_eq!(told(400, "InvalidBucketName"), name);
    }
}
