//! Who brings a producer's parts into the log: an attempt at a time, when the policy says so.
//!
//! - All parts that wait go into one commit, up to a bound: a single one in its own file, several gathered in
//!   a new one, so that each draft stays what it is until the outcome is known.
//! - A commit whose outcome is unknown is kept and tried again as the same file, never regrouped (R2).
//! - After a failed directory sync the producer is poisoned: only opening it anew can tell what is in (R3).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::gather::{Gatherer, choose};
use super::hints::{Hints, is_hungry};
use super::queue::{Queue, Waiting};
use super::ticket::Published;
use super::turn;
use crate::commit::failure::Failure;
use crate::commit::pacer::Pacer;
use crate::commit::pacing::{Attempt, Observed, Pacing, Verdict};
use crate::commit::staged::{Stage, Staged, discard};
use crate::commit::writer::{self, Attempts, Settled};
use crate::env::Taken;
use crate::error::{Error, ErrorKind, Result};
use crate::format::part::PartDescriptor;
use crate::id::{Incarnation, Part, Sequence, Version};
use crate::limits::{GROUP_PARTS_MAX, HUNGER_LOOK, PROGRESS_INTERVAL};
use crate::log::Log;
use crate::log::doorbell::saying;
use crate::log::state::State;
use crate::log::tail::{Care, Tail};
use crate::log::turns::Turn;
use crate::name::Name;
use crate::planted::{Bug, is_planted};

/// Commits the parts of one producer.
#[derive(Debug)]
pub(super) struct Committer {
    stage: Stage,
    name: Name,
    incarnation: Incarnation,
    pending: Option<Pending>,
    pacer: Pacer,
    /// Another's commit came before the last one of this producer.
    contended: bool,
    /// The log was looked at by the last attempt, right before this one.
    fresh: bool,
    /// Producers take turns, so nobody contends.
    in_ring: bool,
    hints: Hints,
    /// It waits for its turn.
    wait: turn::Wait,
}

/// A commit that is finished and not yet known to be in.
#[derive(Debug)]
struct Pending {
    group: Vec<Waiting>,
    staged: Arc<Staged>,
    /// The sequence of its first part.
    first: Sequence,
    attempts: Attempts,
    /// Its outcome was unknown once: until replay has told, it is neither given back nor removed (R2).
    uncertain: bool,
    /// It is the file of a draft of its own, not one in which several are gathered.
    own: bool,
}

impl Pending {
    fn last(&self) -> Option<&PartDescriptor> {
        self.group.last().map(|waiting| &waiting.part)
    }
}

/// What came of asking for a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driven {
    /// Nothing waits.
    Idle,
    /// The policy says to ask again after so long.
    Hold(Duration),
    /// An attempt was made.
    Tried,
}

/// What an attempt has come to.
enum Tried {
    /// Another came before, or its turn hasn't come.
    Lost,
    /// It has more parts than are left of its turn.
    TooMany,
    /// It is in, at this version; its last part is this one.
    Won(Version, Part),
}

impl Committer {
    /// After its Open, by the pacer that has paced it.
    pub(super) fn new(stage: Stage, name: Name, incarnation: Incarnation, pacer: Pacer, tail: &Tail) -> Self {
        let mut committer = Self {
            stage,
            name,
            incarnation,
            pending: None,
            pacer,
            contended: true,
            fresh: false,
            in_ring: false,
            hints: Hints::default(),
            wait: turn::Wait::default(),
        };
        committer.look_around(tail);
        committer
    }

    /// Another policy from now on.
    pub(super) fn set_policy(&mut self, policy: Box<dyn Pacing>) {
        self.pacer.set_policy(policy);
    }

    /// Asks the policy, and makes an attempt if it says so.
    ///
    /// # Errors
    /// What keeps the next part from being committed; the queue says so too, until it is resumed.
    pub(super) fn drive(&mut self, queue: &Queue) -> Result<Driven> {
        let driven = self.drive_or_fail(queue);
        if let Err(error) = &driven {
            queue.fail(error);
        }
        driven
    }

    fn drive_or_fail(&mut self, queue: &Queue) -> Result<Driven> {
        // Whoever had this turn before may have failed.
        if queue.line.lock().is_stuck() {
            return Ok(Driven::Idle);
        }
        let Some(seen) = self.observe(queue) else { return Ok(Driven::Idle) };
        if !self.in_ring
            && let Verdict::Hold(time) = self.pacer.ask(&queue.log, seen)?
        {
            self.fresh = false;
            return Ok(Driven::Hold(time));
        }
        self.stage.renew(&queue.log)?;
        let pending = match self.pending.take() {
            Some(pending) => Ok(pending),
            None => self.begin(queue),
        };
        self.attempt(queue, pending?)?;
        Ok(Driven::Tried)
    }

    /// What the policy sees of what waits; none if nothing does.
    fn observe(&mut self, queue: &Queue) -> Option<Observed> {
        let mut seen = {
            let line = queue.line.lock();
            let held = self.pending.iter().flat_map(|pending| &pending.group);
            let since = held.chain(&line.waiting).next()?.since;
            let parts = u32::try_from(line.len()).unwrap_or(u32::MAX);
            Observed { parts, bytes: line.bytes, since, is_full: line.is_full(), ..Observed::default() }
        };
        let producers = self.pacer.producers();
        if producers > 1 && !self.in_ring {
            // However many there are, all together ask the groups no more than that often.
            let interval = PROGRESS_INTERVAL.max(HUNGER_LOOK.saturating_mul(producers));
            let told = self.hints.told(&queue.log, interval);
            seen.hungry = !told.is_empty() && is_hungry(told, &queue.log.tail.take().state);
        }
        Some(seen)
    }

    /// Bytes that every index carries beside the state of this name.
    pub(super) fn carried_beside(&self, tail: &Tail) -> u64 {
        let own = tail.state.producers.get(&self.name).and_then(|known| known.state);
        tail.state.bytes_carried().saturating_sub(own.map_or(0, |own| own.length.into()))
    }

    /// Who else there is.
    fn look_around(&mut self, tail: &Tail) {
        self.pacer.look_around(&tail.state);
        self.in_ring = !matches!(tail.state.turn_of(&self.name), Turn::Free);
    }

    /// How many parts a commit may have where producers take turns.
    fn left_of_turn(&self, queue: &Queue) -> usize {
        match queue.log.tail.take().state.turn_of(&self.name) {
            Turn::Free => GROUP_PARTS_MAX,
            Turn::Now { parts_left } => usize::try_from(parts_left).unwrap_or(usize::MAX),
            Turn::Wait { .. } | Turn::Outside => 1,
        }
    }

    /// Takes what waits first, and makes one finished file of it.
    fn begin(&mut self, queue: &Queue) -> Result<Pending> {
        let most = if self.in_ring { self.left_of_turn(queue) } else { GROUP_PARTS_MAX };
        let (mut group, first) = {
            let mut line = queue.line.lock();
            let group = choose(&mut line.waiting, most.min(GROUP_PARTS_MAX));
            line.taken = group.len();
            (group, line.next)
        };
        let own = group.len() == 1;
        let gatherer = Gatherer {
            queue,
            stage: self.stage.dir(),
            name: &self.name,
            incarnation: self.incarnation,
            attempt_us: self.pacer.attempt_us(),
        };
        let staged = match group.as_mut_slice() {
            [alone] => gatherer.finish_own(alone, first),
            several => gatherer.gather(several, first),
        };
        match staged {
            Ok(staged) => {
                if let [alone] = group.as_mut_slice() {
                    // The file belongs to the commit until its outcome is known (R2).
                    alone.draft.owned = false;
                }
                Ok(Pending { group, staged, first, attempts: Attempts::default(), uncertain: false, own })
            }
            Err(error) => {
                queue.log.mistrust(&error);
                put_back(queue, group);
                Err(error)
            }
        }
    }

    /// One attempt.
    fn attempt(&mut self, queue: &Queue, mut pending: Pending) -> Result<()> {
        let tried = self.try_once(queue, &mut pending);
        match tried {
            Ok(Tried::Lost) => {
                self.pending = Some(pending);
                Ok(())
            }
            Ok(Tried::TooMany) => {
                put_back(queue, self.take_apart(&queue.log, pending));
                Ok(())
            }
            Ok(Tried::Won(version, last)) => {
                self.tell(queue, pending, version, last);
                Ok(())
            }
            Err(failure) => Err(self.failed(queue, pending, failure)),
        }
    }

    fn try_once(&mut self, queue: &Queue, pending: &mut Pending) -> Result<Tried, Failure> {
        let log = &*queue.log;
        let (mut tail, found) = match self.come_to_turn(queue, pending)? {
            ControlFlow::Continue(due) => due,
            ControlFlow::Break(tried) => return Ok(tried),
        };
        // From here on another's commit can come before: what was replayed until now costs nobody a race.
        let began = log.env.now();
        let (name, incarnation, lost) = (&self.name, self.incarnation, pending.attempts.lost);
        let mut attempts = std::mem::take(&mut pending.attempts);
        let settled = |state: &State| settled(state, name, incarnation, pending);
        let tried =
            writer::attempt(log, &mut tail, self.stage.dir(), &pending.staged, settled, &mut attempts);
        let verdict = attempts.verdict;
        pending.attempts = attempts;
        self.fresh = matches!(tried, Ok(None));
        self.contended = found > 0 || pending.attempts.lost > lost;
        if let Err(failure) = &tried {
            writer::after_failure(&mut tail, failure);
        }
        if let Some(ended) = verdict {
            let (cost, won) = (ended.saturating_sub(began), matches!(tried, Ok(Some(_))));
            self.pacer.note(&Attempt { ended, cost, won });
        }
        self.look_around(&tail);
        let carried = self.carried_beside(&tail);
        queue.line.lock().carried_beside = carried;
        let appended = match tried {
            // Between the look and the link its turn was taken away, by another ring or a rewind.
            Err(Failure::Not(_))
                if !matches!(turn::judge(&tail.state, &pending.staged), turn::Verdict::Due) =>
            {
                return Ok(Tried::Lost);
            }
            tried => tried?,
        };
        let Some(appended) = appended else { return Ok(Tried::Lost) };
        let last = tail.state.producers.get(&self.name).and_then(|producer| producer.last_part);
        let unknown = || {
            let what = format!("producer {}: replay doesn't know what was published", self.name);
            Failure::Unknown(Error::new(ErrorKind::Invalid, what).at(&log.path))
        };
        Ok(Tried::Won(appended.version, last.ok_or_else(unknown)?))
    }

    /// The log's end once the commit may be linked there as far as turns go, and how much of it is new; else
    /// what the attempt has come to.
    fn come_to_turn<'l>(
        &mut self,
        queue: &'l Queue,
        pending: &Pending,
    ) -> Result<ControlFlow<Tried, (Taken<'l, Tail>, u64)>, Failure> {
        let log = &*queue.log;
        let look = self.contended && !self.fresh;
        let said = log.doorbell.load();
        let (mut tail, mut found) = catch_up(log, look, said).map_err(Failure::Not)?;
        let mut turn = turn::judge(&tail.state, &pending.staged);
        let closed = tail.state.closed.is_some() && !is_planted(Bug::ClosedForGood);
        if closed || !matches!(turn, turn::Verdict::Due) {
            // What is said against it has to be so now: the stream may have been reopened since.
            drop(tail);
            tail = log.current().map_err(Failure::Not)?;
            found = found.saturating_add(1);
            turn = turn::judge(&tail.state, &pending.staged);
        }
        match turn {
            turn::Verdict::Due => {
                self.wait = turn::Wait::default();
                Ok(ControlFlow::Continue((tail, found)))
            }
            turn::Verdict::Never(_) if !pending.own && !pending.uncertain => {
                self.look_around(&tail);
                Ok(ControlFlow::Break(Tried::TooMany))
            }
            turn::Verdict::Never(why) => Err(Failure::Not(Error::new(ErrorKind::Invalid, why).at(&log.path))),
            turn::Verdict::Wait(whom) => {
                self.look_around(&tail);
                drop(tail);
                let timeout = queue.line.lock().turn_timeout;
                self.contended = true;
                if let Err(failure) = self.wait.pause(log, &pending.staged, &whom, (said, timeout)) {
                    self.wait = turn::Wait::default();
                    return Err(failure);
                }
                Ok(ControlFlow::Break(Tried::Lost))
            }
        }
    }

    fn tell(&self, queue: &Queue, pending: Pending, version: Version, last: Part) {
        let count = pending.group.len() as u64;
        let parts_per_step = queue.log.parts_per_step();
        let stand = |place: u64| {
            let back = count.saturating_sub(place).saturating_sub(1);
            let part = Part::new(last.get().saturating_sub(back));
            let sequence = Sequence::new(pending.first.get().saturating_add(place));
            Published { version, part, step: part.step(parts_per_step), sequence }
        };
        tracing::debug!(producer = %self.name, %version, parts = count, step = %stand(0).step, "published");
        let drafts = queue.tell(pending.group, stand);
        queue.committed();
        // Gathered ones still have their files, which go now.
        drop(drafts);
    }

    /// What is to become of a commit that isn't acknowledged.
    fn failed(&mut self, queue: &Queue, mut pending: Pending, failure: Failure) -> Error {
        queue.log.mistrust(failure.error());
        match failure {
            // Of what was uncertain once, an earlier attempt may be what replay has judged: it isn't given
            // back.
            Failure::Never(error) if pending.uncertain => {
                let_go(queue, pending, &error);
                error
            }
            Failure::Not(error) if pending.uncertain => {
                self.pending = Some(pending);
                error
            }
            Failure::Never(error) | Failure::Not(error) => {
                put_back(queue, self.take_apart(&queue.log, pending));
                error
            }
            Failure::Gone(error) if pending.uncertain => {
                // Whoever asks again whether it is in mustn't hear that nothing is pending.
                queue.poison("by an earlier failure");
                let_go(queue, pending, &error);
                error
            }
            Failure::Gone(error) => {
                if let (true, Some(alone)) = (pending.own, pending.group.first_mut()) {
                    alone.draft.lose_file();
                }
                put_back(queue, pending.group);
                error
            }
            Failure::Unknown(error) => {
                pending.uncertain = true;
                self.pending = Some(pending);
                error
            }
            Failure::Poisoned(error) => {
                queue.poison("by an earlier failure");
                let_go(queue, pending, &error);
                error
            }
        }
    }

    /// The parts of a commit that isn't in, each with its own file.
    fn take_apart(&self, log: &Log, mut pending: Pending) -> Vec<Waiting> {
        if !pending.own {
            discard(log, self.stage.dir(), &pending.staged.name);
        }
        for waiting in &mut pending.group {
            waiting.draft.owned = true;
        }
        pending.group
    }

    /// What is pending and surely not in.
    pub(super) fn give_back(&mut self, log: &Log) -> Vec<Waiting> {
        match self.pending.take_if(|pending| !pending.uncertain) {
            Some(pending) => self.take_apart(log, pending),
            None => Vec::new(),
        }
    }

    /// The staged file of a commit whose outcome is unknown, if there is one.
    pub(super) fn uncertain(&self) -> Option<&str> {
        self.pending.as_ref().filter(|pending| pending.uncertain).map(|pending| pending.staged.name.as_str())
    }
}

/// They wait again.
fn put_back(queue: &Queue, group: Vec<Waiting>) {
    let mut line = queue.line.lock();
    line.taken = 0;
    for waiting in group.into_iter().rev() {
        line.waiting.push_front(waiting);
    }
}

/// Their outcome is told by opening the producer anew; their file stays (R2).
fn let_go(queue: &Queue, pending: Pending, error: &Error) {
    let mut line = queue.line.lock();
    line.fail(error);
    line.taken = 0;
    for waiting in &pending.group {
        line.bytes = line.bytes.saturating_sub(waiting.bytes);
        waiting.outcome.is(Err(error.again()));
    }
    drop(line);
    drop(pending);
}

/// The log's end, to be linked after, where the doorbell has `said` this before. No outcome is at stake yet,
/// so errors that may pass are outlasted.
fn catch_up(log: &Log, contended: bool, said: Option<u32>) -> Result<(Taken<'_, Tail>, u64)> {
    log.outlast("catching up to publish", log.patient_until(), |_| {
        let mut tail = log.tail.take();
        // A look before the link saves a lost race; alone, or with a doorbell that is silent, the link is
        // the look. A doorbell that was rung by another is asked for nothing.
        let quiet = said.map_or(!contended, |said| said == saying(tail.state.next_version));
        // R10: after an error, what was replayed is compared with the disk before anything is linked after
        // it.
        let mut found = 0;
        if !quiet || tail.is_suspicious() {
            tail.refresh(log);
            found = tail.advance(log, Care::Writing)?;
        }
        Ok((tail, found))
    })
}

/// R6: is (my incarnation, my sequences) in, with the same checksum?
fn settled(state: &State, name: &Name, incarnation: Incarnation, pending: &Pending) -> Settled {
    let fenced = |what| Settled::Never(Error::new(ErrorKind::Fenced, format!("producer {name} {what}")));
    let Some(known) = state.producers.get(name) else { return fenced("was forgotten") };
    let any_incarnation = is_planted(Bug::IncarnationIgnored) || is_planted(Bug::SequenceAlone);
    if known.incarnation != Some(incarnation) && !any_incarnation {
        return fenced(match known.incarnation {
            Some(_) => "was opened anew",
            None if known.finished => "was retired",
            None => "was set back by a rewind of the store: it has to be opened anew",
        });
    }
    if known.next <= pending.first || is_planted(Bug::SequenceIgnored) {
        return Settled::Open;
    }
    let end = pending.first.get().saturating_add(pending.group.len() as u64);
    let same = pending.last().is_some_and(|last| last.checksum() == known.last_checksum);
    if known.next.get() == end && (same || is_planted(Bug::SequenceAlone)) {
        return Settled::In(known.last_version);
    }
    let what = format!("producer {name} has published sequence {} with other bytes", pending.first);
    Settled::Never(Error::new(ErrorKind::Fenced, what))
}
