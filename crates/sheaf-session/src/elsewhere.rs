//! Sessions of this user in other places than a caller's own: callers of any environment must hear
//! of them, or a change that is meant for their hosts would be one of this machine alone.
//!
//! A session whose sockets are in an unusual place leaves a *word* in a usual one: `NAME.N.place`,
//! a link to its socket.
use crate::environment::Environment;
use crate::error::SessionError;
use crate::keep;
use crate::sessions::Sessions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What the file of a word is called.
const PLACE: &str = "place";

/// The most words of one name in a directory.
const WORDS_MAX: u32 = 1000;

/// The link by which a session is found from elsewhere; it goes with this.
pub(crate) struct Word(PathBuf);

impl Drop for Word {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Word {
    /// Leaves one for a session of this name with this socket, if it is in an unusual place. What is
    /// in the way of it is no reason not to start.
    pub fn leave(
        sessions: &Sessions,
        environment: &Environment,
        name: &str,
        socket: &Path,
    ) -> Option<Self> {
        let link = || -> Result<Option<Self>, SessionError> {
            let Some(place) = sessions.of_callers(environment)? else { return Ok(None) };
            let socket = &*std::path::absolute(socket).map_err(SessionError::io("session"))?;
            for number in 0..WORDS_MAX {
                let path = place.directory().join(format!("{name}.{number}.{PLACE}"));
                match std::os::unix::fs::symlink(socket, &path) {
                    Ok(()) => return Ok(Some(Self(path))),
                    // One that was killed has left it.
                    Err(_) if std::fs::read_link(&path).is_ok_and(|old| old == socket) => {
                        return Ok(Some(Self(path)));
                    }
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(SessionError::file(&path, error)),
                }
            }
            Ok(None)
        };
        link().unwrap_or_else(|error| {
            tracing::warn!(%error, "callers of other environments do not find this session");
            None
        })
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
        !keep::is_held(&self.socket) && !self.runs()
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
        Ok(told.collect())
    }

    /// Where a session of this name has its socket: where the caller's are, unless it runs elsewhere
    /// only, as one of a login does for cron.
    ///
    /// What is elsewhere and not to be trusted is passed over.
    #[must_use]
    pub fn with(environment: &Environment, name: &str) -> Self {
        let own = Self::of(environment);
        if own.is_running(name) {
            return own;
        }
        let elsewhere = Self::elsewhere(environment);
        let runs = |place: &&Self| matches!(place.open(name), Ok(Some(_)));
        if let Some(there) = elsewhere.iter().find(runs) {
            return there.clone();
        }
        for place in std::iter::once(&own).chain(&elsewhere) {
            let told = place.told().unwrap_or_default().into_iter();
            let mut there = told.filter(|told| told.name == name).map(|told| told.sessions);
            if let Some(there) = there.find(|there| runs(&there)) {
                return there;
            }
        }
        own
    }

    /// The names of those that run here or elsewhere, once each.
    ///
    /// # Errors
    /// As [`Sessions::running`]. What is elsewhere and not to be trusted is passed over.
    pub fn names(environment: &Environment) -> Result<Vec<String>, SessionError> {
        let mut names = Self::running_anywhere(environment)?;
        for name in &mut names {
            // Of one in an unusual place that is behind its name.
            name.truncate(name.find(' ').unwrap_or(name.len()));
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// The names of those that run here or elsewhere; of those in unusual places, where they are.
    ///
    /// # Errors
    /// As [`Sessions::running`]. What is elsewhere and not to be trusted is passed over.
    pub(crate) fn running_anywhere(environment: &Environment) -> Result<Vec<String>, SessionError> {
        let own = Self::of(environment);
        let mut names = own.running()?;
        let elsewhere = Self::elsewhere(environment);
        for place in &elsewhere {
            names.extend(place.running().unwrap_or_default());
        }
        let places: Vec<&Self> = std::iter::once(&own).chain(&elsewhere).collect();
        let is_named =
            |told: &Told| places.iter().any(|place| place.directory() == told.sessions.directory());
        for place in &places {
            for told in place.told().unwrap_or_default() {
                if !is_named(&told) && told.runs() {
                    names.push(format!("{} in {}", told.name, told.sessions.directory().display()));
                }
            }
        }
        Ok(names)
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

    /// [`Sessions::sweep`] here and elsewhere, words included.
    ///
    /// # Errors
    /// As [`Sessions::sweep`]. What is elsewhere and not to be trusted is passed over.
    pub fn sweep_anywhere(
        environment: &Environment,
        running: &[String],
    ) -> Result<Vec<String>, SessionError> {
        let own = Self::of(environment);
        let mut swept = own.sweep(running)?;
        for place in std::iter::once(own).chain(Self::elsewhere(environment)) {
            swept.extend(place.sweep(running).unwrap_or_default());
            for told in place.told().unwrap_or_default() {
                if told.was_killed() && std::fs::remove_file(&told.word).is_ok() {
                    swept.push(told.sessions.how_it_ended(&told.name));
                }
            }
        }
        swept.dedup();
        Ok(swept)
    }
}
