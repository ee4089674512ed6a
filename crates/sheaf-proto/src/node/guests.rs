//! At a root: how many streams other users than the session's have open, on all hosts together.

use crate::control::Caller;
use crate::{STREAMS_MAX, Violation};
use rustc_hash::FxHashMap;

/// The most streams of one client.
const CLIENT_STREAMS_MAX: u32 = 256;

/// The most streams of one user, over all hosts and clients.
const USER_STREAMS_MAX: u32 = STREAMS_MAX as u32 / 4;

/// The most streams of all such users: the rest is the session's user's.
const ALL_STREAMS_MAX: u32 = STREAMS_MAX as u32 / 4 * 3;

/// Counts, so that an opening costs the same however many streams there are.
#[derive(Debug, Default)]
pub(super) struct GuestStreams {
    /// The client and the user of each stream. Clients have the first of their numbers of streams.
    streams: FxHashMap<u32, (u32, u32)>,
    of_clients: FxHashMap<u32, u32>,
    of_users: FxHashMap<u32, u32>,
}

impl GuestStreams {
    /// A stream is opened by a client, which is counted if its user is not the session's.
    ///
    /// # Errors
    /// When the client, its user or all users together have too many.
    pub fn open(&mut self, stream: u32, client: u32, caller: &Caller) -> Result<(), Violation> {
        let Caller::User { uid, is_owner: false, .. } = caller else { return Ok(()) };
        let of = |counts: &FxHashMap<u32, u32>, id: u32| counts.get(&id).copied().unwrap_or(0);
        if of(&self.of_clients, client) >= CLIENT_STREAMS_MAX {
            return Err(Violation::Bound("too many open streams of one client"));
        }
        if of(&self.of_users, *uid) >= USER_STREAMS_MAX {
            return Err(Violation::Bound("too many open streams of one user"));
        }
        if self.streams.len() >= ALL_STREAMS_MAX as usize {
            return Err(Violation::Bound("too many open streams of users"));
        }
        self.streams.insert(stream, (client, *uid));
        *self.of_clients.entry(client).or_default() += 1;
        *self.of_users.entry(*uid).or_default() += 1;
        Ok(())
    }

    /// A stream is closed.
    pub fn close(&mut self, stream: u32) {
        let Some((client, uid)) = self.streams.remove(&stream) else { return };
        for (counts, id) in [(&mut self.of_clients, client), (&mut self.of_users, uid)] {
            if let Some(count) = counts.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ClientRights;

    fn user(uid: u32, is_owner: bool) -> Caller {
        let rights = ClientRights::FULL;
        Caller::User { uid, gid: uid, gids: vec![], host: "h1".to_owned(), is_owner, rights }
    }

    #[test]
    fn user_on_many_hosts_leaves_streams_to_others() {
        let mut guests = GuestStreams::default();
        let mut next = 0;
        let mut open = |guests: &mut GuestStreams, client, caller: &Caller| {
            next += 1;
            guests.open(next, client, caller).map(|()| next)
        };
        let mut of_user = Vec::new();
        let full = (0..).find_map(|client| {
            let opened = || open(&mut guests, client, &user(1001, false));
            let opened: Vec<_> = std::iter::repeat_with(opened).take(257).collect();
            of_user.extend(opened.iter().flatten());
            opened[..256].iter().any(Result::is_err).then(|| opened[255].clone())
        });
        assert_eq!(full, Some(Err(Violation::Bound("too many open streams of one user"))));
        assert_eq!(of_user.len(), STREAMS_MAX / 4);
        // Others are served, up to what is the owner's, which is not counted.
        for uid in 1002..1004 {
            for client in 0..64 {
                let id = uid * 1000 + client;
                assert!((0..256).all(|_| open(&mut guests, id, &user(uid, false)).is_ok()));
            }
        }
        assert!(open(&mut guests, 7, &user(1004, false)).is_err());
        for caller in [user(0, true), Caller::Owner] {
            assert!(open(&mut guests, 8, &caller).is_ok());
        }
        // What is closed is free again.
        of_user.into_iter().for_each(|stream| guests.close(stream));
        assert_eq!(guests.of_users.len(), 2);
        assert!(open(&mut guests, 0, &user(1001, false)).is_ok());
    }
}
