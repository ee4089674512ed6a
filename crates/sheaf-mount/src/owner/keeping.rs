//! Names and attributes that clients keep.
//!
//! A client that keeps names (`fuse/names.rs`) is told before another client changes them, and the change waits until
//! that client has dropped them, for [`LOAN_TERM`] at most. Nothing is lent while it changes. An inode stands for its
//! attributes and, if it is a directory, for the names in it. Changes by programs of this host itself are not seen:
//! the system reports them only after they have happened.
use super::lending::LOAN_TERM;
use super::watching::ClientNews;
use rustc_hash::FxHashMap;
use sheaf_core::lock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Inodes that are lent to one client.
const LENT_MAX: usize = 1 << 16;

/// Device and inode.
pub(super) type InodeId = (u64, u64);

/// See the module.
#[derive(Default)]
pub(super) struct Keepers {
    count: AtomicUsize,
    state: Mutex<KeepersState>,
}

#[derive(Default)]
struct KeepersState {
    clients: Vec<Keeper>,
    /// Inodes that are changing, and how many changes are under way.
    changing: FxHashMap<InodeId, usize>,
}

struct Keeper {
    news: Arc<ClientNews>,
    /// The client's node of each inode.
    lent: FxHashMap<InodeId, u64>,
    /// Since when the client is known to have gone. It trusts what it keeps for a while.
    gone: Option<Instant>,
}

/// A change under way, until this is dropped.
pub(super) struct Changing<'a>(&'a Keepers, Vec<InodeId>);

impl Keepers {
    /// Whether no client keeps anything.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Lends what is looked at from now on. Whether that is possible.
    pub fn lend(&self, client: &Arc<ClientNews>, id: InodeId, node: u64) -> bool {
        let mut state = lock(&self.state);
        let KeepersState { clients, changing } = &mut *state;
        if changing.contains_key(&id) {
            return false;
        }
        let at = clients.iter().position(|keeper| Arc::ptr_eq(&keeper.news, client));
        let at = at.unwrap_or_else(|| {
            let now = Instant::now();
            clients.retain_mut(|keeper| {
                Arc::strong_count(&keeper.news) > 1
                    || now.duration_since(*keeper.gone.get_or_insert(now)) < LOAN_TERM
            });
            clients.push(Keeper { news: client.clone(), lent: FxHashMap::default(), gone: None });
            self.count.store(clients.len(), Ordering::SeqCst);
            clients.len() - 1
        });
        let lent = &mut clients[at].lent;
        let has_room = lent.len() < LENT_MAX || lent.contains_key(&id);
        if has_room {
            lent.insert(id, node);
        }
        has_room
    }

    /// The client does not know these any more.
    pub fn forgotten(&self, client: &Arc<ClientNews>, ids: &[InodeId]) {
        let mut state = lock(&self.state);
        let keeper = state.clients.iter_mut().find(|keeper| Arc::ptr_eq(&keeper.news, client));
        if let Some(keeper) = keeper {
            keeper.lent.retain(|id, _| !ids.contains(id));
        }
    }

    /// The nodes of those of these inodes that a client keeps.
    pub fn nodes_of(&self, client: &Arc<ClientNews>, ids: &[InodeId]) -> Vec<u64> {
        let state = lock(&self.state);
        let keeper = state.clients.iter().find(|keeper| Arc::ptr_eq(&keeper.news, client));
        keeper.map_or_else(Vec::new, |keeper| {
            ids.iter().filter_map(|id| keeper.lent.get(id).copied()).collect()
        })
    }

    /// Inodes are about to change. Waits until no client keeps them, except the one that changes them.
    pub fn changing(&self, own: &Arc<ClientNews>, ids: Vec<InodeId>) -> Changing<'_> {
        let mut told = Vec::new();
        {
            let mut state = lock(&self.state);
            let KeepersState { clients, changing } = &mut *state;
            for id in &ids {
                *changing.entry(*id).or_default() += 1;
                for keeper in clients.iter_mut().filter(|one| !Arc::ptr_eq(&one.news, own)) {
                    if let Some(node) = keeper.lent.remove(id) {
                        let number = keeper.news.tell_names(node);
                        told.extend(number.map(|number| (keeper.news.clone(), number)));
                    }
                }
            }
        }
        let until = Instant::now() + LOAN_TERM;
        told.iter().for_each(|(client, number)| client.wait(*number, until));
        Changing(self, ids)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        for id in &self.1 {
            if let Some(count) = state.changing.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    state.changing.remove(id);
                }
            }
        }
    }
}
