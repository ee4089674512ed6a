//! What happens meanwhile: on standard error as far as `-v` asks for it, in the file of `--log`, in
//! the log of a session that stays, and in the system's journal where a server runs as its unit.
use crate::exit::{Stop, io_text};
use crate::options::GlobalArgs;
use crate::output::{printable, tell};
use anyhow::Result;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use sheaf_core::lock;
use sheaf_core::observer::{self, Begun, Ending, Layer as On, Observer};
use sheaf_session::log::{GOES_ON, LogPlace, open_own, rename_own};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Instant;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// A log that a session keeps is begun anew when it has become so long; the one before is kept
/// beside it.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// The most that is kept of what a session writes down while its log has no place.
const WAITING_BYTES_MAX: usize = 256 << 10;

/// What is written down of a session that stays; `-vv` asks for more.
const KEPT: LevelFilter = LevelFilter::INFO;

/// How much `-v` asks for.
fn level(verbose: u8) -> LevelFilter {
    match verbose {
        0 => LevelFilter::OFF,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Begins to say what happens in this process. `kept`: the log of the session that this process is.
///
/// # Errors
/// When a file cannot be written to.
pub fn begin(global: &GlobalArgs, kept: Option<LogPlace>) -> Result<()> {
    begin_logs(global, kept)?;
    record_own();
    Ok(())
}

/// Whoever traces this process has its own operations, too. The observer of the logs stays.
fn record_own() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Some(directory) = std::env::var_os(sheaf_log::SEGMENTS_VARIABLE)
            && let Err(error) = sheaf_log::record_own(directory.as_ref())
        {
            let text = format!("what it does itself is not recorded: {error}");
            tell(format_args!("sheaf: {}", printable(&text)));
        }
    });
}

fn begin_logs(global: &GlobalArgs, kept: Option<LogPlace>) -> Result<()> {
    let (verbose, file) = (global.verbose, global.log.as_deref());
    if verbose == 0 && file.is_none() && kept.is_none() {
        return Ok(());
    }
    let told = layer(Head::Terminal(Instant::now()), crate::output::stderr, level(verbose));
    let open = |path: &Path| Log::open(path).map_err(|error| refused(path, &error));
    // Whoever wants a file wants to read there what happened.
    let written =
        file.map(open).transpose()?.map(|log| layer(Head::Dated, log, level(verbose.max(2))));
    let keep = |place: LogPlace| {
        let path = place.path();
        KeptLog::open(place).map_err(|error| Stop::unreachable(io_text(&path, &error)))
    };
    let kept = kept.map(keep).transpose()?;
    let kept = kept.map(|log| layer(Head::Dated, log, KEPT.max(level(verbose))));
    if verbose >= 2 || file.is_some() {
        observer::set(Arc::new(Durations::default()));
    }
    set(Registry::default().with(told).with(written).with(kept));
    Ok(())
}

/// Begins to say what happens in a server: in the journal, where it runs as a unit of the system.
pub fn begin_serving() {
    // That is where standard error goes; lines that begin with their priority have it there.
    if std::env::var_os("JOURNAL_STREAM").is_some() {
        set(Registry::default().with(layer(Head::Journal, io::stderr, KEPT)));
    }
    record_own();
}

fn set(subscriber: impl Subscriber + Send + Sync) {
    // It is the first thing that this program does.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

fn layer<S, F, W>(format: F, writer: W, level: LevelFilter) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    F: FormatEvent<S, tracing_subscriber::fmt::format::DefaultFields> + Send + Sync + 'static,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer()
        .event_format(format)
        .with_writer(writer)
        .with_ansi(false)
        .with_filter(level)
}

/// A file that is appended to.
struct Log {
    path: PathBuf,
    file: File,
    /// It has been said that it cannot be written.
    told: AtomicBool,
}

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: append(path)?, told: AtomicBool::new(false) })
    }
}

/// Why there is no log at a path that the user has named.
fn refused(path: &Path, error: &io::Error) -> Stop {
    let text = io_text(path, error);
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NXIO) => Stop::usage(format!("{text}: nobody reads this pipe")),
        _ => Stop::usage(text),
    }
}

/// Opens without waiting, as a pipe has it that nobody reads.
fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    // Whoever reads it may take a moment.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

impl Write for &Log {
    /// What cannot be written is said once; whatever is logged goes on.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = (&self.file).write_all(line);
        if let Err(error) = &written
            && !self.told.swap(true, Ordering::Relaxed)
        {
            tell(format_args!("sheaf: {}: the log goes no further", io_text(&self.path, error)));
        }
        written.map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log of a session: begun anew when it is too long, and where the session's socket goes.
struct KeptLog {
    place: LogPlace,
    open: Mutex<KeptFile>,
}

struct KeptFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Lines that are in no file that has its name.
    waiting: Vec<u8>,
}

impl KeptLog {
    fn open(place: LogPlace) -> io::Result<Self> {
        let path = place.path();
        let file = open_own(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { place, open: Mutex::new(KeptFile { path, file, bytes, waiting: Vec::new() }) })
    }
}

impl<'a> MakeWriter<'a> for KeptLog {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

impl Write for &KeptLog {
    /// What cannot be written, `sheaf status` says; whatever is logged goes on.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let path = self.place.path();
        let written = lock(&self.open).append(&path, line);
        self.place.note(written.as_ref().err().map(|error| io_text(&path, error)));
        written.map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl KeptFile {
    /// Whether the path is that of the file that is open.
    fn is_at(&self, path: &Path) -> bool {
        let id = |about: std::fs::Metadata| (about.dev(), about.ino());
        let there = std::fs::symlink_metadata(path).map(id);
        there.is_ok_and(|there| self.file.metadata().is_ok_and(|open| id(open) == there))
    }

    fn append(&mut self, path: &Path, line: &[u8]) -> io::Result<()> {
        if self.path == path && self.bytes >= LOG_BYTES_MAX && self.is_at(path) {
            rename_own(path, &path.with_extension("log.1"))?;
            self.file = open_own(path)?;
            self.bytes = 0;
        }
        // A log that was moved or deleted, as one is that is rotated, is begun anew.
        if !self.is_at(path) {
            match open_own(path) {
                Ok(file) => self.go_on_in(path, file)?,
                Err(error) => {
                    // Its directory may come back, or the session find another one.
                    let room = WAITING_BYTES_MAX.saturating_sub(self.waiting.len());
                    self.waiting.extend_from_slice(if line.len() <= room { line } else { &[] });
                    self.file.write_all(line)?;
                    return Err(error);
                }
            }
        } else if self.path == path {
            self.waiting.clear();
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Begins with what is in no file that has its name.
    fn go_on_in(&mut self, path: &Path, file: File) -> io::Result<()> {
        if self.path != path {
            let (now, process) = (jiff::Timestamp::now(), std::process::id());
            let path = path.display();
            // Of one that is gone nobody reads it.
            let _ = writeln!(self.file, "{now:.3} [{process}] {GOES_ON}{path}");
        }
        self.bytes = file.metadata()?.len();
        self.file = file;
        self.path = path.to_owned();
        let waiting = std::mem::take(&mut self.waiting);
        self.bytes += waiting.len() as u64;
        self.file.write_all(&waiting)
    }
}

/// What a line begins with, and so for whom it is.
enum Head {
    /// A reader at the terminal: the time since the program began.
    Terminal(Instant),
    /// A file: the date.
    Dated,
    /// The journal, which has the time and knows priorities.
    Journal,
}

impl Head {
    fn write(&self, level: Level, writer: &mut Writer<'_>) -> fmt::Result {
        match self {
            Self::Terminal(begun) => {
                write!(writer, "sheaf: [{:.3} s] ", begun.elapsed().as_secs_f64())?;
            }
            Self::Dated => {
                write!(writer, "{:.3} [{}] ", jiff::Timestamp::now(), std::process::id())?;
            }
            Self::Journal => {
                let priority = match level {
                    Level::ERROR => 3,
                    Level::WARN => 4,
                    Level::INFO => 6,
                    Level::DEBUG | Level::TRACE => 7,
                };
                return write!(writer, "<{priority}>");
            }
        }
        match level {
            Level::ERROR => writer.write_str("error: "),
            Level::WARN => writer.write_str("warning: "),
            Level::INFO | Level::DEBUG | Level::TRACE => Ok(()),
        }
    }
}

impl<S, N> FormatEvent<S, N> for Head
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        self.write(*event.metadata().level(), &mut writer)?;
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        // What a host says is never taken for a line of somebody else.
        for (at, line) in text.split(['\n', '\r']).enumerate() {
            let between = if at > 0 { "\\n" } else { "" };
            write!(writer, "{between}{line}")?;
        }
        writeln!(writer)
    }
}

/// Says of each call of a tool and each group operation how long it took; of files only where
/// everything is to be said, as there may be thousands of them.
#[derive(Default)]
struct Durations {
    last: AtomicU64,
    under_way: Mutex<BTreeMap<u64, (String, Instant)>>,
}

impl Observer for Durations {
    fn begins(&self, begun: &Begun<'_>) -> u64 {
        if begun.layer == On::File && !tracing::enabled!(Level::TRACE) {
            return 0;
        }
        let mark = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (name, members) = (String::from_utf8_lossy(begun.name), begun.members);
        let space = if name.is_empty() { "" } else { " " };
        let what = format!("{}{space}{name}, {members} members", begun.kind);
        lock(&self.under_way).insert(mark, (what, Instant::now()));
        mark
    }

    fn ends(&self, mark: u64, ending: Ending) {
        let Some((what, begun)) = lock(&self.under_way).remove(&mark) else { return };
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        match ending {
            Ending::Ended { errno: None, .. } => tracing::debug!("{what}: {ms:.1} ms"),
            Ending::Ended { errno: Some(errno), .. } => {
                tracing::debug!("{what}: {ms:.1} ms, {errno}");
            }
            Ending::Dropped => tracing::debug!("{what}: given up after {ms:.1} ms"),
        }
    }
}
