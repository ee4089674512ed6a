//! The audit of a session: one line for each client and each change.
//!
//! The root writes a line for each client that it admits or refuses. The server of each host writes
//! a line for each change that it makes or refuses, to a file of its own beside its client socket,
//! and sends it to the root, which folds equal lines of several hosts into one in the session's
//! log. The server also tells the root of each change that begins: the root writes the line of a host
//! that is lost meanwhile. Where `audit = "journald"` asks for it, each line also goes to the system's journal.
use crate::error::SessionError;
use crate::log::{open_own, rename_own};
use crate::sessions::Sessions;
use journal::Journal;
use serde::{Deserialize, Serialize};
use sheaf_core::{RangeSet, lock};
use sheaf_group::Client;
use sheaf_group::audit::{ChangeEnd, ChangeLog, ChangeRecord};
use sheaf_tree::proto::Notice;
use sheaf_tree::service::identity::as_process;
use sheaf_tree::service::{Caller, LeafHandle, NOTE_BYTES_MAX};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use text::{TEXT_CHARS_MAX, cut, normal, quoted, said};
use underway::UnderWay;

pub(crate) mod journal;
mod text;
mod underway;

pub(crate) use text::plain;

/// The name under which servers send their lines to the root.
const AUDIT: &str = "audit";
/// What the file of a host is called.
pub(crate) const AUDIT_FILE: &str = "audit";
/// A file of a host is begun anew when it has become so long; one older is kept.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Bytes of all paths in a line at most, but for the first: long lines would push others out of the file.
const PATHS_BYTES_MAX: usize = 16 << 10;
/// Paths of a note are cut to this length before some are left out.
const NOTE_PATH_CHARS_MIN: usize = 40;
/// How long the root waits for equal lines of other hosts.
const FOLD_TIME: Duration = Duration::from_millis(500);
/// The most different lines that wait for that.
const FOLDED_MAX: usize = 1024;
/// How long lines of clients that equal one that was written are counted only: whoever is refused may come
/// again at once, and would push the changes out of the log.
const REPEATED_TIME: Duration = Duration::from_secs(60);
/// So many equal admissions are written in that time.
const ADMISSIONS_MAX: u64 = 60;

/// Where the audit goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditMode {
    /// Nowhere.
    #[default]
    Off,
    /// To the session's log, and to a file of each host.
    Log,
    /// To these and to the system's journal.
    Journald,
}

impl AuditMode {
    /// Each, by its name in `sheaf.toml`.
    pub const NAMES: [(&'static str, Self); 3] =
        [("off", Self::Off), ("log", Self::Log), ("journald", Self::Journald)];

    /// Its name in `sheaf.toml`.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, mode)| *mode == self).map_or("off", |(name, _)| name)
    }
}

impl FromStr for AuditMode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, mode)| *mode).ok_or(())
    }
}

/// The lines of the root, which go to the session's log.
pub(crate) struct RootAudit {
    mode: AuditMode,
    session: String,
    journal: Journal,
    clients: Mutex<Repeated>,
}

impl RootAudit {
    pub fn new(session: &str, mode: AuditMode) -> Self {
        let (journal, clients) = (Journal::of_system(), Mutex::default());
        Self { mode, session: session.to_owned(), journal, clients }
    }

    /// Writes that a client was refused, unless that was written just now.
    pub fn write_refusal(&self, line: &str) {
        self.write_of(line, 1);
    }

    /// Writes that a client was admitted. One that comes again and again does not push what was changed
    /// out of the log.
    pub fn write_admission(&self, line: &str) {
        self.write_of(line, ADMISSIONS_MAX);
    }

    fn write_of(&self, line: &str, most: u64) {
        let line = lock(&self.clients).add(line, most, Instant::now());
        if let Some(line) = line {
            self.write(&line);
        }
    }

    pub fn write(&self, line: &str) {
        if self.mode == AuditMode::Off {
            return;
        }
        let line = format!("audit: {line}");
        tracing::info!("{line}");
        if self.mode == AuditMode::Journald {
            self.journal.send(&self.session, &line);
        }
    }

    /// Writes what servers have changed, equal lines of several hosts as one, for as long as this is
    /// polled; and what waits for that, when this is dropped.
    pub async fn keep(&self, client: &Client, head: &str) {
        let (network, mut seen) = (client.network(), 0);
        let (folded, under_way) = Default::default();
        let mut waiting = Waiting { audit: self, client, head, folded, under_way };
        loop {
            let Waiting { folded, under_way, .. } = &mut waiting;
            let wait = folded.due(Instant::now());
            tokio::select! {
                // What a host has said comes before that it is lost.
                biased;
                want = network.wanted(AUDIT) => {
                    match postcard::from_bytes::<AuditNote>(&want.note) {
                        Ok(note) => folded.take_in(note, want.leaf, under_way),
                        Err(_) => tracing::warn!(leaf = want.leaf, "an audit line cannot be read"),
                    }
                }
                notices = network.notices_from(&mut seen) => {
                    let lost = notices.iter().filter_map(|notice| match notice {
                        Notice::Lost { leaves, .. } => Some(leaves),
                        _ => None,
                    });
                    for leaves in lost {
                        waiting.end(leaves, "not known, as the host was lost");
                    }
                }
                () = tokio::time::sleep(wait) => {}
            }
            waiting.write(Instant::now());
        }
    }
}

/// What hosts have said, and is not written yet.
struct Waiting<'a> {
    audit: &'a RootAudit,
    client: &'a Client,
    head: &'a str,
    folded: Folded,
    under_way: UnderWay,
}

impl Waiting<'_> {
    /// No more comes of what is under way on these leaves.
    fn end(&mut self, leaves: &RangeSet, why: &str) {
        for (leaf, note) in self.under_way.lose(leaves) {
            let note = AuditNote { end: why.to_owned(), ..note };
            self.folded.add(note, leaf, Instant::now());
        }
    }

    fn write(&mut self, now: Instant) {
        for (note, leaves) in self.folded.take(now) {
            self.audit.write(&note.line(self.head, Some(&self.client.fold(&leaves))));
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let everyone = self.client.network().everyone();
        self.end(&everyone, "not known, as the session ended");
        self.write(Instant::now() + FOLD_TIME);
    }
}

/// Lines of clients that were written lately.
#[derive(Default)]
struct Repeated(BTreeMap<String, RepeatedLine>);

/// Until when equal ones are counted, how many of them were written, and how many were not.
struct RepeatedLine {
    until: Instant,
    written: u64,
    more: u64,
}

impl Repeated {
    /// What to write now of a line, of which `most` equal ones are written in a while.
    fn add(&mut self, line: &str, most: u64, now: Instant) -> Option<String> {
        let fresh = RepeatedLine { until: now + REPEATED_TIME, written: 1, more: 0 };
        match self.0.get_mut(line) {
            Some(known) if known.until > now && known.written < most => {
                known.written += 1;
                Some(line.to_owned())
            }
            Some(known) if known.until > now => {
                known.more += 1;
                None
            }
            Some(known) => {
                let RepeatedLine { more, .. } = std::mem::replace(known, fresh);
                let since = if more > 0 { format!(", {more} times since") } else { String::new() };
                Some(format!("{line}{since}"))
            }
            None => {
                if self.0.len() >= FOLDED_MAX {
                    self.0.clear();
                }
                self.0.insert(line.to_owned(), fresh);
                Some(line.to_owned())
            }
        }
    }
}

/// Lines that wait for equal ones of other hosts.
#[derive(Default)]
struct Folded {
    waiting: BTreeMap<AuditNote, (RangeSet, Instant)>,
    /// Those that wait no longer: one of their hosts has said the same again, which is another change.
    over: Vec<(Instant, AuditNote, RangeSet)>,
}

impl Folded {
    /// Takes in what the host of `leaf` says of a change: that it has begun, or how it has ended.
    fn take_in(&mut self, note: AuditNote, leaf: u32, under_way: &mut UnderWay) {
        let ended = if note.end.is_empty() {
            under_way.begin(leaf, note).map(|note| AuditNote {
                end: "begun, with too many others to follow".to_owned(),
                ..note
            })
        } else {
            under_way.end(leaf, note.number);
            Some(note)
        };
        if let Some(note) = ended {
            self.add(note, leaf, Instant::now());
        }
    }

    fn add(&mut self, note: AuditNote, leaf: u32, now: Instant) {
        // It is the word of that host.
        let AuditNote { uid, from, command, paths, more, end, .. } = note;
        let [from, command] = [from, command].map(|text| said(&plain(&text)));
        let end = plain(&end);
        let why = ["refused: ", "failed: "]
            .into_iter()
            .find_map(|how| Some((how, end.strip_prefix(how)?)));
        let end = why.map_or_else(|| said(&end), |(how, why)| format!("{how}{}", said(why)));
        let note = AuditNote { number: 0, uid, from, command, paths, more, end };
        if let Some((leaves, _)) = self.waiting.get(&note)
            && leaves.contains(leaf)
        {
            let waited = self.waiting.remove_entry(&note);
            self.over.extend(waited.map(|(note, (leaves, at))| (at, note, leaves)));
        }
        let until = now + FOLD_TIME;
        let (leaves, _) = self.waiting.entry(note).or_insert_with(|| (RangeSet::new(), until));
        leaves.insert(leaf);
    }

    /// How long until a line is written.
    fn due(&self, now: Instant) -> Duration {
        if !self.over.is_empty() {
            return Duration::ZERO;
        }
        let next = self.waiting.values().map(|(_, at)| at.saturating_duration_since(now)).min();
        next.unwrap_or(Duration::from_secs(3600))
    }

    /// What waits no longer, in the order in which it was first said.
    fn take(&mut self, now: Instant) -> Vec<(AuditNote, RangeSet)> {
        let is_full = self.waiting.len() > FOLDED_MAX;
        let mut due = std::mem::take(&mut self.over);
        let before = due.iter().map(|(at, ..)| *at).max();
        let is_due = |at: Instant| at <= now || before.is_some_and(|before| at < before);
        let waited = self.waiting.extract_if(.., |_, (_, at)| is_full || is_due(*at));
        due.extend(waited.map(|(note, (leaves, at))| (at, note, leaves)));
        due.sort_by_key(|(at, ..)| *at);
        due.into_iter().map(|(_, note, leaves)| (note, leaves)).collect()
    }
}

/// A change, as a server tells the root of it: cut to the length of a note.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct AuditNote {
    /// That of the change on its host.
    number: u64,
    /// The user, unless it is that of the session at the root.
    uid: Option<u32>,
    /// The host on which the client entered; empty for the root.
    from: String,
    command: String,
    /// As they are: a line quotes them.
    paths: Vec<String>,
    /// How many paths were left out.
    more: u64,
    /// Empty if it has only begun.
    end: String,
}

impl AuditNote {
    fn of(record: &ChangeRecord<'_>) -> Self {
        let number = record.number;
        let (uid, from) = match record.caller {
            Caller::Owner => (None, String::new()),
            Caller::User { uid, host, .. } => (Some(*uid), plain(host)),
            Caller::Host { host, .. } => (None, format!("the server of {}", plain(host))),
        };
        let end = match record.end {
            None => String::new(),
            Some(ChangeEnd::Done) => "done".to_owned(),
            Some(ChangeEnd::Failed(1)) => "1 path failed".to_owned(),
            Some(ChangeEnd::Failed(count)) => format!("{count} paths failed"),
            Some(ChangeEnd::Refused(errno)) => format!("refused: {errno}"),
            Some(ChangeEnd::Unfinished) => "not completed".to_owned(),
        };
        let (mut paths, mut bytes) = (Vec::new(), 0);
        for path in &record.change.paths {
            let path = cut(&normal(path), TEXT_CHARS_MAX);
            bytes += quoted(&path).len();
            if bytes > PATHS_BYTES_MAX && !paths.is_empty() {
                break;
            }
            paths.push(path);
        }
        let more = (record.change.more + record.change.paths.len() - paths.len()) as u64;
        let command = plain(&record.change.command);
        Self { number, uid, from, command, paths, more, end }
    }

    /// That the file of a host does not have its lines any more.
    fn of_lost_file(number: u64, why: &str) -> Self {
        let [from, command] = ["the server", "write the audit file of the host"].map(str::to_owned);
        let end = format!("failed: {}", plain(why));
        Self { number, uid: None, from, command, paths: Vec::new(), more: 0, end }
    }

    /// The line. `hosts` are those that made the change, where it is not written on one of them.
    fn line(&self, head: &str, hosts: Option<&str>) -> String {
        let Self { uid, from, command, paths, more, end, .. } = self;
        let who = match (uid, from.as_str()) {
            (Some(uid), "") => format!("user {uid} on {head}"),
            (Some(uid), from) => format!("user {uid} on {from}"),
            (None, "") => format!("the session's user on {head}"),
            (None, from) => from.to_owned(),
        };
        let hosts = hosts.map(|hosts| format!(" on {hosts}")).unwrap_or_default();
        let mut shown: Vec<String> = paths.iter().map(|path| quoted(path)).collect();
        if *more > 0 {
            shown.push(format!("and {more} more"));
        }
        let paths =
            if shown.is_empty() { String::new() } else { format!(": {}", shown.join(", ")) };
        format!("{who}: {command}{hosts}{paths}: {end}")
    }

    /// Its bytes, with the paths cut until they fit into a note.
    fn to_note(&self) -> Vec<u8> {
        let mut note = self.clone();
        loop {
            let bytes = postcard::to_stdvec(&note).expect("texts and numbers can be encoded");
            if bytes.len() <= NOTE_BYTES_MAX {
                return bytes;
            }
            let chars = |text: &String| text.chars().count();
            let count = note.paths.len();
            let longest = note.paths.iter_mut().max_by_key(|path| chars(path));
            match longest {
                Some(path) if chars(path) > NOTE_PATH_CHARS_MIN => {
                    *path = cut(path, (chars(path) - 8).max(NOTE_PATH_CHARS_MIN));
                }
                _ if count > 1 => {
                    note.paths.pop();
                    note.more += 1;
                }
                _ => {
                    let texts = [&mut note.command, &mut note.from, &mut note.end];
                    let texts = texts.into_iter().chain(&mut note.paths);
                    let longest = texts.max_by_key(|text| text.len()).expect("there are three");
                    *longest = cut(longest, chars(longest).saturating_sub(8));
                }
            }
        }
    }
}

/// The lines of a host's server.
#[derive(Default)]
pub(crate) struct HostAudit(Mutex<Option<HostLines>>);

struct HostLines {
    session: String,
    /// The file, and its length.
    file: Option<(File, u64)>,
    /// `None` where there is no place for it.
    path: Option<PathBuf>,
    journal: Option<Journal>,
    last: u64,
    /// The last line is not in the file.
    is_lost: bool,
}

impl HostAudit {
    /// Begins the audit of a server, with a file in `sessions`. The root and the journal have the
    /// lines also where there is no file.
    pub fn begin(
        &self,
        session: &str,
        host: &str,
        mode: AuditMode,
        sessions: Option<&Sessions>,
    ) -> Result<(), SessionError> {
        if mode == AuditMode::Off {
            return Ok(());
        }
        let name = format!("{session}@{host}.{AUDIT_FILE}");
        let path = sessions.map(|sessions| sessions.directory().join(name));
        let journal = (mode == AuditMode::Journald).then(Journal::of_system);
        let (file, error) = match path.as_deref().map(|path| (path, open(path))) {
            Some((_, Ok(file))) => (Some(file), None),
            Some((path, Err(error))) => (None, Some(SessionError::file(path, error))),
            None => (None, None),
        };
        let session = session.to_owned();
        let lines = HostLines { session, file, path, journal, last: 0, is_lost: false };
        *lock(&self.0) = Some(lines);
        error.map_or(Ok(()), Err)
    }
}

impl ChangeLog for HostAudit {
    fn is_kept(&self) -> bool {
        lock(&self.0).is_some()
    }

    fn begin(&self, handle: &LeafHandle, record: &ChangeRecord<'_>) -> u64 {
        let Some(number) = lock(&self.0).as_mut().map(HostLines::next_number) else { return 0 };
        let note = AuditNote::of(&ChangeRecord { number, ..*record }).to_note();
        handle.with(|leaf| leaf.want_stream(AUDIT, &note));
        number
    }

    fn keep(&self, handle: &LeafHandle, record: &ChangeRecord<'_>) {
        // The file and the journal are the server's, whatever user it works for.
        let notes = as_process(|| {
            let mut lines = lock(&self.0);
            let Some(lines) = lines.as_mut() else { return Vec::new() };
            let note = AuditNote::of(record);
            let lost = lines.write(&format!("audit: {}", note.line("the head", None)));
            let lost = lost.map(|why| AuditNote::of_lost_file(lines.next_number(), &why));
            std::iter::once(note).chain(lost).collect()
        });
        for note in notes {
            let note = note.to_note();
            handle.with(|leaf| leaf.want_stream(AUDIT, &note));
        }
    }
}

impl HostLines {
    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Writes a line. Returns why the file no longer has the lines, once.
    fn write(&mut self, line: &str) -> Option<String> {
        if let Some(journal) = &self.journal {
            journal.send(&self.session, line);
        }
        // The last line may be there in part: it is not to be taken for the beginning of this one.
        let end = if self.is_lost { "\n" } else { "" };
        let line = format!("{end}{:.3} [{}] {line}\n", jiff::Timestamp::now(), std::process::id());
        let written = self.append(line.as_bytes());
        let was_lost = std::mem::replace(&mut self.is_lost, written.is_err());
        let error = written.err()?;
        self.file = None;
        (!was_lost).then(|| {
            tracing::error!(%error, "the audit of this host is not written");
            error.to_string()
        })
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        // Without a place the root knows from the beginning.
        let Some(path) = &self.path else { return Ok(()) };
        // Moved or deleted, as a log is that is rotated, it is begun anew.
        let id = |about: std::fs::Metadata| (about.dev(), about.ino());
        let there = std::fs::symlink_metadata(path).ok().map(id);
        self.file = match self.file.take() {
            Some((file, bytes)) if there == Some(id(file.metadata()?)) => Some((file, bytes)),
            _ => Some(open(path)?),
        };
        // The server of another session of this name may have done this, too.
        if self.file.as_ref().is_some_and(|(_, bytes)| *bytes >= FILE_BYTES_MAX) {
            rename_own(path, &path.with_extension(format!("{AUDIT_FILE}.1")))?;
            self.file = Some(open(path)?);
        }
        let Some((file, bytes)) = &mut self.file else { return Ok(()) };
        file.write_all(line)?;
        *bytes += line.len() as u64;
        Ok(())
    }
}

/// Opens a file to append lines to it.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = open_own(path)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_that_are_equal_are_counted() {
        let (mut refusals, now) = (Repeated::default(), Instant::now());
        let mut add =
            |line: &str, seconds| refusals.add(line, 1, now + Duration::from_secs(seconds));
        assert_eq!(add("h3: refused", 0).as_deref(), Some("h3: refused"));
        assert_eq!(add("h4: refused", 1).as_deref(), Some("h4: refused"));
        (0..900).for_each(|_| assert_eq!(add("h3: refused", 2), None));
        assert_eq!(add("h3: refused", 61).as_deref(), Some("h3: refused, 900 times since"));
        assert_eq!(add("h3: refused", 121).as_deref(), Some("h3: refused"));
        let mut admissions = Repeated::default();
        let mut add = |seconds| {
            admissions.add("admitted", ADMISSIONS_MAX, now + Duration::from_secs(seconds))
        };
        let written = (0..1000).filter_map(|_| add(3)).filter(|line| line == "admitted").count();
        assert_eq!(written as u64, ADMISSIONS_MAX);
        assert_eq!(add(64).as_deref(), Some("admitted, 940 times since"));
    }
    use sheaf_core::Errno;
    use sheaf_group::audit::Change;
    use sheaf_tree::service::ClientRights;

    fn note(paths: &[&str], end: ChangeEnd) -> AuditNote {
        let change = Change::new("chmod -R", paths.iter().map(|path| (*path).to_owned()));
        let (gids, host, rights) = (Vec::new(), "h3".to_owned(), ClientRights::FULL);
        let caller = Caller::User { uid: 1001, gid: 1001, gids, host, is_owner: false, rights };
        let (host, end) = ("h5", Some(end));
        AuditNote::of(&ChangeRecord { number: 7, host, caller: &caller, change: &change, end })
    }

    #[test]
    fn line_names_user_host_command_paths_and_outcome() {
        let done = note(&["/a", "/b\n"], ChangeEnd::Done);
        assert_eq!(
            done.line("login", Some("h[1-8]")),
            "user 1001 on h3: chmod -R on h[1-8]: /a, \"/b\\n\": done"
        );
        let failed = note(&["/a"], ChangeEnd::Failed(2));
        assert_eq!(failed.line("login", None), "user 1001 on h3: chmod -R: /a: 2 paths failed");
        let refused = note(&[], ChangeEnd::Refused(Errno::PERM));
        assert!(refused.line("login", None).starts_with("user 1001 on h3: chmod -R: refused: "));
    }

    #[test]
    fn note_of_long_paths_fits_and_is_read_again() {
        let long = "/ä".repeat(400);
        let note = note(&[long.as_str(); 40], ChangeEnd::Done);
        let bytes = note.to_note();
        assert!(bytes.len() <= NOTE_BYTES_MAX, "{}", bytes.len());
        let back: AuditNote = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((back.uid, back.command.as_str()), (Some(1001), "chmod -R"));
        assert_eq!(back.paths.len() as u64 + back.more, 40);
    }

    /// No path can be taken for others, or for an outcome.
    #[test]
    fn path_of_a_line_is_quoted_where_it_could_mislead() {
        for (path, shown) in [
            ("/data/%h/x-1.y", "/data/%h/x-1.y"),
            ("/d/f: done, /etc", "\"/d/f: done, /etc\""),
            ("/d/x,/y", "\"/d/x,/y\""),
            ("/a\"b\\", "\"/a\\\"b\\\\\""),
            ("/d\u{a789}\u{2800}done\u{3164}", "\"/d\u{a789}\u{2800}done\u{3164}\""),
            ("/\u{202e}x\u{2028}\u{ad}", "\"/\\u{202e}x\\u{2028}\\u{ad}\""),
            ("", "\"\""),
        ] {
            assert_eq!(quoted(path), shown);
        }
        assert_eq!(plain("a\u{2066}b"), "a\\u{2066}b");
    }

    #[test]
    fn long_path_keeps_its_last_name() {
        let padded = format!("/d{}/./EVIL//", "/.".repeat(700));
        assert_eq!(note(&[&padded], ChangeEnd::Done).paths, ["/d/EVIL"]);
        let long = format!("{}/EVIL", "/deep".repeat(700));
        let whole = note(&[&long], ChangeEnd::Done);
        assert!(whole.paths[0].starts_with("/deep/") && whole.paths[0].ends_with("/EVIL"));
        assert!(whole.paths[0].contains('…') && whole.paths[0].chars().count() == TEXT_CHARS_MAX);
        let back: AuditNote = postcard::from_bytes(&whole.to_note()).unwrap();
        assert!(back.paths[0].starts_with("/deep/") && back.paths[0].ends_with("/EVIL"));
        let name = format!("/{}", "n".repeat(3000));
        assert_eq!(cut(&name, 9), "/nnn…nnnn");
        // The seventeenth path is in the line of the host.
        let paths: Vec<String> = (1..=40).map(|at| format!("/d/{at}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        assert!(note(&paths, ChangeEnd::Done).line("login", None).contains("/d/39, /d/40: done"));
    }

    /// What a host says of its command and its end is not taken for a line about another host.
    #[test]
    fn text_of_a_host_stays_a_part_of_its_line() {
        let line = |command: &str, end: &str| {
            let mut folded = Folded::default();
            let note = note(&["/x"], ChangeEnd::Done);
            let note = AuditNote { command: command.to_owned(), end: end.to_owned(), ..note };
            folded.add(note, 2, Instant::now());
            let taken = folded.take(Instant::now() + FOLD_TIME * 2);
            taken[0].0.line("login", Some("h2"))
        };
        for (command, end) in [
            ("view chmod 640, chown :3", "done"),
            ("open for writing, fchown 1:2", "2 paths failed"),
            ("rm -r", "refused: Permission denied (EACCES)"),
        ] {
            let expected = format!("user 1001 on h3: {command} on h2: /x: {end}");
            assert_eq!(line(command, end), expected);
        }
        assert_eq!(
            line("rm -r on h3: /data: done; cp", "done\u{2003}"),
            "user 1001 on h3: \"rm -r on h3: /data: done; cp\" on h2: /x: \"done\u{2003}\""
        );
    }

    #[test]
    fn equal_lines_of_hosts_are_folded_after_a_while() {
        let (mut folded, now) = (Folded::default(), Instant::now());
        for leaf in 0..4 {
            let number = u64::from(leaf);
            folded.add(AuditNote { number, ..note(&["/a"], ChangeEnd::Done) }, leaf, now);
        }
        folded.add(note(&["/a"], ChangeEnd::Failed(1)), 4, now);
        assert_eq!(folded.take(now).len(), 0);
        let taken = folded.take(now + FOLD_TIME);
        let mut hosts: Vec<String> = taken.iter().map(|(_, leaves)| leaves.to_string()).collect();
        hosts.sort();
        assert_eq!(hosts, ["0-3", "4"]);
        assert!(folded.due(now) > Duration::from_secs(60));
        // One host has done the same twice.
        for leaf in [0, 1, 0] {
            folded.add(note(&["/a"], ChangeEnd::Done), leaf, now);
        }
        assert_eq!(folded.due(now), Duration::ZERO);
        let leaves = |folded: &mut Folded, at| {
            folded.take(at).iter().map(|(_, leaves)| leaves.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(leaves(&mut folded, now), ["0-1"]);
        assert_eq!(leaves(&mut folded, now + FOLD_TIME), ["0"]);
    }

    /// Also where all are written at once, and where one waits no longer.
    #[test]
    fn lines_are_in_the_order_of_their_changes() {
        let (mut folded, now) = (Folded::default(), Instant::now());
        let at = |milliseconds| now + Duration::from_millis(milliseconds);
        let paths = ["/write", "/chmod", "/rm", "/rm"];
        for (path, when) in paths.into_iter().zip(0..) {
            folded.add(note(&[path], ChangeEnd::Done), 0, at(when));
        }
        let mut written = |now| {
            let taken = folded.take(now);
            taken.into_iter().flat_map(|(note, _)| note.paths).collect::<Vec<_>>()
        };
        assert_eq!(written(now), ["/write", "/chmod", "/rm"]);
        assert_eq!(written(now + FOLD_TIME * 2), ["/rm"]);
    }

    #[test]
    fn file_of_a_host_is_begun_anew_and_is_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lab@h1.audit");
        let mut lines = HostLines {
            session: "lab".to_owned(),
            file: None,
            path: Some(path.clone()),
            journal: None,
            last: 0,
            is_lost: false,
        };
        lines.write("audit: one");
        if let Some((_, bytes)) = &mut lines.file {
            *bytes = FILE_BYTES_MAX;
        }
        lines.write("audit: two");
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert!(read(&path).ends_with("] audit: two\n"), "{}", read(&path));
        assert!(read(&dir.path().join("lab@h1.audit.1")).ends_with("] audit: one\n"));
        // Moved away, deleted, and with a directory in its place.
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        lines.write("audit: three");
        assert!(read(&path).ends_with("] audit: three\n"));
        assert!(read(&dir.path().join("moved")).ends_with("] audit: two\n"));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(lines.write("audit: lost").is_some());
        std::fs::remove_dir(&path).unwrap();
        assert_eq!(lines.write("audit: four"), None);
        assert!(read(&path).ends_with("] audit: four\n"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(open(&link).is_err());
        // What cannot be written is reported once, until it can be again.
        lines.file = None;
        lines.path = Some(link);
        let reported = ["three", "four"].map(|line| lines.write(line).is_some());
        // A line that is there in part is not joined to the next one.
        open(&path).unwrap().0.write_all(b"torn").unwrap();
        lines.path = Some(path.clone());
        assert_eq!((reported, lines.write("five")), ([true, false], None));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("five\n") && text.contains("torn\n"), "{text:?}");
        lines.path = Some(dir.path().to_owned());
        lines.file = None;
        assert!(lines.write("six").is_some());
    }

    #[test]
    fn audit_without_a_file_is_an_error_and_is_kept_for_the_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("lab@h1.audit")).unwrap();
        let sessions = Sessions::at(dir.path().to_owned());
        for (sessions, is_error) in [(Some(&sessions), true), (None, false)] {
            let audit = HostAudit::default();
            let begun = audit.begin("lab", "h1", AuditMode::Log, sessions);
            assert_eq!((begun.is_err(), audit.is_kept()), (is_error, true), "{begun:?}");
        }
        let lost = AuditNote::of_lost_file(1, "no space").line("login", Some("h2"));
        assert_eq!(lost, "the server: write the audit file of the host on h2: failed: no space");
    }
}
