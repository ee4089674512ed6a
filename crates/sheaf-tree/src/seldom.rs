//! Warnings of what a node may do again and again: they would push all else out of a log.
use rustc_hash::FxHashMap;
use std::time::{Duration, Instant};

/// How long further warnings of a node are counted only.
const WARNED_TIME: Duration = Duration::from_secs(60);

/// When nodes were warned of last, and how many warnings there were since.
#[derive(Debug, Default)]
pub struct Seldom(FxHashMap<u32, (Instant, u64)>);

impl Seldom {
    /// Warns of a node with this text, or counts it with the next.
    pub fn warn(&mut self, node: u32, text: &str) {
        if let Some(before) = self.add(node, Instant::now()) {
            let more = if before > 0 { format!(", {before} such since") } else { String::new() };
            tracing::warn!(node, "{text}{more}");
        }
    }

    /// How many there were since the last that was said, if this one is to be said.
    fn add(&mut self, node: u32, now: Instant) -> Option<u64> {
        match self.0.get_mut(&node) {
            Some((said, more)) if now.duration_since(*said) < WARNED_TIME => {
                *more += 1;
                None
            }
            _ => Some(self.0.insert(node, (now, 0)).map_or(0, |(_, more)| more)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_one_node_are_counted_for_a_while() {
        let (mut warned, now) = (Seldom::default(), Instant::now());
        assert_eq!((warned.add(3, now), warned.add(4, now)), (Some(0), Some(0)));
        assert_eq!((0..900).filter_map(|_| warned.add(3, now)).count(), 0);
        assert_eq!(warned.add(3, now + WARNED_TIME), Some(900));
        assert_eq!(warned.add(3, now + WARNED_TIME * 2), Some(0));
    }
}
