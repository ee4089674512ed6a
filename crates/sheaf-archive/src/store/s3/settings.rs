//! Where a store of S3 is, who one is there, and how long and how often it is asked.
use std::fmt;
use std::time::Duration;

/// The region of a server that does not care.
const REGION: &str = "us-east-1";

/// A bucket, and the keys in it that begin with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Place {
    /// The bucket's name.
    pub bucket: String,
    /// What all keys begin with, without a slash at its ends; may be empty.
    pub prefix: String,
    /// The server's URL; Amazon's of the region without one.
    pub endpoint: Option<String>,
    /// The region that the bucket is in.
    pub region: String,
}

impl S3Place {
    /// Reads `s3://BUCKET/PREFIX`; nothing if it is no such text. Server and region are Amazon's first.
    #[must_use]
    pub fn parse(url: &str) -> Option<Self> {
        let (bucket, prefix) = match url.strip_prefix("s3://")?.split_once('/') {
            Some((bucket, prefix)) => (bucket, prefix.trim_end_matches('/')),
            None => (&url["s3://".len()..], ""),
        };
        let is_bucket_byte = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_bucket = !bucket.is_empty() && bucket.bytes().all(is_bucket_byte);
        let is_part = |part: &str| {
            !matches!(part, "" | "." | "..") && part.chars().all(|letter| !letter.is_control())
        };
        let is_prefix = prefix.is_empty() || prefix.split('/').all(is_part);
        (is_bucket && is_prefix).then(|| Self {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            endpoint: None,
            region: REGION.to_owned(),
        })
    }

    /// The same in a region of this name; nothing if no region is called so. It becomes a part of a host's name.
    #[must_use]
    pub fn in_region(self, region: &str) -> Option<Self> {
        let is_region_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_region = (1..=63).contains(&region.len()) && region.bytes().all(is_region_byte);
        is_region.then(|| Self { region: region.to_owned(), ..self })
    }

    /// The key of something of the store's.
    pub(super) fn key(&self, below: &str) -> String {
        if self.prefix.is_empty() { below.to_owned() } else { format!("{}/{below}", self.prefix) }
    }
}

impl fmt::Display for S3Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

/// Who one is. It is never printed: what is said of it is that it is there.
#[derive(Clone)]
pub struct S3Credentials {
    /// The access key.
    pub access_key_id: String,
    /// Its secret.
    pub secret_access_key: String,
    /// What makes them valid for a while.
    pub session_token: Option<String>,
}

impl fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("S3Credentials(..)")
    }
}

/// How one gets the credentials. Those that hold for a while are fetched anew before they end.
#[derive(Clone)]
pub enum S3Identity {
    /// They are known.
    Keys(S3Credentials),
    /// A command of the user's prints them as JSON (`credential_process` of `~/.aws/config`).
    Process(String),
    /// The token service of AWS gives them for a token in a file.
    WebIdentity {
        /// The file of the token.
        token_file: String,
        /// The role that is taken.
        role_arn: String,
        /// What the session of the role is called.
        session_name: Option<String>,
        /// The URL of the token service.
        endpoint: Option<String>,
    },
    /// The container's host gives them, at a path.
    Container(String),
    /// A URL gives them for a token in a file.
    ContainerUrl {
        /// The URL.
        url: String,
        /// The file of the token.
        token_file: String,
    },
    /// The machine is one of EC2 and has a role, at this service or the usual one.
    Instance(Option<String>),
}

impl fmt::Debug for S3Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A command may have a secret in it.
        f.write_str(match self {
            Self::Keys(_) => "Keys(..)",
            Self::Process(_) => "Process(..)",
            Self::WebIdentity { .. } => "WebIdentity(..)",
            Self::Container(_) | Self::ContainerUrl { .. } => "Container(..)",
            Self::Instance(_) => "Instance(..)",
        })
    }
}

/// How the server encrypts objects that are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum S3Encryption {
    /// With keys of the bucket's (SSE-S3).
    Bucket,
    /// With a key of the key service (SSE-KMS), the default one or this.
    KeyService(Option<String>),
}

/// Who one is to a server, how it is known, and what it is to do with objects.
#[derive(Clone, Debug)]
pub struct S3Access {
    /// Who one is.
    pub identity: S3Identity,
    /// Certificates of authorities that are trusted besides those of the system, as PEM.
    pub authorities: Option<Vec<u8>>,
    /// The bucket is part of the server's name, not of the path.
    pub is_virtual_hosted: bool,
    /// The storage class of packs and of large files. Logs and indexes have the bucket's.
    pub storage_class: Option<String>,
    /// How objects are encrypted; as the bucket says without.
    pub encryption: Option<S3Encryption>,
}

impl From<S3Identity> for S3Access {
    fn from(identity: S3Identity) -> Self {
        Self {
            identity,
            authorities: None,
            is_virtual_hosted: false,
            storage_class: None,
            encryption: None,
        }
    }
}

impl From<S3Credentials> for S3Access {
    fn from(credentials: S3Credentials) -> Self {
        S3Identity::Keys(credentials).into()
    }
}

/// How long, how often and how much at once.
#[derive(Clone, Copy, Debug)]
pub struct S3Limits {
    /// How often something is tried.
    pub attempts: u32,
    /// How long it is waited before the second time; before each later one twice as long.
    pub backoff: Duration,
    /// How long it is waited at most, also where the server says how long.
    pub backoff_max: Duration,
    /// How long a server may say nothing.
    pub silence: Duration,
    /// How long a connection may take to come about.
    pub connect: Duration,
    /// Bytes a second that a server takes at least: what is sent may take this longer.
    pub rate_min: u64,
    /// Bytes of an object that are sent at once. A longer object is sent in parts, of which the first
    /// [`S3Limits::PARTS_OF_ONE_SIZE`] are as long, the next twice, and so on.
    pub part_bytes: usize,
    /// Bytes of parts that are under way at once, of all objects. One part may always be.
    pub room_bytes: usize,
}

impl S3Limits {
    /// The parts of an object that S3 takes.
    pub const PARTS_MAX: usize = 10_000;
    /// After so many parts they are longer.
    pub const PARTS_OF_ONE_SIZE: usize = 1000;
}

impl Default for S3Limits {
    fn default() -> Self {
        Self {
            attempts: 6,
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(20),
            silence: Duration::from_secs(60),
            connect: Duration::from_secs(10),
            rate_min: 64 << 10,
            part_bytes: 8 << 20,
            room_bytes: 64 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_a_bucket_and_a_prefix() {
        let read = |url: &str| S3Place::parse(url).map(|place| (place.bucket, place.prefix));
        let place = |bucket: &str, prefix: &str| Some((bucket.to_owned(), prefix.to_owned()));
        assert_eq!(read("s3://b"), place("b", ""));
        assert_eq!(read("s3://b/"), place("b", ""));
        assert_eq!(read("s3://my.b-1/a/b c/"), place("my.b-1", "a/b c"));
        for url in ["s3:/b", "s3://", "s3:///a", "s3://b//a", "s3://b/a/../c", "s3://b@h/a", "b"] {
            assert_eq!(read(url), None, "{url}");
        }
        assert_eq!(S3Place::parse("s3://b/a/").unwrap().to_string(), "s3://b/a");
        assert_eq!(S3Place::parse("s3://b/a").unwrap().key("mark"), "a/mark");
        assert_eq!(S3Place::parse("s3://b").unwrap().key("mark"), "mark");
    }

    #[test]
    fn secret_is_not_printed() {
        let credentials = S3Credentials {
            access_key_id: "known".to_owned(),
            secret_access_key: "hidden".to_owned(),
            session_token: Some("hidden".to_owned()),
        };
        assert_eq!(format!("{credentials:?}"), "S3Credentials(..)");
    }
}
