//! What goes wrong in a case: at a moment that is a decision, at most once.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Mishap;
use crate::errno;
use crate::explore::Notices;
use crate::fault::{Failure, Fate, Method};
use crate::schedule::{Fates, World};

/// The process that it happens to: the first writer.
const WHOSE: usize = 0;

/// The fates of a case.
pub(super) struct Once {
    pub(super) mishap: Mishap,
    pub(super) happened: AtomicBool,
    pub(super) notices: Notices,
}

impl Once {
    /// Whether it is still to come.
    pub(super) fn is_left(&self) -> bool {
        self.mishap != Mishap::None && !self.happened.load(Ordering::Relaxed)
    }

    fn happens(&self, world: &World) -> bool {
        let happens = world.choices().chance(2);
        self.happened.store(happens, Ordering::Relaxed);
        happens
    }
}

impl Fates for Once {
    fn decide(&self, world: &World, process: usize, method: Method, on: &str) -> Fate {
        if process != WHOSE || !self.is_left() || !world.has_met() {
            return Fate::default();
        }
        match self.mishap {
            // What nobody notices is as good as not done: another moment for the same death.
            Mishap::Death if (self.notices)(method, on) && self.happens(world) => {
                world.kill(process);
                Fate::default()
            }
            Mishap::LostReply if method == Method::Link && self.happens(world) => {
                Fate::fails(Failure::After(errno::EEXIST))
            }
            _ => Fate::default(),
        }
    }
}
