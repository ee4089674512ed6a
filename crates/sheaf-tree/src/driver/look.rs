//! Looking whether an answer is there before the process sleeps until it comes.
//!
//! Where two processes exchange small packets, falling asleep and being woken again takes longer
//! than the answer. So the reader of a link whose answers have come at once several times in a row
//! lets others run, and looks again, for a short while. Whoever has looked in vain needs twice as
//! many such answers before it looks again: a peer that is busy, or far away, costs next to
//! nothing.
use crate::proto::Time;
use std::time::Duration;

/// For how long.
const LOOK_MAX: Duration = Duration::from_micros(20);
/// An answer that comes within this has come at once.
const QUICK_MAX: Duration = Duration::from_micros(50);
/// So many of them in a row call for it; and so many, at most, after it was in vain.
const NEED_MIN: u32 = 4;
const NEED_MAX: u32 = 4096;
/// What is longer is no exchange: the next that comes is its rest, or credit for it.
const SMALL_BYTES: usize = 32 << 10;

/// Whether it pays to look, on one link.
pub(super) struct Lookout {
    /// Answers in a row that have come at once.
    quick: u32,
    /// How many it takes.
    need: u32,
    /// When something was written that nothing has come after, and how much.
    wrote: Option<(Time, usize)>,
    /// When it began to look.
    since: Option<Time>,
    /// Something has come since this was last asked.
    has_come: bool,
}

impl Default for Lookout {
    fn default() -> Self {
        Self { quick: 0, need: NEED_MIN, wrote: None, since: None, has_come: false }
    }
}

impl Lookout {
    /// So many bytes were written.
    pub fn wrote(&mut self, now: Time, bytes: usize) {
        let before = self.wrote.map_or(0, |(_, bytes)| bytes);
        self.wrote = Some((now, bytes.saturating_add(before)));
    }

    /// So many bytes have come.
    pub fn came(&mut self, now: Time, bytes: usize) {
        let answers = |(wrote, asked): (Time, usize)| {
            now - wrote <= QUICK_MAX && asked.max(bytes) <= SMALL_BYTES
        };
        let is_quick = self.wrote.take().is_some_and(answers);
        self.quick = if is_quick { self.quick.saturating_add(1) } else { 0 };
        self.has_come = true;
        if self.since.take().is_some() && self.quick > 0 {
            self.need = NEED_MIN;
        }
    }

    /// Whether to look for what comes after the next that is written: once for each that has come.
    pub fn is_called(&mut self) -> bool {
        std::mem::take(&mut self.has_come) && self.pays()
    }

    fn pays(&self) -> bool {
        self.quick >= self.need
    }

    /// Whether to look now, or once more.
    pub fn goes_on(&mut self, now: Time) -> bool {
        if !self.pays() || self.wrote.is_none_or(|(_, bytes)| bytes > SMALL_BYTES) {
            return false;
        }
        let late = now - *self.since.get_or_insert(now) > LOOK_MAX;
        if late {
            (self.quick, self.need) = (0, (2 * self.need).min(NEED_MAX));
            self.since = None;
        }
        !late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link in an exchange.
    struct Exchange {
        look: Lookout,
        now: Time,
    }

    impl Exchange {
        fn new() -> Self {
            Self { look: Lookout::default(), now: Time(0) }
        }

        /// The answer to what was written comes so much later.
        fn answer(&mut self, micros: u64, bytes: usize) {
            self.look.wrote(self.now, 4096);
            self.now = self.now + Duration::from_micros(micros);
            self.look.came(self.now, bytes);
        }

        /// How often it looks when nothing comes.
        fn looks(&mut self) -> usize {
            self.look.wrote(self.now, 4096);
            let mut looks = 0;
            while self.look.goes_on(self.now) {
                looks += 1;
                self.now = self.now + Duration::from_micros(5);
            }
            looks
        }
    }

    #[test]
    fn only_answers_that_come_at_once_and_are_small_call_for_it() {
        let mut link = Exchange::new();
        for _ in 0..3 {
            link.answer(5, 4096);
        }
        assert!(!link.look.pays(), "these were few");
        link.answer(5, 4096);
        assert!(link.look.pays());
        link.answer(5000, 4096);
        assert!(!link.look.pays(), "it took its time");
        for _ in 0..9 {
            link.answer(5, 400 << 10);
        }
        assert!(!link.look.pays(), "it is no exchange");
        for _ in 0..9 {
            link.look.wrote(link.now, 400 << 10);
            link.answer(5, 31);
        }
        assert!(!link.look.pays(), "it is credit");
        for _ in 0..9 {
            link.look.came(link.now, 4096);
        }
        assert!(!link.look.pays(), "it is no answer");
    }

    #[test]
    fn link_polling_is_brief_and_rarer_after_each_failure() {
        let mut link = Exchange::new();
        let mut needs = Vec::new();
        for _ in 0..12 {
            let mut answers = 0;
            while !link.look.pays() {
                link.answer(5, 4096);
                answers += 1;
            }
            needs.push(answers);
            let looks = link.looks();
            assert!((1..=5).contains(&looks), "{looks}");
            assert!(!link.look.pays());
        }
        assert_eq!(needs[..4], [4, 8, 16, 32]);
        assert_eq!(needs[11], NEED_MAX);
        // What it has looked for and found begins anew.
        while !link.look.pays() {
            link.answer(5, 4096);
        }
        link.look.wrote(link.now, 4096);
        assert!(link.look.goes_on(link.now));
        link.look.came(link.now + Duration::from_micros(5), 4096);
        assert_eq!(link.look.need, NEED_MIN);
    }

    #[test]
    fn link_that_wrote_nothing_does_not_poll() {
        let mut link = Exchange::new();
        for _ in 0..9 {
            link.answer(5, 4096);
        }
        assert!(link.look.is_called() && !link.look.is_called(), "once for what has come");
        assert!(link.look.pays() && !link.look.goes_on(link.now));
    }
}
