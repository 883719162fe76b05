//! The order of a producer's drafts: they are published in the order they were opened.
//!
//! - A live draft's staged name never carries a sequence below its own, so a clean-up can tell what is dead.
//! - Dropping a draft frees its turn; so does publishing it, until it is given back.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// The live drafts of one producer, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Order(Arc<Mutex<Line>>);

#[derive(Debug, Default)]
struct Line {
    next: u64,
    live: VecDeque<u64>,
}

/// A draft's place in the order; dropping it frees its turn.
#[derive(Debug)]
pub(super) struct Place {
    order: Order,
    number: u64,
    /// Dropping it changes nothing.
    forgotten: bool,
}

impl Order {
    /// The last place in the line.
    pub(super) fn join(&self) -> Place {
        let mut line = self.0.lock();
        let number = line.next;
        line.next = number.saturating_add(1);
        line.live.push_back(number);
        Place { order: self.clone(), number, forgotten: false }
    }

    /// How many drafts are live.
    pub(super) fn live(&self) -> u64 {
        self.0.lock().live.len() as u64
    }
}

impl Place {
    /// Whether all before it are published or dropped.
    pub(super) fn is_first(&self) -> bool {
        self.order.0.lock().live.front() == Some(&self.number)
    }

    /// Whether it stands in this line.
    pub(super) fn is_of(&self, order: &Order) -> bool {
        Arc::ptr_eq(&self.order.0, &order.0)
    }

    /// Published: the next one may be.
    pub(super) fn leave(&self) {
        self.order.0.lock().live.retain(|number| *number != self.number);
    }

    /// In a forked child it is still the parent's, and so is the line, which may be locked for ever.
    pub(super) fn forget(&mut self) {
        self.forgotten = true;
    }

    /// Given back: it goes before those that were opened after it again.
    pub(super) fn come_back(&self) {
        let mut line = self.order.0.lock();
        let place = line.live.partition_point(|number| *number < self.number);
        if line.live.get(place) != Some(&self.number) {
            line.live.insert(place, self.number);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.forgotten {
            self.leave();
        }
    }
}
