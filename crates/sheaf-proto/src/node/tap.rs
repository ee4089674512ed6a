//! Taps: a service at a node that is no leaf sees what its streams pass on, and may keep something
//! of it.
//!
//! Each combined wave passes a node once, whatever becomes of the links above it, and each leaf
//! counts in a wave there once: so a sum that a tap keeps has everything once. (What comes again
//! after a failure, combined with what was not there before, cannot be taken apart: it is not
//! shown, and the root is told when the stream is over.) A node that goes as it should gives the
//! state of its taps to its parent, which takes it in once; where a node is lost, the root is told
//! that its state is.
use super::Node;
use crate::control::{self, Notice, Open};
use crate::coverage::Coverage;
use crate::filter::FilterError;
use crate::frame::{Header, Kind, Violation};
use crate::links::LinkId;
use crate::own;
use crate::stream::WaveSet;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use sheaf_core::{RangeSet, lock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// The largest state that a tap gives away.
pub const STATE_BYTES_MAX: usize = 1 << 20;

/// Streams that are closed here of which it is remembered what was shown: one that an orphan could
/// not keep, or that is opened anew, brings again what had not got to the root.
const RESTING_MAX: usize = 1024;

/// Waves of one stream of which it is remembered who was shown; of earlier ones, that they were.
const SHOWN_MAX: usize = 4096;

/// States that a node has taken in are remembered, up to so many.
const ABSORBED_MAX: usize = 1 << 16;

/// A combined wave, or a part of one, on its way up.
#[derive(Debug, Clone, Copy)]
pub struct Passing<'a> {
    /// The stream.
    pub stream: u32,
    /// The wave.
    pub wave: u64,
    /// The packets' tag.
    pub tag: i32,
    /// Whose data it is.
    pub ok: &'a RangeSet,
    /// Who failed or was silent; `None`: nobody.
    pub coverage: Option<&'a Coverage>,
    /// The data, as it goes on; `None` when nobody had any.
    pub payload: Option<&'a [u8]>,
    /// Nothing more comes of this wave.
    pub last: bool,
}

/// What a service does with the waves that pass a node. Called while the node works: it must not
/// block.
pub trait Tap: Send {
    /// A wave of one of its streams goes on.
    fn passing(&mut self, passing: &Passing<'_>);

    /// How many bytes it keeps. One that keeps more than could be given away
    /// ([`STATE_BYTES_MAX`]) is dropped, sees nothing more, and the root is told that what it kept
    /// is lost.
    fn bytes(&self) -> usize;

    /// Whether it has been dropped, for that or because it has panicked.
    fn is_spent(&self) -> bool {
        false
    }

    /// What the node that takes over is to have, at most [`STATE_BYTES_MAX`]; `None`: nothing.
    fn state(&mut self) -> Option<Vec<u8>>;

    /// Takes in what another node has given away: that of rank `from`. Called once for each node
    /// that goes.
    ///
    /// # Errors
    /// When the bytes are no state of this service.
    fn absorb(&mut self, from: u32, state: &[u8]) -> Result<(), FilterError>;
}

/// A tap, shared by the node and its streams.
pub type SharedTap = Arc<Mutex<dyn Tap>>;

/// The state of one tap of a node that goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TapState {
    service: String,
    rank: u32,
    /// Which of the processes that were in its place.
    life: u64,
    /// Other nodes whose states it has taken in, of which the nodes above have not heard yet that
    /// they have gone.
    with: RangeSet,
    /// `None`: there is nothing that another node needs.
    bytes: Option<Vec<u8>>,
}

/// A tap at one stream.
pub(crate) struct TapLine {
    tap: SharedTap,
    /// Who was shown in which wave, and waves before these. (Also what the root has may come
    /// again: from those who have not heard that.)
    shown: BTreeMap<u64, RangeSet>,
    older: WaveSet,
    /// Something could not be shown, because it holds what was shown already.
    missed: bool,
}

pub(crate) type SharedLine = Arc<Mutex<TapLine>>;

impl TapLine {
    fn new(tap: SharedTap) -> Self {
        Self { tap, shown: BTreeMap::new(), older: WaveSet::default(), missed: false }
    }

    /// Shows what goes on, but nobody's data twice.
    pub fn show(&mut self, passing: &Passing<'_>) {
        if self.older.contains(passing.wave) {
            self.missed |= !passing.ok.is_empty();
            return;
        }
        let shown = self.shown.entry(passing.wave).or_default();
        if !shown.is_disjoint(passing.ok) {
            // It cannot be taken apart.
            self.missed |= !passing.ok.is_subset(shown);
            return;
        }
        shown.union_with(passing.ok);
        if self.shown.len() > SHOWN_MAX
            && let Some((oldest, _)) = self.shown.pop_first()
        {
            self.older.insert(oldest, oldest);
        }
        lock(&self.tap).passing(passing);
    }
}

/// The taps of a node.
#[derive(Default)]
pub(super) struct Taps {
    /// By the name of the service.
    all: Vec<(String, SharedTap)>,
    /// By stream, with its number and the service.
    lines: FxHashMap<u32, (u64, String, SharedLine)>,
    /// Streams that are closed here, oldest first.
    resting: VecDeque<u32>,
    absorbed: FxHashSet<(String, u32, u64)>,
    /// Those that have been dropped, as the root was told.
    spent: FxHashSet<String>,
}

impl Taps {
    pub fn get(&self, service: &str) -> Option<&SharedTap> {
        self.all.iter().find(|(have, _)| have == service).map(|(_, tap)| tap)
    }

    /// The tap at a stream that is opened here, for the first time or anew.
    pub fn line(&mut self, id: u32, open: &Open) -> Option<SharedLine> {
        self.resting.retain(|resting| *resting != id);
        let tap = Arc::clone(self.get(&open.service)?);
        let (number, service) = (open.number, open.service.clone());
        // Identifiers are used again. The root's number shows whether this is still the same
        // stream.
        if let Some((have, _, line)) = self.lines.get(&id)
            && *have == number
        {
            return Some(Arc::clone(line));
        }
        let line = Arc::new(Mutex::new(TapLine::new(tap)));
        self.lines.insert(id, (number, service, Arc::clone(&line)));
        Some(line)
    }

    /// The stream is closed here; it may be opened again. Gives the stream of which nothing is
    /// remembered for that.
    pub fn rest(&mut self, id: u32) -> Option<u32> {
        self.resting.retain(|resting| *resting != id);
        self.resting.push_back(id);
        if self.resting.len() > RESTING_MAX { self.resting.pop_front() } else { None }
    }

    /// The stream is over. Gives the service if it has missed something.
    pub fn close(&mut self, id: u32) -> Option<String> {
        let (_, service, line) = self.lines.remove(&id)?;
        let missed = lock(&line).missed;
        missed.then_some(service)
    }
}

impl Node {
    /// At a node that is no leaf: streams of this service that are opened from now on pass by this
    /// tap.
    pub fn add_tap(&mut self, service: &str, tap: SharedTap) {
        self.taps.all.retain(|(have, _)| have != service);
        self.taps.all.push((service.to_owned(), tap));
    }

    /// At a node that is no leaf and not the root: it goes. Its parent is given what its taps keep,
    /// its children look for parents of their own, and it ends when what is queued is written.
    /// `life` tells this process from others that were in its place.
    pub fn retire(&mut self, life: u64) {
        // First: a spent tap gives no state, which would look as if it had kept nothing.
        self.tell_of_spent_taps();
        let (mut frames, mut too_large) = (Vec::new(), Vec::new());
        let with = self.given_here();
        for (service, tap) in &self.taps.all {
            let mut bytes = lock(tap).state();
            if bytes.as_ref().is_some_and(|bytes| bytes.len() > STATE_BYTES_MAX) {
                too_large.push(service.clone());
                bytes = None;
            }
            let (service, rank, with) = (service.clone(), self.config.rank, with.clone());
            let state = TapState { service, rank, life, with, bytes };
            frames.push(control::control(Header::new(Kind::State), &state));
        }
        if let Some(parent) = self.recovery.parent.filter(|&parent| self.links[parent].is_alive()) {
            for frame in &frames {
                self.links.send(parent, frame);
            }
        }
        too_large.iter().for_each(|service| self.state_lost(self.config.rank, service));
        self.disband();
    }

    /// Nodes below that went, and whose states are here, as far as it is not said that they have
    /// gone.
    pub(super) fn given_here(&self) -> RangeSet {
        let mut given = RangeSet::new();
        for (_, link) in self.links.down().filter(|(_, link)| !link.gave.is_empty()) {
            given.union_with(&own::ranks(link.leaves()).intersection(&link.gave));
        }
        given
    }

    /// A stream is closed here.
    pub(super) fn rest_line(&mut self, id: u32) {
        self.tell_of_spent_taps();
        if let Some(oldest) = self.taps.rest(id) {
            self.close_line(oldest);
        }
    }

    /// A stream is over, and with it what its tap remembers of it.
    pub(super) fn close_line(&mut self, id: u32) {
        if let Some(service) = self.taps.close(id) {
            self.state_lost(self.config.rank, &service);
        }
        self.tell_of_spent_taps();
    }

    /// Tells the root of taps that have been dropped.
    pub(super) fn tell_of_spent_taps(&mut self) {
        let mut spent = Vec::new();
        for (service, tap) in &self.taps.all {
            if lock(tap).is_spent() && self.taps.spent.insert(service.clone()) {
                spent.push(service.clone());
            }
        }
        spent.iter().for_each(|service| self.state_lost(self.config.rank, service));
    }

    /// A child goes, and gives away what one of its taps keeps.
    ///
    /// May come twice, over two links that one node had: the second is passed over. Afterwards it
    /// is part of this node's own, and goes with it.
    pub(super) fn on_state(&mut self, link: LinkId, body: &[u8]) -> Result<(), Violation> {
        let state: TapState = control::decode(Kind::State, body)?;
        let len = state.bytes.as_ref().map_or(0, Vec::len);
        if state.rank != self.links[link].rank || len > STATE_BYTES_MAX {
            return Err(Violation::Bound(
                "a node gives away a state that is not its own, or too large",
            ));
        }
        if self.recovery.disbanded {
            // Its own has been given away: the nodes above find out that this one's is not in it.
            return Ok(());
        }
        // Recorded before every return below: the node has retired properly, and its state must not
        // be reported as lost when its link closes.
        let gave = &mut self.links[link].gave;
        gave.insert(state.rank);
        gave.union_with(&state.with);
        let Some(bytes) = state.bytes else { return Ok(()) };
        let Some(tap) = self.taps.get(&state.service).cloned() else {
            self.state_lost(state.rank, &state.service);
            return Ok(());
        };
        // Bounds the memory. A repetition follows soon, over the other link of the same node.
        if self.taps.absorbed.len() >= ABSORBED_MAX {
            self.taps.absorbed.clear();
        }
        if !self.taps.absorbed.insert((state.service.clone(), state.rank, state.life)) {
            return Ok(());
        }
        let absorbed = lock(&tap).absorb(state.rank, &bytes);
        if absorbed.is_err() {
            self.state_lost(state.rank, &state.service);
        }
        Ok(())
    }

    /// A child is given up, and with it these nodes' own leaves: what the taps of nodes that are no
    /// leaves kept is lost, unless it was given away. Several may go at once: one whose parent goes
    /// before it could say so is found missing further up.
    pub(super) fn states_lost(&mut self, link: LinkId, lost: &RangeSet) {
        // The own leaf of this node goes with it.
        if self.links[link].is_inside() || self.taps.all.is_empty() {
            return;
        }
        let ranks = own::ranks(lost).difference(&self.links[link].gave);
        let services: Vec<String> =
            self.taps.all.iter().map(|(service, _)| service.clone()).collect();
        for rank in ranks.iter() {
            services.iter().for_each(|service| self.state_lost(rank, service));
        }
    }

    pub(super) fn state_lost(&mut self, rank: u32, service: &str) {
        let lost = Notice::StateLost { by: self.config.rank, rank, service: service.to_owned() };
        self.notice(Header::new(Kind::Notice), lost);
    }
}
