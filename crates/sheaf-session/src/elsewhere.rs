//! Sessions of this user in other places than a caller's own: callers of any environment must hear
//! of them, or a change that is meant for their hosts would be one of this machine alone.
//!
//! A session leaves a *word* in another place: `NAME.N.place`, a link to its socket, which callers find that
//! do not know its own place; and `NAME.N.held`, a file that is locked for as long as it runs, also while its
//! socket is removed.
use crate::environment::Environment;
use crate::error::SessionError;
use crate::seat;
use crate::sessions::Sessions;
use rustix::fs::{AtFlags, CWD, Timestamps, UTIME_NOW};
use sheaf_core::lock;
use sheaf_tree::link::watch::NameWatch;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Mutex, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

/// What the file of a word is called.
const PLACE: &str = "place";

/// The most words of one name in a directory.
const WORDS_MAX: u32 = 1000;

/// What the file is called that is locked.
const HELD: &str = "held";

/// How often it is looked whether words are still there, where the system does not tell.
const WORDS_LOOK: Duration = Duration::from_millis(250);

/// How long it takes until words are tried again that could not be left.
const WORDS_PAUSE: Duration = Duration::from_secs(1);

/// How often words get a new time: what cleans directories for temporary files removes what is old.
const WORDS_TOUCH: Duration = Duration::from_secs(3600);

/// The words of a session that runs; they go with this.
pub(crate) struct Words {
    sessions: Sessions,
    environment: Environment,
    name: String,
    socket: PathBuf,
    left: Mutex<LeftWords>,
}

/// Those that are there, and how many there have been at most.
struct LeftWords {
    words: Vec<Word>,
    most: usize,
}

impl Words {
    /// Leaves some for a session of this name, which has this socket.
    pub fn leave(
        sessions: &Sessions,
        environment: &Environment,
        name: &str,
        socket: &Path,
    ) -> Self {
        Self {
            left: Mutex::new(Word::leave(sessions, environment, name, socket, true)),
            sessions: sessions.clone(),
            environment: environment.clone(),
            name: name.to_owned(),
            socket: socket.to_owned(),
        }
    }

    /// Leaves those again that somebody has removed, for as long as the session runs.
    pub async fn keep(words: Weak<Self>) {
        let (mut touched, mut watched) = (Instant::now(), None);
        let (mut tried, mut tries) = (Instant::now(), 0u32);
        loop {
            // The system tells at once that a file is removed, but not of what becomes of its directory.
            let gone = watched.get_or_insert_with(|| words.upgrade().map(|words| words.gone()));
            let Some(gone) = gone else { return };
            let is_gone = tokio::time::timeout(WORDS_LOOK, gone).await.is_ok();
            let Some(words) = words.upgrade() else { return };
            if touched.elapsed() >= WORDS_TOUCH {
                lock(&words.left).words.iter().for_each(Word::touch);
                touched = Instant::now();
            }
            // What is in the way may be for long.
            let is_paused = tries > 0 && tried.elapsed() < WORDS_PAUSE;
            if words.are_there() {
                tries = 0;
            } else if !is_paused {
                tries = tries.saturating_add(1);
                tried = Instant::now();
                words.renew(tries.is_power_of_two());
                watched = None;
            }
            if is_gone {
                watched = None;
            }
        }
    }

    /// Waits until one of those has been removed that are there now.
    fn gone(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let left = lock(&self.left);
        let watches = left.words.iter().filter_map(|word| NameWatch::of(&word.held()).ok());
        let watches = watches.map(|watch| Box::pin(async move { watch.gone(WORDS_LOOK).await }));
        let mut watches: Vec<_> = watches.collect();
        Box::pin(std::future::poll_fn(move |cx| {
            let mut gone = watches.iter_mut().map(|watch| watch.as_mut().poll(cx));
            if gone.any(|gone| gone.is_ready()) { Poll::Ready(()) } else { Poll::Pending }
        }))
    }

    /// Whether none is missing.
    fn are_there(&self) -> bool {
        let left = lock(&self.left);
        left.words.iter().for_each(Word::mend);
        left.words.len() >= left.most && left.words.iter().all(Word::is_there)
    }

    /// Leaves new ones.
    fn renew(&self, is_told: bool) {
        if is_told {
            tracing::warn!("words of session {} are missing: it leaves new ones", self.name);
        }
        let Self { sessions, environment, name, socket, left } = self;
        let mut left = lock(left);
        // Those that are there stay until then.
        let new = Word::leave(sessions, environment, name, socket, is_told);
        *left = LeftWords { most: new.most.max(left.most), ..new };
    }
}

/// The link by which a session is found from elsewhere, and its lock; they go with this.
struct Word {
    link: PathBuf,
    socket: PathBuf,
    lock: OwnedFd,
}

impl Drop for Word {
    fn drop(&mut self) {
        let held = self.held();
        // Another may be there, where these were removed.
        let is_ours = seat::is_at(&self.lock, &held);
        if is_ours || (self.leads_there() && !seat::is_locked(&held)) {
            let _ = std::fs::remove_file(&self.link);
        }
        if is_ours {
            let _ = std::fs::remove_file(held);
        }
    }
}

impl Word {
    fn held(&self) -> PathBuf {
        self.link.with_extension(HELD)
    }

    fn leads_there(&self) -> bool {
        std::fs::read_link(&self.link).is_ok_and(|to| to == self.socket)
    }

    fn is_there(&self) -> bool {
        seat::is_at(&self.lock, &self.held()) && self.leads_there()
    }

    /// Makes the link again that was removed, or changed, beside the lock.
    fn mend(&self) {
        if !self.leads_there() && seat::is_at(&self.lock, &self.held()) {
            let _ = std::fs::remove_file(&self.link);
            // Where that fails another one is left, and told of.
            let _ = std::os::unix::fs::symlink(&self.socket, &self.link);
        }
    }

    fn touch(&self) {
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let now = Timestamps { last_access: now, last_modification: now };
        // Without it they may be removed, and are left again.
        let _ = rustix::fs::futimens(&self.lock, &now);
        let _ = rustix::fs::utimensat(CWD, &self.link, &now, AtFlags::SYMLINK_NOFOLLOW);
    }

    /// Leaves some for a session of this name with this socket: where callers of other environments look for it, and
    /// where that stays. What is in the way of one is no reason not to start.
    fn leave(
        sessions: &Sessions,
        environment: &Environment,
        name: &str,
        socket: &Path,
        is_told: bool,
    ) -> LeftWords {
        let mut failed = 0;
        let mut not = |error: &SessionError| {
            failed += 1;
            if is_told {
                tracing::warn!(%error, "some callers of other environments do not find this session");
            }
        };
        let usual = sessions.of_callers(environment);
        let but = [Some(sessions), usual.as_ref()];
        let lasting = Sessions::one_that_lasts(environment, but.into_iter().flatten());
        let places = usual.into_iter().chain(lasting);
        let mut left = |place| Self::leave_in(&place, name, socket).inspect_err(&mut not);
        let words: Vec<Self> = places.filter_map(|place| left(place).ok().flatten()).collect();
        LeftWords { most: words.len() + failed, words }
    }

    fn leave_in(place: &Sessions, name: &str, socket: &Path) -> Result<Option<Self>, SessionError> {
        place.make_directory()?;
        let socket = &*std::path::absolute(socket).map_err(SessionError::io("session"))?;
        for number in 0..WORDS_MAX {
            let link = place.directory().join(format!("{name}.{number}.{PLACE}"));
            let held = link.with_extension(HELD);
            let lock = match seat::locked(&held) {
                Ok(Some(lock)) => lock,
                // Of another session, or something in its place.
                Ok(None) => continue,
                Err(_) if std::fs::symlink_metadata(&held).is_ok() => continue,
                Err(error) => return Err(error),
            };
            let word = Self { link: link.clone(), socket: socket.to_owned(), lock };
            match std::os::unix::fs::symlink(socket, &link) {
                Ok(()) => return Ok(Some(word)),
                // One that was killed has left it.
                Err(_) if word.leads_there() => return Ok(Some(word)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(SessionError::file(&link, error)),
            }
        }
        Ok(None)
    }
}

/// A session that has left a word: its name, its place, and the word.
struct Told {
    name: String,
    sessions: Sessions,
    socket: PathBuf,
    word: PathBuf,
}

impl Told {
    fn runs(&self) -> bool {
        self.sessions.is_running(&self.name)
    }

    fn was_killed(&self) -> bool {
        !self.is_held() && !seat::is_held(&self.socket) && !self.runs()
    }

    /// Whether its process lives, whatever has become of its socket.
    fn is_held(&self) -> bool {
        seat::is_locked(&self.word.with_extension(HELD))
    }
}

impl Sessions {
    /// Those that have left a word here. What no session has made is passed over.
    fn told(&self) -> Result<Vec<Told>, SessionError> {
        let told = self.files(PLACE)?.into_iter().filter_map(|word| {
            let socket = std::fs::read_link(&word).ok()?;
            let directory = socket.parent().filter(|directory| directory.is_absolute())?;
            let sessions = Self::in_directory(directory.to_owned());
            let name = socket.file_stem()?.to_str()?.to_owned();
            let is_one = sessions.socket(&name).is_ok_and(|right| right == socket);
            is_one.then_some(Told { name, sessions, socket, word })
        });
        let mut told: Vec<Told> = told.collect();
        // Where only the lock is left, the name is known, and that it runs.
        for held in self.files(HELD)? {
            let word = held.with_extension(PLACE);
            let name = held.file_stem().and_then(|stem| stem.to_str()?.rsplit_once('.'));
            let Some((name, _)) = name else { continue };
            let Ok(socket) = self.socket(name) else { continue };
            let left = Told { socket, name: name.to_owned(), sessions: self.clone(), word };
            if !told.iter().any(|told| told.word == left.word) && left.is_held() {
                told.push(left);
            }
        }
        Ok(told)
    }

    /// Where a session of this name has its socket: where the caller's are, unless it runs elsewhere
    /// only, as one of a login does for cron. Of one that was killed it is said how it ended; `command` and
    /// `start` are as for [`Sessions::absent`].
    ///
    /// # Errors
    /// When several of the name run, or one of them was killed and nobody has forgotten it: which is
    /// meant is not known. What is elsewhere and not to be trusted is passed over.
    pub fn named(
        environment: &Environment,
        name: &str,
        command: Option<&str>,
        start: &str,
    ) -> Result<Self, SessionError> {
        Self::of(environment).socket(name)?;
        let running = Self::all_named(environment, name);
        if let [(_, one), (_, other), ..] = &running[..] {
            let (one, other) = (one.directory().display(), other.directory().display());
            let text = format!("two sessions {name} run: in {one} and in {other}: end one of them");
            return Err(SessionError::Choice(text));
        }
        let mut places = Self::places_of(environment, name).into_iter();
        let told = || Self::words_of(environment, name).into_iter().find(Told::was_killed);
        let killed = places.find(|place| place.was_killed(name));
        let killed = killed.or_else(|| Some(told()?.sessions));
        match (running.into_iter().next(), killed) {
            (None, None) => Ok(Self::of(environment)),
            (Some((_, place)), None) => Ok(place),
            // Its log may be gone with its directory.
            (None, Some(killed)) if killed.past(name).is_none() && command.is_none() => {
                let text = format!("{}; start it with: {start}", killed.how_it_ended(name));
                Err(SessionError::Absent(text))
            }
            (None, Some(killed)) => Err(killed.absent_and(name, command, start)),
            (Some((_, place)), Some(killed)) => Err(SessionError::Absent(format!(
                "{}; another session {name} runs, in {}: sheaf status forgets the first",
                killed.how_it_ended(name),
                place.directory().display()
            ))),
        }
    }

    /// Whether a session of this name runs, here or elsewhere.
    #[must_use]
    pub fn runs_anywhere(environment: &Environment, name: &str) -> bool {
        !Self::all_named(environment, name).is_empty()
    }

    /// The processes of the sessions of this name, here or elsewhere; `None` for one that cannot be reached.
    pub(crate) fn processes_of(environment: &Environment, name: &str) -> Vec<Option<i32>> {
        Self::all_named(environment, name).into_iter().map(|(process, _)| process).collect()
    }

    /// That no session of this name runs, here or elsewhere, so that one can begin here. Those that were killed are
    /// forgotten: how they ended is to be told.
    ///
    /// # Errors
    /// [`SessionError::Taken`] when one does.
    pub fn check_free_anywhere(
        environment: &Environment,
        name: &str,
    ) -> Result<Vec<String>, SessionError> {
        let own = Self::of(environment);
        own.check_free(name)?;
        if let Some((_, place)) = Self::all_named(environment, name).first() {
            let place = place.directory().display();
            return Err(Self::taken(name, &format!("session {name} runs already, in {place}")));
        }
        let mut killed = Vec::new();
        Self::forget_killed(
            environment,
            |killed| killed == name,
            |ended| {
                killed.push(ended.to_owned());
                true
            },
        )?;
        Ok(killed)
    }

    /// All that run, here and elsewhere, with their names, also those whose sockets were removed.
    ///
    /// # Errors
    /// As [`Sessions::running`]. What is elsewhere and not to be trusted is passed over.
    pub fn all(environment: &Environment) -> Result<Vec<(Self, String)>, SessionError> {
        let all = Self::names(environment)?.into_iter().flat_map(|name| {
            let places = Self::all_named(environment, &name).into_iter();
            places.map(move |(_, place)| (place, name.clone()))
        });
        Ok(all.collect())
    }

    /// The sessions of this name that run, here and elsewhere, by their processes; one here that cannot be
    /// reached, too.
    fn all_named(environment: &Environment, name: &str) -> Vec<(Option<i32>, Self)> {
        let own = Self::of(environment);
        let mut running: Vec<(Option<i32>, Self)> = Vec::new();
        for (number, place) in Self::places_of(environment, name).into_iter().enumerate() {
            let process = match place.process(name) {
                Ok(None) => continue,
                Ok(process) => process,
                // Joining it says why. A directory of another user has none of this one's.
                Err(_) if number == 0 && place == own || place.is_this_users() => None,
                Err(_) => continue,
            };
            if process.is_none() || !running.iter().any(|(other, _)| *other == process) {
                running.push((process, place));
            }
        }
        let words = Self::words_of(environment, name);
        if running.is_empty()
            && let Some(held) = words.into_iter().find(Told::is_held)
        {
            running.push((None, held.sessions));
        }
        running
    }

    /// The words of sessions of this name.
    fn words_of(environment: &Environment, name: &str) -> Vec<Told> {
        let places = std::iter::once(Self::of(environment)).chain(Self::elsewhere(environment));
        let told = places.flat_map(|place| place.told().unwrap_or_default());
        told.filter(|told| told.name == name).collect()
    }

    /// That a session of this name, which cannot be reached, does not live.
    ///
    /// # Errors
    /// [`SessionError::Unresponsive`] when it does, as one whose socket was removed just now.
    pub fn check_ended(environment: &Environment, name: &str) -> Result<(), SessionError> {
        if !Self::words_of(environment, name).iter().any(Told::is_held) {
            return Ok(());
        }
        Err(SessionError::Unresponsive(format!(
            "session {name} runs, and its socket was removed: it listens again in a moment"
        )))
    }

    /// That no other session of this name has begun while this process did.
    ///
    /// # Errors
    /// [`SessionError::Taken`] when one has.
    pub fn check_alone(
        environment: &Environment,
        name: &str,
        process: u32,
    ) -> Result<(), SessionError> {
        let all = Self::all_named(environment, name);
        let is_other = |(other, _): &&(Option<i32>, Self)| {
            other.is_some_and(|other| other.cast_unsigned() != process)
        };
        let Some((_, place)) = all.iter().find(is_other) else { return Ok(()) };
        let place = place.directory().display();
        Err(Self::taken(name, &format!("session {name} has begun in {place} as well")))
    }

    /// Where sessions of this name may be: where the caller's are, elsewhere, and where words of them say.
    fn places_of(environment: &Environment, name: &str) -> Vec<Self> {
        let mut places = vec![Self::of(environment)];
        places.extend(Self::elsewhere(environment));
        let told = places.iter().flat_map(|place| place.told().unwrap_or_default());
        let told: Vec<Self> =
            told.filter(|told| told.name == name).map(|told| told.sessions).collect();
        for there in told {
            if !places.iter().any(|place| place.directory() == there.directory()) {
                places.push(there);
            }
        }
        places
    }

    /// The names of those that run here or elsewhere, once each, also of those whose sockets were removed.
    ///
    /// # Errors
    /// As [`Sessions::running`]. What is elsewhere and not to be trusted is passed over.
    pub fn names(environment: &Environment) -> Result<Vec<String>, SessionError> {
        let mut names = Self::running_anywhere(environment)?;
        for name in &mut names {
            // Of one in an unusual place that is behind its name.
            name.truncate(name.find(' ').unwrap_or(name.len()));
        }
        let places = std::iter::once(Self::of(environment)).chain(Self::elsewhere(environment));
        let words = places.flat_map(|place| place.told().unwrap_or_default());
        names.extend(words.filter(Told::is_held).map(|told| told.name));
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// The names of those that run here or elsewhere; of those in unusual places, where they are.
    ///
    /// # Errors
    /// As [`Sessions::running`], and where none is found while a directory of this user's elsewhere cannot be read.
    /// What is of others is passed over.
    pub(crate) fn running_anywhere(environment: &Environment) -> Result<Vec<String>, SessionError> {
        let own = Self::of(environment);
        let mut names = own.running()?;
        let mut found: Vec<(String, Self)> =
            names.iter().map(|name| (name.clone(), own.clone())).collect();
        // One whose directory came back has a socket in two places.
        let mut is_new = |name: &str, place: &Self| {
            let process = |place: &Self| place.process(name).ok().flatten();
            let mut same = found.iter().filter(|(other, _)| other == name).peekable();
            let is_known = same.peek().is_some() && {
                let own = process(place);
                own.is_some() && same.any(|(_, other)| process(other) == own)
            };
            found.push((name.to_owned(), place.clone()));
            !is_known
        };
        let elsewhere = Self::elsewhere(environment);
        let mut unseen = None;
        for place in &elsewhere {
            match place.running() {
                Ok(running) => {
                    names.extend(running.into_iter().filter(|name| is_new(name, place)));
                }
                Err(error) if place.is_surely_this_users() => unseen = Some(error),
                Err(_) => {}
            }
        }
        let places: Vec<&Self> = std::iter::once(&own).chain(&elsewhere).collect();
        let is_named =
            |told: &Told| places.iter().any(|place| place.directory() == told.sessions.directory());
        for place in &places {
            for told in place.told().unwrap_or_default() {
                if !is_named(&told) && told.runs() && is_new(&told.name, &told.sessions) {
                    names.push(format!("{} in {}", told.name, told.sessions.directory().display()));
                }
            }
        }
        match unseen {
            // Any could be there.
            Some(error) if names.is_empty() => Err(error),
            _ => Ok(names),
        }
    }

    /// How a session ended that was killed, here or elsewhere, and that nobody has forgotten since.
    pub(crate) fn killed_anywhere(environment: &Environment) -> Option<String> {
        let elsewhere = Self::elsewhere(environment);
        let mut places = std::iter::once(Self::of(environment)).chain(elsewhere);
        places.find_map(|place| {
            let killed = place.killed().ok().and_then(|killed| killed.into_iter().next());
            killed.or_else(|| {
                let told = place.told().ok()?.into_iter().find(Told::was_killed)?;
                Some(told.sessions.how_it_ended(&told.name))
            })
        })
    }

    /// Removes what sessions have left that were killed, here and elsewhere, words included, of the names that are
    /// meant. First `tell` is called with how each ended, and where it cannot tell that (`false`), all stays.
    ///
    /// # Errors
    /// As [`Sessions::running`]. What is elsewhere and not to be trusted is passed over.
    pub fn forget_killed(
        environment: &Environment,
        is_meant: impl Fn(&str) -> bool,
        mut tell: impl FnMut(&str) -> bool,
    ) -> Result<(), SessionError> {
        let mut told: Vec<String> = Vec::new();
        let mut tell = |ended: String| {
            let is_told = told.contains(&ended) || tell(&ended);
            told.extend(is_told.then_some(ended));
            is_told
        };
        let own = Self::of(environment);
        own.sweep(&is_meant, &mut tell)?;
        for place in std::iter::once(own).chain(Self::elsewhere(environment)) {
            let _ = place.sweep(&is_meant, &mut tell);
            for left in place.told().unwrap_or_default() {
                if !is_meant(&left.name) || !left.was_killed() {
                    continue;
                }
                let held = left.word.with_extension(HELD);
                // One that begins takes the word over.
                let Ok(Some(_lock)) = seat::locked(&held) else { continue };
                if left.word.is_symlink()
                    && tell(left.sessions.how_it_ended(&left.name))
                    && std::fs::remove_file(&left.word).is_ok()
                {
                    let _ = std::fs::remove_file(held);
                    seat::clear_if(&left.socket, || true);
                }
            }
        }
        Ok(())
    }
}
