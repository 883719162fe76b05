//! Many runs at a time, each worker with all threads of its run on one core.
//!
//! - The threads of a run hand a baton to each other, one of them running at a time: on one core that costs
//!   half of what it costs across two.

use std::panic::resume_unwind;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Does `work` on so many threads, each kept to a core of its own as long as there are any; gives what each
/// came to. A panic of one goes on in the caller.
pub fn on_cores<T: Send>(jobs: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    let (cores, work) = (cores(), &work);
    thread::scope(|scope| {
        let worker = |job: usize| {
            let core = cores.get(job % cores.len().max(1)).copied();
            scope.spawn(move || {
                core.into_iter().for_each(pin);
                work()
            })
        };
        let workers: Vec<_> = (0..jobs).map(worker).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// How many workers there is a core for.
pub fn jobs() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The cores that this process may use; none where the system doesn't say.
fn cores() -> Vec<usize> {
    let allowed = sched_getaffinity(None);
    let is_in = |core: &usize| allowed.as_ref().is_ok_and(|allowed| allowed.is_set(*core));
    (0..CpuSet::MAX_CPU).filter(is_in).collect()
}

/// Keeps the calling thread, and those that it starts, to one core. Where that isn't allowed, runs are slow.
fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}
