//! The window of a consumer: steps that are read and verified ahead, and the thread that does it.
//!
//! - The window is bounded in steps and bytes; it always admits one step, however large.
//! - While the consumer waits for the log itself the thread stays out of its way; while it is away the thread
//!   waits and reads for it.
//! - A panic in the thread poisons the consumer, so that nobody waits for the dead.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::batch::Batch;
use super::options::ConsumerOptions;
use super::reader::{Reader, View, Want, bytes_of};
use super::together::Desk;
use super::waiting::Wait;
use crate::env::Signal;
use crate::error::Result;
use crate::id::Step;
use crate::limits::{DOORBELL_WAIT_MAX, HUNGRY_LOOK, PREFETCH_LINGER};
use crate::log::patience::AT_ONCE;
use crate::share::Share;

/// What a consumer and its thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) reader: Arc<Reader>,
    pub(super) view: View,
    pub(super) share: Share,
    pub(super) window: Mutex<Window>,
    /// What the thread is reading, for the consumer to help.
    pub(super) desk: Desk,
    /// The thread looks again.
    pub(super) work: Arc<dyn Signal>,
    /// The consumer looks again.
    pub(super) ready: Arc<dyn Signal>,
}

#[derive(Debug)]
pub(super) struct Window {
    /// Each with its bytes: counting them anew at the hand-out would fetch all slices from the thread's
    /// cache.
    pub(super) ready: VecDeque<(u64, Result<Batch>)>,
    pub(super) bytes: u64,
    /// The next step to be read by whoever comes first.
    pub(super) next: Step,
    /// The thread is reading the step that is delivered before `next`.
    pub(super) loading: bool,
    /// The step that the consumer is waiting for itself.
    pub(super) hungry: Option<Step>,
    /// The consumer is gone.
    pub(super) stopped: bool,
    /// The thread has panicked.
    pub(super) poisoned: bool,
}

impl Shared {
    pub(super) fn new(reader: Arc<Reader>, view: View, share: Share, start: Step) -> Self {
        let env = Arc::clone(&reader.log.env);
        let window = Window {
            ready: VecDeque::new(),
            bytes: 0,
            next: view.past(start),
            loading: false,
            hungry: None,
            stopped: false,
            poisoned: false,
        };
        let (work, ready) = (env.signal(), env.signal());
        let desk = Desk::new(&*env, Arc::clone(&ready));
        Self { reader, view, share, window: Mutex::new(window), desk, work, ready }
    }

    pub(super) fn load(&self, step: Step, desk: Option<&Desk>, until: Duration) -> Result<Batch> {
        self.reader.load(step, self.share, self.view.generation, Want::Slices(desk), until)
    }

    /// The step that is delivered after this one.
    pub(super) fn after(&self, step: Step) -> Step {
        self.view.past(step.next())
    }
}

/// Says that the consumer waits for the log itself, as long as it lives.
pub(super) struct Hungry<'c>(&'c Shared);

impl<'c> Hungry<'c> {
    pub(super) fn new(shared: &'c Shared, step: Step) -> Self {
        shared.window.lock().hungry = Some(step);
        Self(shared)
    }
}

impl Drop for Hungry<'_> {
    fn drop(&mut self) {
        // Without a wake-up, which would come before the batch is in the caller's hands: the thread looks
        // by itself.
        self.0.window.lock().hungry = None;
    }
}

/// Poisons the window if the thread panics.
struct Alive<'c>(&'c Shared);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        let mut window = self.0.window.lock();
        window.poisoned |= std::thread::panicking();
        window.loading = false;
        drop(window);
        self.0.ready.notify();
    }
}

/// What the thread does next.
enum Task {
    Load(Step),
    AwaitConsumer,
    AwaitHungry,
    AwaitLog(Step),
    Stop,
}

/// The thread's life.
pub(super) fn prefetch(shared: &Arc<Shared>, options: &ConsumerOptions) {
    let _alive = Alive(shared);
    let mut idle = Duration::ZERO;
    let mut lingered = false;
    loop {
        let seen = shared.work.current();
        match next_task(shared, options) {
            Task::Stop => return,
            Task::Load(step) => {
                let loaded = shared.load(step, Some(&shared.desk), shared.reader.log.patient_until());
                deliver(shared, step, loaded);
                (idle, lingered) = (Duration::ZERO, false);
            }
            Task::AwaitConsumer => {
                shared.work.wait(seen, None);
                lingered = false;
            }
            Task::AwaitHungry => {
                shared.work.wait(seen, Some(HUNGRY_LOOK));
                lingered = false;
            }
            // The consumer may be back at once, and then it waits for itself.
            Task::AwaitLog(_) if !lingered => lingered = !shared.work.wait(seen, Some(PREFETCH_LINGER)),
            Task::AwaitLog(step) => {
                let began = shared.reader.log.env.now();
                let wait = Wait { waited: idle, at_most: DOORBELL_WAIT_MAX, until: AT_ONCE };
                if let Err(error) = shared.reader.await_growth(step, &wait) {
                    // The consumer meets the same error when it looks, outlasts it or says so.
                    tracing::debug!(%error, "reading ahead waits for the consumer");
                    shared.work.wait(seen, None);
                }
                idle = idle.saturating_add(shared.reader.log.env.now().saturating_sub(began));
            }
        }
    }
}

fn next_task(shared: &Shared, options: &ConsumerOptions) -> Task {
    let horizon = shared.reader.horizon();
    let mut window = shared.window.lock();
    let step = window.next;
    let full = window.ready.len() >= options.window_steps
        || (window.bytes >= options.window_bytes && !window.ready.is_empty());
    let failed = window.ready.back().is_some_and(|(_, loaded)| loaded.is_err());
    let ended = shared.view.end(&horizon).is_some_and(|end| end <= step);
    if window.stopped {
        Task::Stop
    } else if full || failed || ended || horizon.generation != shared.view.generation {
        Task::AwaitConsumer
    } else if window.hungry == Some(step) {
        Task::AwaitHungry
    } else if horizon.next_step > step {
        window.loading = true;
        window.next = shared.after(step);
        Task::Load(step)
    } else if window.hungry.is_some() {
        Task::AwaitHungry
    } else {
        Task::AwaitLog(step)
    }
}

/// Hands a step over, unless the window was begun again meanwhile at another one: then nobody waits for it.
fn deliver(shared: &Shared, step: Step, loaded: Result<Batch>) {
    let bytes = loaded.as_ref().map_or(0, bytes_of);
    let mut window = shared.window.lock();
    window.loading = false;
    // While the thread reads, nobody else moves `next` on.
    if window.next == shared.after(step) {
        window.bytes = window.bytes.saturating_add(bytes);
        window.ready.push_back((bytes, loaded));
    }
    drop(window);
    shared.ready.notify();
}
