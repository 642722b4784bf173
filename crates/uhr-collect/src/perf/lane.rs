//! One ring and all events that write into it.

use super::event::{Event, EventKind};
use super::ring::Ring;
use super::sys::Watch;

/// One ring and all events that write into it: those of one CPU, or of one thread.
#[derive(Debug)]
pub(super) struct Lane {
    /// The CPU, or -1 in a lane of one thread.
    pub(super) cpu: i32,
    pub(super) ring: Ring,
    /// The first owns the ring.
    events: Vec<Event>,
    /// Which event is asked whether there is something to read.
    watched: usize,
    /// All threads of this lane's sideband events, and all who inherited from them, have ended.
    pub(super) is_over: bool,
}

impl Lane {
    pub(super) fn new(cpu: i32, owner: Event, ring: Ring) -> Self {
        Self { cpu, ring, events: vec![owner], watched: 0, is_over: false }
    }

    pub(super) fn events(&self) -> &[Event] {
        &self.events
    }

    pub(super) fn add(&mut self, event: Event, number: usize, watch: &Watch) {
        self.events.push(event);
        if self.is_over {
            self.watch_next(number, watch);
        }
    }

    /// The watched event has ended. All events of a lane wake together, so any living one will do as the next; an
    /// ended one would wake us at once, again and again.
    pub(super) fn watch_next(&mut self, number: usize, watch: &Watch) {
        if !self.is_over
            && let Some(ended) = self.events.get(self.watched)
        {
            // Fails only for what is not watched, which is what we want.
            let _ = watch.remove(&ended.fd);
        }
        let living = |(_, event): &(usize, &Event)| event.kind == EventKind::Sideband;
        let next = self.events.iter().enumerate().skip(self.watched + 1).find(living);
        self.is_over = match next {
            Some((at, event)) => {
                self.watched = at;
                watch.add(&event.fd, number as u64).is_err()
            }
            None => {
                self.watched = self.events.len().saturating_sub(1);
                true
            }
        };
    }
}
