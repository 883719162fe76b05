//! The baton: only who has it runs, and hands it on to whom [`State`] picks.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::Fates;
use super::state::{State, Status, Thread};
use crate::Choices;
use crate::explore::Step;
use crate::fault::Method;

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
    /// theirs by chance: so one may sleep for as long as all others run.
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
    /// All others that are expected.
    Others,
}

pub(crate) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) choices: Choices,
    pub(super) seed: u64,
    pub(super) over: Condvar,
    pub(super) fates: Arc<dyn Fates>,
}

impl Shared {
    /// The calling thread hands the baton on, and gets it back.
    pub(super) fn turn(&self) {
        self.pass(None, true);
    }

    /// As [`Shared::turn`], before a call.
    pub(super) fn turn_to_call(&self, method: Method, on: &str) {
        let noticed = {
            let mut state = self.state.lock();
            state.count_call();
            match &state.style {
                Style::Every(step) => step.is_noticed(method, on),
                _ => true,
            }
        };
        self.pass(None, noticed);
    }

    /// As [`Shared::turn`], before a look at shared memory, which is no call.
    pub(super) fn turn_to_look(&self) {
        let every = matches!(self.state.lock().style, Style::Every(_));
        if every {
            self.pass(None, true);
        }
    }

    /// The calling thread waits for all others that are expected.
    pub(super) fn meet(&self) {
        let mut state = self.state.lock();
        state.awaited = state.awaited.saturating_sub(1);
        let met = state.awaited == 0;
        if met {
            state.release(On::Others);
        }
        drop(state);
        if met {
            self.pass(None, true);
        } else {
            self.pass(Some((On::Others, None)), true);
        }
    }

    /// The time as a process has it, which the calling thread has seen then.
    pub(super) fn now(&self, process: usize) -> Duration {
        let now = self.state.lock().now_of(process);
        self.saw(now.as_nanos() as u64);
        now
    }

    /// The calling thread blocks, unless `ready`, which is asked when nobody else runs.
    pub(super) fn block(&self, on: On, timeout: Option<Duration>, ready: impl Fn() -> bool) {
        if ready() || timeout.is_some_and(|timeout| timeout.is_zero()) {
            return self.pass(None, false);
        }
        self.pass(Some((on, timeout)), false);
    }

    fn pass(&self, block: Option<(On, Option<Duration>)>, noticed: bool) {
        let me = ME.get().expect("only threads of a world make its calls");
        let mut state = self.state.lock();
        let dead = state.is_dead(me);
        if let Some((_, timeout)) = block.filter(|_| dead) {
            state.pass_for_the_dead(me, timeout);
        }
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

    /// Once it has the baton a thread isn't where it was before: its history tells.
    #[expect(clippy::disallowed_methods, reason = "the scheduler is what blocks")]
    fn await_turn(&self, state: &mut MutexGuard<'_, State>, me: u64) {
        let Some(turn) = state.threads.get(&me).map(|thread| Arc::clone(&thread.turn)) else { return };
        while state.running != Some(me) {
            turn.wait(state);
        }
        if let Some(thread) = state.threads.get_mut(&me) {
            thread.history = mix(thread.history, 1);
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
