//! What happened, in words: `node 2 / producer b: link stage/x -> log/000/017: EEXIST`.

use std::fmt;

use crate::fault::Call;

/// The newest events that are kept.
const EVENTS_MAX: usize = 1 << 16;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A call of a process, by its number.
    Call(usize, Call),
    /// Anything else.
    Note(String),
}

/// All that happened, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    pub(super) processes: Vec<String>,
    events: Vec<Event>,
    dropped: usize,
}

impl Story {
    pub(super) fn note(&mut self, what: String) {
        self.push(Event::Note(what));
    }

    pub(super) fn call(&mut self, process: usize, call: Call) {
        self.push(Event::Call(process, call));
    }

    fn push(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(event);
        } else {
            self.dropped += 1;
        }
    }

    /// The events, at most 65,536.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.events {
            match event {
                Event::Call(process, call) => writeln!(f, "{}: {call}", self.processes[*process])?,
                Event::Note(what) => writeln!(f, "-- {what}")?,
            }
        }
        if self.dropped > 0 {
            writeln!(f, "-- and {} events more", self.dropped)?;
        }
        Ok(())
    }
}
