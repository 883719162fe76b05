//! What the live groups tell of themselves, as one producer remembers it: for back-pressure and for the pace
//! of commits only.

use std::time::Duration;

use crate::commit::bounds::Told;
use crate::log::state::State;
use crate::log::{Log, progress};

/// What the groups told, and when they were asked.
#[derive(Debug, Default)]
pub(super) struct Hints {
    told: Option<(Duration, Vec<Told>)>,
}

impl Hints {
    /// What they tell, asked anew unless that was done within `interval`. The log's end is only looked at as
    /// it is known.
    pub(super) fn told(&mut self, log: &Log, interval: Duration) -> &[Told] {
        let now = log.env.now();
        let is_old = self.told.as_ref().is_none_or(|(then, _)| now.saturating_sub(*then) >= interval);
        if is_old {
            let live: Vec<_> = {
                let tail = log.tail.take();
                tail.state.live_groups().map(|(name, known)| (name.clone(), known.incarnation)).collect()
            };
            let ask = |(name, incarnation)| {
                let said = progress::read(log, &name).filter(|said| Some(said.incarnation) == incarnation);
                Told {
                    name: name.to_string(),
                    step: said.map(|said| said.step),
                    hungry: said.is_some_and(|said| said.hungry),
                }
            };
            self.told = Some((now, live.into_iter().map(ask).collect()));
        }
        self.told.as_ref().map_or(&[], |(_, told)| told.as_slice())
    }
}

/// Whether a group waits for the step that is next.
pub(super) fn is_hungry(told: &[Told], state: &State) -> bool {
    told.iter().any(|told| told.hungry && told.step == Some(state.next_step()))
}
