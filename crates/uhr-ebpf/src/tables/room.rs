//! Who has which part of a map that is filled in pieces.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

/// A program in the kernel that still reads a piece which was given up has ended long before.
const GRACE: Duration = Duration::from_millis(100);

/// The pieces that are free.
#[derive(Debug)]
pub(super) struct Room {
    /// By start, none touching another.
    free: BTreeMap<u32, u32>,
    given_up: VecDeque<(Instant, Range<u32>)>,
}

impl Room {
    pub(super) fn new(size: u32) -> Self {
        Self { free: BTreeMap::from([(0, size)]), given_up: VecDeque::new() }
    }

    /// Takes the first piece of this length.
    pub(super) fn take(&mut self, length: u32) -> Option<Range<u32>> {
        while self.given_up.front().is_some_and(|(since, _)| since.elapsed() > GRACE) {
            let (_, piece) = self.given_up.pop_front()?;
            self.put_back(piece);
        }
        let (&start, &free) = self.free.iter().find(|&(_, &free)| free >= length)?;
        self.free.remove(&start);
        if free > length {
            self.free.insert(start + length, free - length);
        }
        Some(start..start + length)
    }

    /// Gives a piece up; it is free after a while.
    pub(super) fn give_up(&mut self, piece: Range<u32>) {
        if !piece.is_empty() {
            self.given_up.push_back((Instant::now(), piece));
        }
    }

    fn put_back(&mut self, piece: Range<u32>) {
        let (mut start, mut end) = (piece.start, piece.end);
        if let Some((&below, &length)) = self.free.range(..start).next_back()
            && below + length == start
        {
            self.free.remove(&below);
            start = below;
        }
        if let Some(length) = self.free.remove(&end) {
            end += length;
        }
        self.free.insert(start, end - start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_again() {
        let mut room = Room::new(100);
        let pieces: Vec<_> = (0..10).map(|_| room.take(10).unwrap()).collect();
        assert!(room.take(1).is_none());
        for at in [1, 3, 2, 9, 0] {
            room.put_back(pieces[at].clone());
        }
        assert_eq!(room.free, BTreeMap::from([(0, 40), (90, 10)]));
        assert_eq!(room.take(35), Some(0..35));
        assert_eq!(room.take(10), Some(90..100));
        room.give_up(0..35);
        assert!(room.take(10).is_none(), "somebody may still read it");
    }
}
