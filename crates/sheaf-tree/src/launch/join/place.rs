//! What a parent says first, and the way to the one that says who a node is.
use super::invitation::{ANCESTORS_MAX, Invitation, Over};
use super::search::{arrive, arrive_within};
use super::serve::ServeError;
use crate::link::tls::Keys;
use crate::link::wire::{Channel, Wire, WireCaller};
use crate::link::{Ancestor, is_sound};
use crate::proto::control::{self, Assign, PROTOCOL_VERSION};
use crate::proto::frame::{HEADER_BYTES, Header, Kind};
use std::io;
use std::time::Duration;

/// How long the parent may take to say who this node is, or where to go: it may wait for the node
/// that is to be in between.
pub(super) const ASSIGN_TIMEOUT: Duration = Duration::from_secs(900);
/// How often a node tries again that was sent to one which is not there, and the pause before.
const TURNS_MAX: u32 = 20;
const TURN_PAUSE: Duration = Duration::from_millis(500);

/// What a parent says first.
pub(super) enum SaidPlace {
    /// Who this node is.
    Assign(Box<Assign>),
    /// Its place is below another one.
    Go(Ancestor),
}

/// Goes to the parent of an invitation, and to whom that sends it, until one says who this node is.
/// Gives also the ancestors, the parent first.
pub(super) async fn find_place(
    invitation: &Invitation,
    keys: Option<&Keys>,
) -> Result<(Channel, Box<Assign>, Vec<Ancestor>), ServeError> {
    let Invitation { secret, rank, host, .. } = invitation;
    let caller = WireCaller { secret, keys, rank: *rank, host, user: rustix::process::geteuid() };
    let mut ancestors = invitation.ancestors.clone();
    let mut turned_away = 0;
    let mut first = match invitation.over {
        Over::DoorWithin(limit) => {
            Some(arrive_within(&caller, &ancestors, limit).await.map_err(ServeError::Unreached)?)
        }
        Over::Door | Over::Channel => None,
    };
    loop {
        let arrived = match first.take() {
            Some(link) => Ok(link),
            None => arrive(&caller, &ancestors).await,
        };
        let heard = match arrived {
            Ok(link) => hear(link).await,
            Err(error) => Err(error.into()),
        };
        match heard {
            Ok((link, SaidPlace::Assign(assign))) => return Ok((link, assign, ancestors)),
            Ok((_, SaidPlace::Go(to))) if ancestors.len() < ANCESTORS_MAX => {
                ancestors.insert(0, to)
            }
            Ok((_, SaidPlace::Go(_))) => return Err(ServeError::Assignment),
            // Whoever sent it here finds out as well, and takes it in itself.
            Err(ServeError::Link(error))
                if ancestors.len() > invitation.ancestors.len() && turned_away < TURNS_MAX =>
            {
                ancestors.remove(0);
                turned_away += 1;
                tracing::debug!(
                    %error,
                    "the node that it was sent to is not there, time {turned_away} of {TURNS_MAX}; \
                     again in {} ms",
                    TURN_PAUSE.as_millis()
                );
                tokio::time::sleep(TURN_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Waits for the first frame of a parent.
pub(super) async fn hear(link: Channel) -> Result<(Channel, SaidPlace), ServeError> {
    let mut wire = Wire::from_channel(link)?;
    let said = tokio::time::timeout(ASSIGN_TIMEOUT, hear_first(&mut wire)).await;
    let said = said.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok((wire.into_channel(), said))
}

async fn hear_first(wire: &mut Wire) -> Result<SaidPlace, ServeError> {
    let head = wire.read_exact(HEADER_BYTES).await?;
    let header = Header::parse(&head).ok().flatten().ok_or(ServeError::Assignment)?;
    let body = wire.read_exact(header.body_len as usize).await?;
    said(&header, &body)
}

/// What the first frame of a parent means.
pub(super) fn said(header: &Header, body: &[u8]) -> Result<SaidPlace, ServeError> {
    match header.kind {
        Kind::Go => {
            let to: Ancestor =
                control::decode(Kind::Go, body).map_err(|_| ServeError::Assignment)?;
            if is_sound(&to.address) { Ok(SaidPlace::Go(to)) } else { Err(ServeError::Assignment) }
        }
        Kind::Assign => {
            let assign: Assign =
                control::decode(Kind::Assign, body).map_err(|_| ServeError::Assignment)?;
            if assign.version != PROTOCOL_VERSION {
                return Err(ServeError::Version { theirs: assign.version });
            }
            Ok(SaidPlace::Assign(Box::new(assign)))
        }
        _ => Err(ServeError::Assignment),
    }
}
