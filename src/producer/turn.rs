//! Waiting for one's turn: where there is a ring of producers, each links its parts in its turn only.
//!
//! - What is waited for is what replay would say of the commit: nothing is linked that it would make void
//!   (R5). It asks for the turn last, so a commit that is in already, or never can be, doesn't wait.
//! - The part is written and synced before, so that a turn takes a link.
//! - The log's end isn't held while it waits. It says for whom, and when that one committed last.

use std::time::Duration;

use crate::commit::failure::Failure;
use crate::commit::staged::Staged;
use crate::error::{Error, ErrorKind, Result};
use crate::format::record::Record;
use crate::id::Version;
use crate::limits::{
    DOORBELL_WAIT_MAX, DOORBELL_WAIT_MIN, IO_PATIENCE_WORD, PROBE_INTERVAL_MAX, PROBE_INTERVAL_MIN,
};
use crate::log::state::State;
use crate::log::turns::Turn;
use crate::log::void::Void;
use crate::log::{Log, read};
use crate::name::Name;

/// Whose turn it is, for a commit.
pub(super) enum Verdict {
    /// The commit's own, or no turn's matter.
    Due,
    /// Another's.
    Wait(Whom),
    /// The commit can't be right in any turn of this ring.
    Never(String),
}

/// What a state says of a commit.
pub(super) fn judge(state: &State, staged: &Staged) -> Verdict {
    let Some(Record::Parts(parts)) = &staged.commit.record else { return Verdict::Due };
    let turn = state.turn_of(&parts.producer);
    if matches!(turn, Turn::Free) {
        return Verdict::Due;
    }
    let void = state.judge(&staged.commit).ok().flatten();
    if !matches!(void, Some(Void::BeyondTurn | Void::OutsideRing)) {
        return Verdict::Due;
    }
    let (name, count) = (&parts.producer, parts.parts.len());
    match turn {
        Turn::Free => Verdict::Due,
        Turn::Now { parts_left } => Verdict::Never(format!(
            "a commit of {count} parts goes beyond the turn of producer {name}: {parts_left} are left of it"
        )),
        Turn::Wait { whom, last_seen, opened } => {
            Verdict::Wait(Whom { name: whom.clone(), last_seen, opened })
        }
        Turn::Outside => Verdict::Never(format!(
            "producers take turns in this store, and {name} isn't one of them: set a ring with it, or end \
             the ring"
        )),
    }
}

/// Who is waited for.
pub(super) struct Whom {
    name: Name,
    last_seen: Option<Version>,
    opened: bool,
}

impl Whom {
    fn in_words(&self, log: &Log) -> String {
        let name = &self.name;
        match (self.last_seen, self.opened) {
            (None, _) => format!("{name}, which was never opened"),
            (Some(version), true) => read::last_commit_in_words(log, name, version),
            (Some(version), false) => {
                format!("{}; nobody has it open", read::last_commit_in_words(log, name, version))
            }
        }
    }
}

/// A wait for a turn, from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Wait {
    began: Option<Duration>,
    next_word: Duration,
}

impl Wait {
    /// Sleeps until it is time to look again. `said` is what the doorbell said before the last look.
    ///
    /// # Errors
    /// [`Failure::Not`] with `Timeout` when it has lasted so long.
    pub(super) fn pause(
        &mut self,
        log: &Log,
        staged: &Staged,
        whom: &Whom,
        (said, timeout): (Option<u32>, Duration),
    ) -> Result<(), Failure> {
        let now = log.env.now();
        let waited = now.saturating_sub(*self.began.get_or_insert(now));
        let left = timeout.saturating_sub(waited);
        let seconds = waited.as_secs();
        if left.is_zero() {
            let whom = whom.in_words(log);
            let what = format!("waited {seconds} s for a turn to publish: it is that of {whom}");
            return Err(Failure::Not(Error::new(ErrorKind::Timeout, what).at(&log.path)));
        }
        if waited >= self.next_word.max(IO_PATIENCE_WORD) {
            self.next_word = waited.saturating_mul(2);
            let whom = whom.in_words(log);
            tracing::warn!(file = staged.name, seconds, whom, "waiting for a turn to publish");
        }
        let Some(said) = said else {
            let interval = (waited / 8).clamp(PROBE_INTERVAL_MIN, PROBE_INTERVAL_MAX);
            log.env.sleep(interval.min(left));
            return Ok(());
        };
        // It was asked before the look, so a commit that the look has missed has rung since.
        let at_most = (waited / 2).clamp(DOORBELL_WAIT_MIN, DOORBELL_WAIT_MAX).min(left);
        if let Err(error) = log.doorbell.wait(&*log.storage, said, at_most) {
            tracing::debug!(%error, "waiting on the doorbell failed");
            log.env.sleep(at_most);
        }
        Ok(())
    }
}
