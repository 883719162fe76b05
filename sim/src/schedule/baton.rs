//! The baton: which thread runs, who is ready, who is blocked on what, and the virtual clock.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::story::Story;
use super::{CALL_COST, Fates};
use crate::Choices;
use crate::explore::Step;
use crate::fault::Fault;

thread_local! {
    /// The calling thread's number in its world.
    static ME: Cell<Option<u64>> = const { Cell::new(None) };
}

/// How the next thread is chosen.
#[derive(Clone, Debug)]
pub enum Style {
    /// Whoever runs goes on, but once in so many calls, when anybody may.
    Sticky(u32),
    /// The most urgent one that is ready; its urgency falls to the least once in so many calls. Threads get
    /// theirs by chance: so one may sleep for as long as all others run (Burckhardt et al., 2010).
    Urgency(u32),
    /// Every order of the calls that others can notice, one run after the other.
    Every(Arc<Step>),
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Time.
    Sleep,
    /// A signal of its process.
    Signal(u64),
    /// The end of a thread.
    Task(u64),
    /// A word in a file.
    Word(u64),
}

pub(crate) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) choices: Choices,
    pub(super) seed: u64,
    pub(super) over: Condvar,
    pub(super) fates: Arc<dyn Fates>,
}

pub(super) struct State {
    pub(super) now: Duration,
    pub(super) calls: u64,
    pub(super) story: Story,
    pub(super) trouble: Option<String>,
    pub(super) pruned: bool,
    pub(super) halted: bool,
    pub(super) processes: Vec<Living>,
    threads: BTreeMap<u64, Thread>,
    running: Option<u64>,
    style: Style,
    calls_max: u64,
    next: u64,
    /// The least urgency given out.
    least: i64,
}

pub(super) struct Living {
    pub(super) node: usize,
    pub(super) fault: Arc<Fault>,
    pub(super) dead: bool,
}

struct Thread {
    process: usize,
    name: String,
    turn: Arc<Condvar>,
    status: Status,
    urgency: i64,
    /// What it has seen so far: with the filesystem, all that its future depends on.
    history: u64,
}

#[derive(Clone, Copy)]
enum Status {
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

    fn is_dead(&self, thread: u64) -> bool {
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
    fn pick(&mut self, me: Option<u64>, noticed: bool, choices: &Choices) -> Option<u64> {
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
            if let Some(earliest) = self.earliest().filter(|_| self.timers_run_early(choices)) {
                self.now = self.now.max(earliest);
                continue;
            }
            return Some(self.choose(&ready, me, noticed, choices));
        }
    }

    /// Whether the calls of the others take so long that a deadline passes.
    fn timers_run_early(&self, choices: &Choices) -> bool {
        match self.style {
            Style::Every(_) => false,
            _ => choices.chance(48),
        }
    }

    fn choose(&mut self, ready: &[u64], me: Option<u64>, noticed: bool, choices: &Choices) -> u64 {
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
            Style::Every(_) if goes_on && !noticed => ready[0],
            Style::Every(step) if ready.len() > 1 => {
                let mut key = vec![me.unwrap_or(0), self.now.as_nanos() as u64];
                for (number, thread) in &self.threads {
                    key.extend([*number, thread.history, u64::from(matches!(thread.status, Status::Ready))]);
                }
                if step.was_here(choices.count(), &key) {
                    self.pruned = true;
                    self.halt();
                    return ready[0];
                }
                ready[choices.pick(ready.len() as u32) as usize]
            }
            Style::Every(_) => ready[0],
        }
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

    fn count_call(&mut self) {
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

impl Shared {
    /// The calling thread hands the baton on, and gets it back.
    pub(super) fn turn(&self) {
        self.pass(None, false);
    }

    /// As [`Shared::turn`], before a call; `noticed` says whether others can notice it.
    pub(super) fn turn_to_call(&self, noticed: bool) {
        self.state.lock().count_call();
        self.pass(None, noticed);
    }

    /// The calling thread blocks, unless `ready`, which is asked when nobody else runs.
    pub(super) fn block(&self, on: On, timeout: Option<Duration>, ready: impl Fn() -> bool) {
        if ready() || timeout.is_some_and(|timeout| timeout.is_zero()) {
            return self.turn();
        }
        self.pass(Some((on, timeout)), false);
    }

    fn pass(&self, block: Option<(On, Option<Duration>)>, noticed: bool) {
        let me = ME.get().expect("only threads of a world make its calls");
        let mut state = self.state.lock();
        let dead = state.is_dead(me);
        if let Some((on, timeout)) = block.filter(|_| !dead) {
            let deadline = timeout.map(|timeout| state.now.saturating_add(timeout));
            if let Some(thread) = state.threads.get_mut(&me) {
                thread.status = Status::Blocked { on, deadline };
            }
        }
        let next = state.pick(Some(me), noticed, &self.choices);
        self.hand_over(&mut state, next);
        self.await_turn(&mut state, me);
    }

    fn hand_over(&self, state: &mut State, next: Option<u64>) {
        if state.running == next {
            return;
        }
        state.running = next;
        match next.and_then(|next| state.threads.get(&next)) {
            Some(thread) => {
                thread.turn.notify_one();
            }
            None => {
                self.over.notify_all();
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the scheduler is what blocks")]
    fn await_turn(&self, state: &mut MutexGuard<'_, State>, me: u64) {
        let turn = match state.threads.get(&me) {
            _ if state.running == Some(me) => return,
            Some(thread) => Arc::clone(&thread.turn),
            None => return,
        };
        while state.running != Some(me) {
            turn.wait(state);
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the scheduler is what blocks")]
    pub(super) fn await_end(&self, state: &mut MutexGuard<'_, State>) {
        while !state.threads.is_empty() {
            self.over.wait(state);
        }
    }

    /// Gives the baton out for the first time.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock();
        let next = state.pick(None, true, &self.choices);
        self.hand_over(&mut state, next);
    }

    /// Starts a thread of a process; it runs once it gets the baton. Gives its number.
    #[expect(clippy::disallowed_methods, reason = "the scheduler is what starts threads")]
    pub(super) fn spawn(
        self: &Arc<Self>,
        process: usize,
        name: &str,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<(u64, std::thread::JoinHandle<()>)> {
        let number = {
            let mut state = self.state.lock();
            let number = state.number();
            let urgency = match state.style {
                Style::Urgency(_) => i64::from(self.choices.pick(1024)),
                _ => 0,
            };
            let thread = Thread {
                process,
                name: name.to_owned(),
                turn: Arc::new(Condvar::new()),
                status: Status::Ready,
                urgency,
                history: 0,
            };
            state.threads.insert(number, thread);
            number
        };
        let shared = Arc::clone(self);
        let run = move || {
            ME.set(Some(number));
            let _end = Ended { shared: &shared, number };
            shared.await_turn(&mut shared.state.lock(), number);
            body();
        };
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        if spawned.is_err() {
            self.state.lock().threads.remove(&number);
        }
        spawned.map(|handle| (number, handle))
    }

    /// The calling thread belongs to another process from now on: the one that took its place.
    pub(super) fn adopt(&self, process: usize) {
        let mut state = self.state.lock();
        if let Some(thread) = ME.get().and_then(|me| state.threads.get_mut(&me)) {
            thread.process = process;
        }
    }

    /// The calling thread has seen something.
    pub(super) fn saw(&self, digest: u64) {
        let mut state = self.state.lock();
        if let Some(thread) = ME.get().and_then(|me| state.threads.get_mut(&me)) {
            thread.history = mix(thread.history, digest);
        }
    }
}

/// Whether a thread has ended, and so no longer runs.
pub(super) fn has_ended(state: &State, thread: u64) -> bool {
    !state.threads.contains_key(&thread)
}

/// Chains a digest to a history.
pub(crate) fn mix(history: u64, digest: u64) -> u64 {
    let mixed = (history.rotate_left(23) ^ digest).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Dropped when a thread ends, by a panic too.
struct Ended<'s> {
    shared: &'s Shared,
    number: u64,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.threads.remove(&self.number);
        state.release(On::Task(self.number));
        let next = state.pick(None, true, &self.shared.choices);
        self.shared.hand_over(&mut state, next);
    }
}
