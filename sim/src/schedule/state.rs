//! Who is ready, who is blocked on what, the virtual clock, and the choice of who runs next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Condvar;

use super::CALL_COST;
use super::baton::{On, Style};
use super::story::Story;
use crate::Choices;
use crate::explore::Step;
use crate::fault::Fault;

pub(super) struct State {
    pub(super) now: Duration,
    pub(super) calls: u64,
    pub(super) story: Story,
    pub(super) trouble: Option<String>,
    pub(super) pruned: bool,
    pub(super) halted: bool,
    pub(super) processes: Vec<Living>,
    /// Who is still to come to the meeting.
    pub(super) awaited: usize,
    pub(super) threads: BTreeMap<u64, Thread>,
    pub(super) running: Option<u64>,
    pub(super) style: Style,
    calls_max: u64,
    next: u64,
    /// The least urgency given out.
    least: i64,
}

pub(super) struct Living {
    pub(super) node: usize,
    pub(super) fault: Arc<Fault>,
    pub(super) dead: bool,
    /// How many of its calls were made to fail.
    pub(super) struck: u64,
    /// How long it has waited since it died: its time passes, for nobody else, or what waits until a deadline
    /// would never be over.
    pub(super) since_death: Duration,
}

pub(super) struct Thread {
    pub(super) process: usize,
    pub(super) name: String,
    pub(super) turn: Arc<Condvar>,
    pub(super) status: Status,
    pub(super) urgency: i64,
    /// What it has seen so far: with the filesystem, all that its future depends on.
    pub(super) history: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Status {
    Ready,
    Blocked { on: On, deadline: Option<Duration> },
}

impl State {
    pub(super) fn new(style: Style, calls_max: u64) -> Self {
        Self {
            now: Duration::ZERO,
            calls: 0,
            story: Story::default(),
            trouble: None,
            pruned: false,
            halted: false,
            processes: Vec::new(),
            awaited: 0,
            threads: BTreeMap::new(),
            running: None,
            style,
            calls_max,
            next: 0,
            least: 0,
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn say(&mut self, what: String) {
        self.story.note(what);
    }

    pub(super) fn release(&mut self, on: On) {
        for thread in self.threads.values_mut() {
            if matches!(thread.status, Status::Blocked { on: blocked, .. } if blocked == on) {
                thread.status = Status::Ready;
            }
        }
    }

    fn release_due(&mut self) {
        let now = self.now;
        for thread in self.threads.values_mut() {
            if matches!(thread.status, Status::Blocked { deadline: Some(deadline), .. } if deadline <= now) {
                thread.status = Status::Ready;
            }
        }
    }

    pub(super) fn kill(&mut self, process: usize) {
        self.kill_where_numbered(|number, _| number == process);
    }

    pub(super) fn kill_where(&mut self, which: impl Fn(&Living) -> bool) {
        self.kill_where_numbered(|_, living| which(living));
    }

    fn kill_where_numbered(&mut self, which: impl Fn(usize, &Living) -> bool) {
        for number in 0..self.processes.len() {
            let living = &mut self.processes[number];
            if living.dead || !which(number, living) {
                continue;
            }
            living.dead = true;
            living.fault.stop();
            if !self.halted {
                let words = format!("{} dies", self.story.processes[number]);
                self.say(words);
            }
            for thread in self.threads.values_mut().filter(|thread| thread.process == number) {
                thread.status = Status::Ready;
            }
        }
    }

    /// Ends the run: everybody dies.
    pub(super) fn halt(&mut self) {
        self.halted = true;
        self.kill_where(|_| true);
    }

    /// The time as a process has it.
    pub(super) fn now_of(&self, process: usize) -> Duration {
        let since_death = self.processes.get(process).map(|living| living.since_death);
        self.now.saturating_add(since_death.unwrap_or_default())
    }

    /// A thread of a dead process waits, which takes no time but its own.
    pub(super) fn pass_for_the_dead(&mut self, thread: u64, timeout: Option<Duration>) {
        let process = self.threads.get(&thread).map(|thread| thread.process);
        if let Some(living) = process.and_then(|process| self.processes.get_mut(process)) {
            living.since_death = living.since_death.saturating_add(timeout.unwrap_or_default());
        }
    }

    pub(super) fn is_dead(&self, thread: u64) -> bool {
        self.threads.get(&thread).is_some_and(|thread| self.processes[thread.process].dead)
    }

    fn earliest(&self) -> Option<Duration> {
        let deadline = |thread: &Thread| match thread.status {
            Status::Blocked { deadline, .. } => deadline,
            Status::Ready => None,
        };
        self.threads.values().filter_map(deadline).min()
    }

    /// The next to run; none when all have ended.
    pub(super) fn pick(&mut self, me: Option<u64>, noticed: bool, choices: &Choices) -> Option<u64> {
        loop {
            self.release_due();
            let is_ready = |thread: &&u64| matches!(self.threads[*thread].status, Status::Ready);
            let mut ready: Vec<u64> = self.threads.keys().filter(is_ready).copied().collect();
            // The dead are seen out first, in turns, without a decision.
            if let Some(dead) = ready
                .iter()
                .copied()
                .filter(|thread| self.is_dead(*thread))
                .min_by_key(|thread| (me.is_some_and(|me| *thread <= me), *thread))
            {
                return Some(dead);
            }
            if ready.is_empty() {
                if self.threads.is_empty() {
                    return None;
                }
                match self.earliest() {
                    Some(earliest) => self.now = self.now.max(earliest),
                    None => self.stuck(),
                }
                continue;
            }
            // Whoever runs comes first: that it goes on is the tame answer.
            if let Some(place) = ready.iter().position(|thread| Some(*thread) == me) {
                ready[..=place].rotate_right(1);
            }
            if let Style::Every(step) = &self.style {
                let step = Arc::clone(step);
                return Some(self.choose_any(&step, ready, me, noticed, choices));
            }
            // The calls of the others may take so long that a deadline passes.
            if let Some(earliest) = self.earliest().filter(|_| choices.chance(48)) {
                self.now = self.now.max(earliest);
                continue;
            }
            return Some(self.choose(&ready, me, choices));
        }
    }

    fn choose(&mut self, ready: &[u64], me: Option<u64>, choices: &Choices) -> u64 {
        let goes_on = me == ready.first().copied();
        match &self.style {
            Style::Sticky(odds) => {
                let changes = !goes_on || choices.chance(*odds);
                if changes { ready[choices.pick(ready.len() as u32) as usize] } else { ready[0] }
            }
            Style::Urgency(odds) => {
                if goes_on && choices.chance(*odds) {
                    self.least -= 1;
                    let least = self.least;
                    if let Some(thread) = self.threads.get_mut(&ready[0]) {
                        thread.urgency = least;
                    }
                }
                let urgency = |thread: &&u64| self.threads[*thread].urgency;
                ready.iter().max_by_key(urgency).copied().unwrap_or(ready[0])
            }
            Style::Every(_) => ready[0],
        }
    }

    /// Of all that may run next: also whoever sleeps, since the others' calls may take as long as that.
    fn choose_any(
        &mut self,
        step: &Step,
        mut able: Vec<u64>,
        me: Option<u64>,
        noticed: bool,
        choices: &Choices,
    ) -> u64 {
        let goes_on = me == able.first().copied();
        if self.awaited > 0 || (goes_on && !noticed) {
            return able[0];
        }
        let sleeps = |thread: &Thread| matches!(thread.status, Status::Blocked { deadline: Some(_), .. });
        able.extend(self.threads.iter().filter(|(_, thread)| sleeps(thread)).map(|(number, _)| *number));
        if able.len() == 1 {
            return able[0];
        }
        let mut key = vec![self.now.as_nanos() as u64];
        for (number, thread) in &self.threads {
            let (ready, deadline) = match thread.status {
                Status::Ready => (1, 0),
                Status::Blocked { deadline, .. } => (0, deadline.map_or(u64::MAX, |at| at.as_nanos() as u64)),
            };
            key.extend([*number, thread.history, ready, deadline]);
        }
        if step.was_here(choices.count(), &key) {
            self.pruned = true;
            self.halt();
            return able[0];
        }
        let next = able[choices.pick(able.len() as u32) as usize];
        if let Some(Status::Blocked { deadline: Some(deadline), .. }) =
            self.threads.get(&next).map(|thread| thread.status)
        {
            self.now = self.now.max(deadline);
            self.release_due();
        }
        next
    }

    fn stuck(&mut self) {
        let waiting: Vec<String> = self
            .threads
            .values()
            .map(|thread| {
                let on = match thread.status {
                    Status::Blocked { on, .. } => format!("{on:?}"),
                    Status::Ready => "nothing".to_owned(),
                };
                format!("{} / {} waits for {on}", self.story.processes[thread.process], thread.name)
            })
            .collect();
        let what = format!("all wait for ever: {}", waiting.join("; "));
        self.say(format!("TROUBLE: {what}"));
        self.trouble.get_or_insert(what);
        self.halt();
    }

    pub(super) fn count_call(&mut self) {
        self.calls += 1;
        if !matches!(self.style, Style::Every(_)) {
            self.now = self.now.saturating_add(CALL_COST);
        }
        if self.calls == self.calls_max && !self.halted {
            let what = format!("the run isn't over after {} calls", self.calls);
            self.say(format!("TROUBLE: {what}"));
            self.trouble.get_or_insert(what);
            self.halt();
        }
        // Whoever is dead and goes on for ever would hang the run for good.
        assert!(self.calls < self.calls_max.saturating_mul(4), "a dead process doesn't end");
    }
}
