//! Where a server of PostgreSQL is, as people write it.
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// How long one waits for a connection; `connect_timeout` in the URL says otherwise.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one waits for an answer; `statement_timeout` in the URL says otherwise.
pub(super) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// What another host is silent for until it is asked whether it is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);

/// A database of a PostgreSQL server that has catalogs:
/// `postgresql://USER@HOST:PORT/DATABASE?OPTION=VALUE`.
///
/// Options are those of `libpq`, as far as the client has them, and `statement_timeout` in seconds.
/// With `sslmode=disable` nothing is encrypted, with `prefer` what the server can encrypt, with
/// `require` or `verify-full` all; a certificate is always verified, by those of `sslrootcert` or of
/// the system. A password is never shown.
#[derive(Clone)]
pub struct PostgresUrl {
    pub(super) config: Config,
    pub(super) connect_timeout: Duration,
    pub(super) statement_timeout: Duration,
    pub(super) root_certificates: Option<PathBuf>,
}

/// Why a text is no URL of a database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PostgresUrlError(String);

impl PostgresUrl {
    /// Whether a text is meant to be one.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("postgresql://") || text.starts_with("postgres://")
    }

    /// Reads one.
    ///
    /// # Errors
    /// When it is none. What it says may have a password, and is not repeated.
    pub fn parse(text: &str) -> Result<Self, PostgresUrlError> {
        let (text, mut own) = OwnOptions::split(text)?;
        let config: Config = text.parse().map_err(|error: tokio_postgres::Error| {
            // A source says which option it is, or that something is missing, in words of its own.
            let is_plain = |why: &String| !why.contains(['\'', '"', '`']) || why.len() < 60;
            let why = std::error::Error::source(&error).map(ToString::to_string);
            let why = why.filter(is_plain).filter(|_| !text.contains('@'));
            let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
            PostgresUrlError(format!(
                "the catalog is no URL as postgresql://USER@HOST:PORT/DATABASE{why}: special \
                 characters of a password are written as %40 and the like"
            ))
        })?;
        if let Some(given) = config.get_connect_timeout() {
            own.connect_timeout = *given;
        }
        Ok(own.with(config))
    }

    /// Its host, or the directory of its socket.
    #[must_use]
    pub fn host(&self) -> String {
        match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            Some(Host::Unix(directory)) => directory.display().to_string(),
            None => "localhost".to_owned(),
        }
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.config.get_ports().first().copied().unwrap_or(5432)
    }

    /// Who one is there, if it is said.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.config.get_user()
    }

    /// The database, which is that of the user's name if it is not said.
    #[must_use]
    pub fn database(&self) -> Option<&str> {
        self.config.get_dbname().or(self.user())
    }

    /// Whether it has a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Gives it a password.
    pub fn set_password(&mut self, password: &[u8]) {
        self.config.password(password);
    }

    /// Says who one is, where that is not said.
    pub fn set_user(&mut self, user: &str) {
        self.config.user(user);
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgresql://")?;
        if let Some(user) = self.user() {
            write!(f, "{user}@")?;
        }
        match self.config.get_hosts().first() {
            Some(Host::Unix(directory)) => {
                write!(f, "/{}?host={}", self.database().unwrap_or_default(), directory.display())?;
                write!(f, "&port={}", self.port())
            }
            _ => {
                let database = self.database().unwrap_or_default();
                write!(f, "{}:{}/{database}", self.host(), self.port())
            }
        }
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({self})")
    }
}

/// Options of a URL that are not the client's.
struct OwnOptions {
    connect_timeout: Duration,
    statement_timeout: Duration,
    root_certificates: Option<PathBuf>,
}

impl OwnOptions {
    /// A URL without them, and what they say.
    fn split(text: &str) -> Result<(String, Self), PostgresUrlError> {
        let mut own = Self {
            connect_timeout: CONNECT_TIMEOUT,
            statement_timeout: STATEMENT_TIMEOUT,
            root_certificates: None,
        };
        // A password may have a question mark.
        let has_user = text.split_once("://").is_some_and(|(_, rest)| !rest.starts_with('/'));
        let behind_user = text.find('@').filter(|_| has_user).unwrap_or(0);
        let Some(at) = text[behind_user..].find('?') else { return Ok((text.to_owned(), own)) };
        let (before, options) = (&text[..behind_user + at], &text[behind_user + at + 1..]);
        let mut others = Vec::new();
        for option in options.split('&') {
            let Some((name, value)) = option.split_once('=') else {
                let why = "the catalog's URL is wrong: behind its ? are options, NAME=VALUE";
                return Err(PostgresUrlError(why.to_owned()));
            };
            match name {
                "statement_timeout" => {
                    let seconds = value.parse().ok().filter(|&seconds| seconds > 0);
                    let Some(seconds) = seconds else {
                        let why =
                            "the catalog's statement_timeout is a number of seconds, 1 or more";
                        return Err(PostgresUrlError(why.to_owned()));
                    };
                    own.statement_timeout = Duration::from_secs(seconds);
                }
                "sslrootcert" => {
                    own.root_certificates = Some(Path::new(&decoded(value)).to_owned())
                }
                // Certificates are verified in any case.
                "sslmode" if matches!(value, "verify-full" | "verify-ca") => {
                    others.push("sslmode=require");
                }
                "sslmode" if value == "allow" => others.push("sslmode=prefer"),
                _ => others.push(option),
            }
        }
        if others.is_empty() {
            return Ok((before.to_owned(), own));
        }
        Ok((format!("{before}?{}", others.join("&")), own))
    }

    fn with(self, mut config: Config) -> PostgresUrl {
        config.connect_timeout(self.connect_timeout).keepalives_idle(KEEPALIVE_IDLE);
        if config.get_application_name().is_none() {
            config.application_name("sheaf");
        }
        // What asks for certificates is not content with less.
        if self.root_certificates.is_some() && config.get_ssl_mode() == SslMode::Prefer {
            config.ssl_mode(SslMode::Require);
        }
        // There is no encryption at a socket of this machine, and it need not be asked for.
        if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) {
            config.ssl_mode(SslMode::Disable);
        }
        let Self { connect_timeout, statement_timeout, root_certificates } = self;
        PostgresUrl { config, connect_timeout, statement_timeout, root_certificates }
    }
}

/// A value of a URL with `%2F` and the like as what they stand for.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = rest.get(1..3).and_then(|digits| str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code.filter(|_| byte == b'%') {
            Some(code) => {
                bytes.push(code);
                rest = &rest[3..];
            }
            None => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_shown_without_its_password() {
        for (text, shown) in [
            ("postgresql://ada:s3cret@db:5433/x", "postgresql://ada@db:5433/x"),
            ("postgresql://ada:s3cret?a=b@db/x?statement_timeout=3", "postgresql://ada@db:5432/x"),
            ("postgres://ada@db?password=s3cret", "postgresql://ada@db:5432/ada"),
            (
                "postgresql:///x?host=/run/pg&user=ada&password=s3cret",
                "postgresql://ada@/x?host=/run/pg&port=5432",
            ),
        ] {
            let url = PostgresUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), shown);
            assert!(url.has_password());
            assert!(!format!("{url:?} {:?}", url.config).contains("s3cret"));
        }
    }

    #[test]
    fn postgres_url_parse_error_does_not_reveal_the_password() {
        for text in [
            "postgresql://ada:s3cret@db:port/x",
            "postgresql://ada:s3c?ret=x@db/x?s3cret=1",
            "postgresql://ada:s3cret@db/x?sslmode=s3cret",
            "postgresql://ada:s3cret@db/x?statement_timeout=s3cret",
            "postgresql://ada:%zzs3cret@db/x?s3cret",
        ] {
            let error = PostgresUrl::parse(text).expect_err(text).to_string();
            assert!(error.starts_with("the catalog") && !error.contains("s3c"), "{error}");
            assert!(!error.contains("cret"), "{error}");
        }
    }

    #[test]
    fn deadlines_and_certificates_are_said_in_the_url() {
        let url = PostgresUrl::parse("postgresql://ada@db/x").unwrap();
        assert_eq!(url.connect_timeout, CONNECT_TIMEOUT);
        assert_eq!(url.statement_timeout, STATEMENT_TIMEOUT);
        assert_eq!(url.config.get_ssl_mode(), SslMode::Prefer);
        let text = "postgresql://ada@db/x?connect_timeout=3&statement_timeout=7&sslrootcert=/a%2Fb";
        let url = PostgresUrl::parse(text).unwrap();
        assert_eq!(url.connect_timeout, Duration::from_secs(3));
        assert_eq!(url.statement_timeout, Duration::from_secs(7));
        assert_eq!(url.root_certificates.as_deref(), Some(Path::new("/a/b")));
        assert_eq!(url.config.get_ssl_mode(), SslMode::Require);
        let url = PostgresUrl::parse("postgresql://ada@db/x?sslmode=verify-full").unwrap();
        assert_eq!(url.config.get_ssl_mode(), SslMode::Require);
    }
}
