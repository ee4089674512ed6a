//! Searching a long file on a thread of its own.
//!
//! The engine goes through a file in one call, while an answer has to be sent on whenever it is
//! long enough. So the engine works aside, and what it finds comes in pieces of bounded size; it
//! waits when these are not taken. Where pieces end depends on the file alone: equal files give
//! equal pieces.
use super::Engine;
use crate::entry::{Entry, EntryKind, EntryStats, Sink};
use sheaf_core::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// A piece is sent on with so many bytes of text, or so many entries.
const PIECE_BYTES: usize = 256 << 10;
const PIECE_ENTRIES: usize = 4096;

/// Pieces that wait to be taken.
const PIECES_MAX: usize = 4;

/// How often it is looked whether the file is still being read while nothing is found.
const LOOK: Duration = Duration::from_millis(100);

/// A search under way.
pub(super) struct Aside {
    path: Vec<u8>,
    pieces: Receiver<AsidePiece>,
    reading: Arc<AsideReading>,
    /// So many bytes had been read at the last look.
    bytes: u64,
}

/// What the search came to.
pub(super) enum AsideProgress {
    /// It goes on.
    More,
    /// It is over: the engine, and whether to go on with other files.
    Done(Box<Engine>, ControlFlow<()>),
    /// The answer takes no more, or the search broke off, which was said.
    Broken,
}

enum AsidePiece {
    Found(FoundAside),
    Done(Box<Engine>, ControlFlow<()>),
}

#[derive(Default)]
struct AsideReading {
    bytes: AtomicU64,
    /// Nobody waits for it any more.
    stopped: AtomicBool,
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.reading.stopped.store(true, Ordering::Relaxed);
    }
}

impl Aside {
    /// Begins to search.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn start(engine: Engine, file: File, path: &[u8]) -> io::Result<Self> {
        Self::with_pieces(engine, file, path, PIECE_BYTES)
    }

    fn with_pieces(
        mut engine: Engine,
        source: impl Read + Send + 'static,
        path: &[u8],
        piece_bytes: usize,
    ) -> io::Result<Self> {
        let (out, pieces) = sync_channel(PIECES_MAX);
        let reading = Arc::new(AsideReading::default());
        let (watched, name) =
            (Watched { inner: source, reading: Arc::clone(&reading) }, path.to_vec());
        std::thread::Builder::new().name("grep".to_owned()).spawn(move || {
            let mut sink = Pieces { out, piece_bytes, found: FoundAside::default() };
            let flow = engine.search_reader(watched, &name, &mut sink);
            // Who has gone does not miss it.
            let _ = sink.flush();
            let _ = sink.out.send(AsidePiece::Done(Box::new(engine), flow));
        })?;
        Ok(Self { path: path.to_vec(), pieces, reading, bytes: 0 })
    }

    /// Takes in one piece; comes back without one while the file is being read. A file that cannot
    /// be read any further holds the caller up, as if it had read itself.
    pub fn step(&mut self, answer: &mut dyn Sink) -> AsideProgress {
        loop {
            match self.pieces.recv_timeout(LOOK) {
                Ok(AsidePiece::Found(found)) => {
                    return match found.give(&self.path, answer) {
                        ControlFlow::Continue(()) => AsideProgress::More,
                        ControlFlow::Break(()) => AsideProgress::Broken,
                    };
                }
                Ok(AsidePiece::Done(engine, flow)) => return AsideProgress::Done(engine, flow),
                // The engine has panicked: else its last piece says that it is done.
                Err(RecvTimeoutError::Disconnected) => {
                    answer.error(&self.path, Errno::IO);
                    return AsideProgress::Broken;
                }
                Err(RecvTimeoutError::Timeout) => {
                    let bytes = self.reading.bytes.load(Ordering::Relaxed);
                    if std::mem::replace(&mut self.bytes, bytes) != bytes {
                        return AsideProgress::More;
                    }
                }
            }
        }
    }
}

/// Counts what is read, until nobody waits any more.
struct Watched<R> {
    inner: R,
    reading: Arc<AsideReading>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.reading.stopped.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(Errno::CANCELED.0));
        }
        let got = self.inner.read(buffer)?;
        self.reading.bytes.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

/// What was found of one file since the last piece.
#[derive(Default)]
struct FoundAside {
    /// Kind, number, and where the text ends in `texts`.
    entries: Vec<(EntryKind, Option<u64>, usize)>,
    texts: Vec<u8>,
    errors: Vec<Errno>,
    stats: Option<EntryStats>,
}

impl FoundAside {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.errors.is_empty() && self.stats.is_none()
    }

    fn give(self, path: &[u8], answer: &mut dyn Sink) -> ControlFlow<()> {
        answer.path(path);
        let mut begin = 0;
        for (kind, number, end) in self.entries {
            answer.entry(Entry { kind, number, text: &self.texts[begin..end] })?;
            begin = end;
        }
        self.errors.into_iter().for_each(|errno| answer.error(path, errno));
        self.stats.into_iter().for_each(|stats| answer.stats(stats));
        ControlFlow::Continue(())
    }
}

/// Where the engine puts what it finds.
struct Pieces {
    out: SyncSender<AsidePiece>,
    piece_bytes: usize,
    found: FoundAside,
}

impl Pieces {
    fn flush(&mut self) -> ControlFlow<()> {
        if self.found.is_empty() {
            return ControlFlow::Continue(());
        }
        match self.out.send(AsidePiece::Found(std::mem::take(&mut self.found))) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

impl Sink for Pieces {
    /// There is one file, and who takes the pieces knows it.
    fn path(&mut self, _: &[u8]) {}

    fn entry(&mut self, entry: Entry<'_>) -> ControlFlow<()> {
        let found = &mut self.found;
        found.texts.extend_from_slice(entry.text);
        found.entries.push((entry.kind, entry.number, found.texts.len()));
        if found.texts.len() >= self.piece_bytes || found.entries.len() >= PIECE_ENTRIES {
            return self.flush();
        }
        ControlFlow::Continue(())
    }

    fn error(&mut self, _: &[u8], errno: Errno) {
        self.found.errors.push(errno);
    }

    fn stats(&mut self, stats: EntryStats) {
        self.found.stats.get_or_insert_default().add(stats, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Answer;
    use crate::grep::{GrepOptions, GrepOutput};
    use proptest::prelude::*;

    fn options(output: GrepOutput) -> GrepOptions {
        GrepOptions {
            patterns: vec!["a".to_owned()],
            output,
            stats: true,
            ..GrepOptions::default()
        }
    }

    /// Takes all pieces, and counts them.
    fn whole(mut aside: Aside, answer: &mut Answer) -> (usize, ControlFlow<()>) {
        for steps in 1.. {
            match aside.step(answer) {
                AsideProgress::More => {}
                AsideProgress::Done(_, flow) => return (steps, flow),
                AsideProgress::Broken => panic!("it broke off"),
            }
        }
        unreachable!("there is an end to every file")
    }

    proptest! {
        #[test]
        fn background_search_finds_the_same_as_inline_search(
            text in "[ab\n\u{0}]{0,200}",
            output in prop::sample::select(&[GrepOutput::Lines, GrepOutput::Parts, GrepOutput::Count, GrepOutput::PathsWith, GrepOutput::PathsWithout, GrepOutput::Quiet][..]),
            (number, each, after, lines_max) in (any::<bool>(), any::<bool>(), 0u32..2, prop::option::of(0u64..4)),
        ) {
            let options = GrepOptions { number, each, after, lines_max, ..options(output) };
            let mut expected = Answer::new(options.answer_form());
            let flow = options.compile().unwrap().search_reader(text.as_bytes(), b"/f", &mut expected);
            let mut answer = Answer::new(options.answer_form());
            let source = io::Cursor::new(text.clone());
            let aside = Aside::with_pieces(options.compile().unwrap(), source, b"/f", 8).unwrap();
            prop_assert_eq!(whole(aside, &mut answer).1, flow);
            prop_assert_eq!(answer.into_bytes(), expected.into_bytes());
        }
    }

    #[test]
    fn pieces_wait_until_they_are_taken_and_end_with_who_takes_them() {
        let options = options(GrepOutput::Lines);
        let text = "a\n".repeat(100 * PIECE_ENTRIES);
        let read = Arc::new(AtomicU64::new(0));
        struct Counting(io::Cursor<String>, Arc<AtomicU64>);
        impl Read for Counting {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let got = self.0.read(buffer)?;
                self.1.fetch_add(got as u64, Ordering::SeqCst);
                Ok(got)
            }
        }
        impl Drop for Counting {
            fn drop(&mut self) {
                self.1.fetch_add(1 << 40, Ordering::SeqCst);
            }
        }
        let source = Counting(io::Cursor::new(text.clone()), Arc::clone(&read));
        let mut aside =
            Aside::with_pieces(options.compile().unwrap(), source, b"/f", PIECE_BYTES).unwrap();
        let mut answer = Answer::new(options.answer_form());
        assert!(matches!(aside.step(&mut answer), AsideProgress::More));
        drop(aside);
        // The thread ends, although most of the file was not read.
        while read.load(Ordering::SeqCst) < 1 << 40 {
            std::thread::yield_now();
        }
        assert!(read.load(Ordering::SeqCst) - (1 << 40) < text.len() as u64 / 2);
    }
}
