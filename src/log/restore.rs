//! Whether a position that was saved is good in the history that the store has now.

use super::Log;
use super::tail::Tail;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Step;
use crate::position::Position;

impl Log {
    /// The step at which a saved position goes on.
    ///
    /// # Errors
    /// `Invalid` for a position of another store; `Rewound` when its history was rewound since, or isn't this
    /// one; `Reclaimed` when it is below the floor; `Corrupt`, `Io`.
    pub fn check_position(&self, tail: &Tail, position: &Position) -> Result<Step> {
        let state = &tail.state;
        let refuse = |kind, what: String| Err(Error::new(kind, what).step(position.step).at(&self.path));
        if position.store != self.identity.uuid {
            let (has, is) = (position.store, self.identity.uuid);
            return refuse(
                ErrorKind::Invalid,
                format!("the position belongs to store {has}, this one is {is}"),
            );
        }
        if position.generation > state.generation {
            let (has, is) = (position.generation, state.generation);
            return refuse(
                ErrorKind::Rewound,
                format!("the position is of generation {has}, the store of {is}"),
            );
        }
        if let Some(limit) =
            state.history.limit_of(position.generation).filter(|limit| position.step > *limit)
        {
            let what = format!("the store was rewound to step {limit} since the position was saved");
            return refuse(ErrorKind::Rewound, what);
        }
        if position.step < state.floor {
            return Err(self.reclaimed(position.step, tail));
        }
        if position.step > state.next_step() {
            let what = format!(
                "the position lies beyond the end of the store, whose next step is {}",
                state.next_step()
            );
            return refuse(ErrorKind::Rewound, what);
        }
        let lineage = self.lineage(tail, position.step)?;
        if lineage != position.lineage {
            let what = format!(
                "the store has another history: its lineage is {lineage}, the position's {}",
                position.lineage
            );
            return refuse(ErrorKind::Rewound, what);
        }
        Ok(position.step)
    }
}
