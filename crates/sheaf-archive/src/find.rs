//! The expressions of `find`: tests of a file, what is done with it, and how they are joined.
//!
//! What is not said of a test is as in GNU find: sizes and ages are rounded up or down as there, `+5` is
//! more than five, `-5` less, and tests that stand together are joined by `and`.
mod file;
mod format;
mod parse;
mod regex;
mod test;

pub use file::{FindFile, FindPlace};

use crate::walk::FileFacts;
use sheaf_core::files::Timestamp;
use std::ops::RangeInclusive;
use std::sync::Arc;
use test::FindTest;

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FindError(String);

/// One of the times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindTime {
    /// Last access.
    Accessed,
    /// Last change of the inode.
    Changed,
    /// Last change of the content.
    Modified,
}

/// Who knows numbers of owners, and times.
pub trait FindNames {
    /// The number of a user's name.
    fn uid(&self, name: &str) -> Option<u32>;
    /// The number of a group's name.
    fn gid(&self, name: &str) -> Option<u32>;
    /// The time that a text says.
    fn time(&self, text: &str) -> Option<Timestamp>;
    /// A time of the file that a path leads to.
    fn time_of(&self, path: &str, which: FindTime) -> Option<Timestamp>;
}

/// How what `-printf` and `-ls` print is written. Any number of threads ask at once.
pub trait FindWords: Send + Sync {
    /// Writes a name or a part of one behind what is there.
    fn put_name(&self, name: &[u8], out: &mut Vec<u8>);
    /// The name of a user, or the number where there is none.
    fn user(&self, uid: u32) -> String;
    /// The name of a group, or the number where there is none.
    fn group(&self, gid: u32) -> String;
    /// A time as find's `-printf` has it for this letter; `c` with parts of seconds, `C` without.
    fn time(&self, time: Timestamp, letter: char) -> String;
    /// A time as `ls -l` has it.
    fn list_time(&self, time: Timestamp) -> String;
}

/// What an expression is read with.
pub struct FindSettings<'a> {
    /// Who knows numbers of owners, and times.
    pub names: &'a dyn FindNames,
    /// How what is formatted is written.
    pub words: Arc<dyn FindWords>,
    /// The time that ages are reckoned from.
    pub now: Timestamp,
}

/// What is asked of a file only where it counts.
pub trait FindAsks<E> {
    /// Whether a directory has no names.
    ///
    /// # Errors
    /// Why that is not known.
    fn is_empty(&mut self) -> Result<bool, E>;

    /// What a symbolic link says.
    ///
    /// # Errors
    /// Why that is not known.
    fn link(&mut self) -> Result<Vec<u8>, E>;

    /// What a symbolic link leads to, as `%Y` has it: a letter, `N` where there is nothing, `L` for a
    /// link that leads to itself and `?` for what cannot be looked at.
    fn target(&mut self) -> char;

    /// Removes the file. Whether it is gone; why it is not is told by who is asked.
    fn remove(&mut self) -> bool;
}

/// One thing to print of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindPrint {
    /// Its path with this byte behind it, a newline or a NUL.
    Path(u8),
    /// [`FindOutcome::text`] up to here, from where the one before it ends.
    Text(usize),
}

/// What comes of an expression for a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindOutcome {
    /// What to print, in its order.
    pub prints: Vec<FindPrint>,
    /// What was formatted.
    pub text: Vec<u8>,
    /// It is not to be gone into.
    pub is_pruned: bool,
    /// It is the last one.
    pub quits: bool,
}

impl FindOutcome {
    /// Makes it that of another file, keeping what room it has.
    pub fn clear(&mut self) {
        self.prints.clear();
        self.text.clear();
        (self.is_pruned, self.quits) = (false, false);
    }

    /// Each thing to print: a byte that ends the path, or a text.
    pub fn each(&self) -> impl Iterator<Item = Result<u8, &[u8]>> {
        let mut from = 0;
        self.prints.iter().map(move |print| match print {
            FindPrint::Path(end) => Ok(*end),
            FindPrint::Text(to) => Err(&self.text[std::mem::replace(&mut from, *to)..*to]),
        })
    }
}

/// An expression.
#[derive(Debug)]
pub struct FindExpression {
    test: FindTest,
    facts: FileFacts,
    /// Levels that are told, and of which the last is not gone into.
    depths: (usize, usize),
    /// Whether a file that passes is printed, as nothing else is said to be done with it.
    prints: bool,
    /// A directory is told behind what is in it.
    contents_first: bool,
    /// What is on another file system than where it begins is not gone into.
    one_file_system: bool,
    /// Words of what it has, for who cannot do all of it.
    has: FindHas,
}

/// Words of an expression that not everybody can do something with.
#[derive(Clone, Debug, Default)]
struct FindHas {
    unarchived: Option<String>,
    formats: Option<String>,
    empty: bool,
    deletes: bool,
    prunes: bool,
    quits: bool,
}

impl FindExpression {
    /// Reads the words of an expression; none are one that every file passes.
    ///
    /// # Errors
    /// When it is none: what is wrong, in words.
    pub fn new(words: &[String], settings: &FindSettings<'_>) -> Result<Self, FindError> {
        parse::expression(words, settings)
    }

    /// What it has to know of files.
    #[must_use]
    pub fn facts(&self) -> FileFacts {
        self.facts
    }

    /// Levels that are gone into at most.
    #[must_use]
    pub fn depth_max(&self) -> usize {
        self.depths.1
    }

    /// Whether a directory comes behind what is in it.
    #[must_use]
    pub fn contents_first(&self) -> bool {
        self.contents_first
    }

    /// Whether what is on another file system than where the search begins is not gone into.
    #[must_use]
    pub fn one_file_system(&self) -> bool {
        self.one_file_system
    }

    /// Whether files are removed.
    #[must_use]
    pub fn deletes(&self) -> bool {
        self.has.deletes
    }

    /// Whether there may be a last file before the end.
    #[must_use]
    pub fn quits(&self) -> bool {
        self.has.quits
    }

    /// Whether a directory of this is asked for by its descriptor when all in it has been told.
    #[must_use]
    pub fn asks_of_directories(&self) -> bool {
        self.has.deletes || self.has.empty
    }

    /// Whether all files are gone through, so that reading ahead is of use.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.depths.1 == usize::MAX && !self.has.prunes && !self.has.quits
    }

    /// The first word that formats what is printed, with which there are no records.
    #[must_use]
    pub fn formats(&self) -> Option<&str> {
        self.has.formats.as_deref()
    }

    /// Whether all it asks for is known of archived files.
    ///
    /// # Errors
    /// What is not, in words.
    pub fn check_archived(&self) -> Result<(), FindError> {
        if self.has.deletes {
            let text = "-delete: what is archived is removed by find … -print0 | xargs -0 sheaf archive rm";
            return Err(FindError(text.to_owned()));
        }
        match &self.has.unarchived {
            Some(word) => Err(FindError(format!("{word}: that is not archived"))),
            None => Ok(()),
        }
    }

    /// Whether it can be sent to hosts, where nothing is removed.
    ///
    /// # Errors
    /// What is in the way, in words.
    pub fn check_hosts(&self) -> Result<(), FindError> {
        if self.has.deletes {
            let text = "-delete: not on hosts; sheaf archive rm removes there what it is given";
            return Err(FindError(text.to_owned()));
        }
        Ok(())
    }

    /// Tests a file, and says in `outcome`, which is clear, what comes of it.
    ///
    /// # Errors
    /// Those of `asks`. What was to be done until then is in `outcome`.
    pub fn test<E>(
        &self,
        file: &FindFile<'_>,
        asks: &mut dyn FindAsks<E>,
        outcome: &mut FindOutcome,
    ) -> Result<(), E> {
        let told: RangeInclusive<usize> = self.depths.0..=self.depths.1;
        let is_told = told.contains(&file.depth);
        if is_told && self.test.passes(file, asks, outcome)? && self.prints && !outcome.quits {
            outcome.prints.push(FindPrint::Path(b'\n'));
        }
        Ok(())
    }
}
