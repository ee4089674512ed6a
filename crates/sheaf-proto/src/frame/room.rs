//! Room for the frames of long packets, used again once nothing refers to them any more.
use super::{HEADER_BYTES, Header};
use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of one room: some frames of the largest size.
const ROOM_BYTES: usize = 512 << 10;
/// Rooms kept: a window of the usual size lies in three of them at most, while the next frames go
/// into the fourth.
const ROOMS_MAX: usize = 4;

/// Where the frames of long packets are put together. Each frame in memory of its own would be
/// memory that the system takes back and gives out again, page by page.
#[derive(Debug, Default)]
pub(crate) struct FrameRooms {
    rooms: Vec<BytesMut>,
    /// The one that is filled.
    at: usize,
}

impl FrameRooms {
    /// A whole frame as bytes, its body in pieces.
    pub fn encode(&mut self, mut header: Header, body: &[&[u8]]) -> Bytes {
        let body_len: usize = body.iter().map(|piece| piece.len()).sum();
        header.body_len = body_len as u32;
        let room = self.with_space(HEADER_BYTES + body_len);
        room.put_slice(&header.to_bytes());
        body.iter().for_each(|piece| room.put_slice(piece));
        room.split().freeze()
    }

    /// What precedes a body of `body_len` bytes that lies elsewhere: the header, and the `first`
    /// bytes of the frame's body.
    pub fn head(&mut self, mut header: Header, first: &[u8], body_len: usize) -> Bytes {
        header.body_len = (first.len() + body_len) as u32;
        let room = self.with_space(HEADER_BYTES + first.len());
        room.put_slice(&header.to_bytes());
        room.put_slice(first);
        room.split().freeze()
    }

    /// Lets go of all room.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn with_space(&mut self, bytes: usize) -> &mut BytesMut {
        let has_space = |room: &BytesMut| room.capacity() - room.len() >= bytes;
        if !self.rooms.get(self.at).is_some_and(has_space) {
            let free = self.rooms.iter_mut().position(|room| room.try_reclaim(ROOM_BYTES));
            let fresh = || BytesMut::with_capacity(ROOM_BYTES.max(bytes));
            self.at = match free {
                Some(at) => at,
                None if self.rooms.len() < ROOMS_MAX => {
                    self.rooms.push(fresh());
                    self.rooms.len() - 1
                }
                // All of them are under way: another one in place of what was filled last.
                None => {
                    self.rooms[self.at] = fresh();
                    self.at
                }
            };
        }
        let room = &mut self.rooms[self.at];
        room.reserve(bytes);
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Kind, encode_parts};
    use std::collections::VecDeque;

    #[test]
    fn frames_come_out_as_without_it_and_rooms_are_used_again() {
        let mut rooms = FrameRooms::default();
        let mut under_way = VecDeque::new();
        for round in 0..200u32 {
            let body = vec![round as u8; 60_000];
            let header = Header { tag: round as i32, ..Header::new(Kind::Down) };
            let expected = encode_parts(Header { ..header }, &[b"ab", &body]);
            under_way.push_back((rooms.encode(header, &[b"ab", &body]), expected));
            if under_way.len() > 16 {
                let (frame, expected) = under_way.pop_front().unwrap();
                assert_eq!(frame, expected);
            }
            assert!(rooms.rooms.len() <= ROOMS_MAX);
        }
        // What is used up to here was made once.
        let begins: Vec<_> = rooms.rooms.iter().map(BytesMut::capacity).collect();
        assert!(begins.iter().all(|capacity| *capacity <= ROOM_BYTES), "{begins:?}");
        for (frame, expected) in under_way {
            assert_eq!(frame, expected);
        }
        rooms.clear();
        assert!(rooms.rooms.is_empty());
    }

    #[test]
    fn room_that_everybody_still_refers_to_is_left_alone() {
        let mut rooms = FrameRooms::default();
        let frames: Vec<Bytes> = (0..100u8)
            .map(|at| rooms.encode(Header::new(Kind::Down), &[&vec![at; 64 << 10]]))
            .collect();
        for (at, frame) in frames.iter().enumerate() {
            assert!(frame[HEADER_BYTES..].iter().all(|byte| usize::from(*byte) == at));
        }
    }
}
