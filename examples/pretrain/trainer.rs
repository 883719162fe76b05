//! The trainer: four data-parallel shares as threads of one process, stepping together.
//!
//! It may die at any instruction. Its next life opens its group anew, which fences what may be left of this
//! one, and goes on from the model of the newest checkpoint, at exactly the step that this hasn't seen. A
//! rewind is as good as a death: it ends, and begins again from the newest checkpoint that is left.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Barrier, RwLock};
use std::time::{Duration, Instant};

use batchweave::{ConsumerOptions, ReclaimOptions, Run, Share, Store};
use serde::{Deserialize, Serialize};

use crate::corpus::Window;
use crate::job::{GROUP, Job, KEPT, PATIENCE, Result, Role, SAVE_EVERY, SHARES, Said, exit_code};
use crate::model::{Gradient, Model};
use crate::models::{self, Saved};

/// What no checkpoint needs is freed this often: far more often than a long run would.
const RECLAIM_EVERY: Duration = Duration::from_millis(200);

/// What was trained in a step: a line of the log, for the proof.
#[derive(Serialize, Deserialize)]
pub struct Trained {
    pub step: u64,
    /// Digest of the model that the step began with.
    pub model: u64,
    /// As bits.
    pub loss: u32,
    /// The windows that were delivered, share by share: their ids, and digests of their tokens.
    pub windows: Vec<(u64, u64)>,
    /// How long each share was in `next_batch`.
    pub waited_us: Vec<f64>,
}

/// The log of one life of the trainer. The last line is left out if the trainer died while writing it.
pub fn trained(run: &Path, life: usize) -> Result<Vec<Trained>> {
    let text = fs::read_to_string(run.join(format!("trained-{life}.jsonl")))?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// What a share brings into a step.
struct Brought {
    gradient: Gradient,
    windows: Vec<(u64, u64)>,
    waited_us: f64,
}

/// Where the shares meet in every step.
struct Meeting {
    brought: [RwLock<Option<Brought>>; SHARES],
    barrier: Barrier,
}

impl Meeting {
    /// Waits for all; gives the sum of all gradients, the same to each, and what is logged of the step.
    fn all_reduce(&self, index: usize, step: u64, mine: Brought) -> (Gradient, Trained) {
        *self.brought[index].write().expect("no share panics") = Some(mine);
        self.barrier.wait();
        let mut sum = Gradient::zero();
        let mut trained = Trained { step, model: 0, loss: 0, windows: Vec::new(), waited_us: Vec::new() };
        // Always in the order of the shares: floating-point sums depend on it.
        for brought in &self.brought {
            let brought = brought.read().expect("no share panics");
            let brought = brought.as_ref().expect("every share came");
            sum.add(&brought.gradient);
            trained.windows.extend(&brought.windows);
            trained.waited_us.push(brought.waited_us);
        }
        trained.loss = sum.mean_loss().to_bits();
        self.barrier.wait();
        (sum, trained)
    }
}

pub fn train(job: &Job) -> Result<()> {
    // One handle for all threads: they share its view of the store, its waiting and its mapped files.
    let store = Store::open(&job.store)?;
    let saved = Saved::newest(&store, &job.run)?;
    let model = saved.as_ref().map_or_else(Model::new, Saved::model);
    let run = store.group(GROUP)?.begin(saved.map(|saved| saved.position))?;
    models::delete_unmarked(&store, &models::directory(&job.run))?;
    let _reclaimer = store.reclaim_in_background(ReclaimOptions::new().keep(KEPT), RECLAIM_EVERY)?;

    let meeting = Meeting { brought: [const { RwLock::new(None) }; SHARES], barrier: Barrier::new(SHARES) };
    // A share that stops would leave the others at the barrier for ever, so it takes the process with it.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::exit(101);
    }));
    std::thread::scope(|scope| {
        for index in 0..SHARES {
            let (store, run, meeting, model) = (&store, &run, &meeting, model.clone());
            scope.spawn(move || {
                if let Err(error) = train_share(job, store, run, meeting, index, model) {
                    std::process::exit(exit_code(Role::Trainer, &error).into());
                }
            });
        }
    });
    Ok(())
}

/// The loop of one share, as of one rank of a large job.
fn train_share(
    job: &Job,
    store: &Store,
    run: &Run,
    meeting: &Meeting,
    index: usize,
    mut model: Model,
) -> Result<()> {
    let share = Share::new(index as u32, SHARES as u32)?;
    let mut batches = run.consumer_with(share, ConsumerOptions::new().timeout(PATIENCE))?;
    let path = job.run.join(format!("trained-{}.jsonl", job.life));
    let mut log = OpenOptions::new().append(true).create(true).open(path)?;
    loop {
        let asked = Instant::now();
        // None: the stream is closed, for every share after the same step.
        let Some(batch) = batches.next_batch()? else { return Ok(()) };
        let waited_us = asked.elapsed().as_secs_f64() * 1e6;
        let mut mine = Brought { gradient: Gradient::zero(), windows: Vec::new(), waited_us };
        for slice in batch.slices() {
            for window in Window::all_in(&slice?) {
                mine.windows.push((window.id, window.digest()));
                model.learn(window.tokens, &mut mine.gradient);
            }
        }
        let step = batch.step().get();
        let (gradient, mut trained) = meeting.all_reduce(index, step, mine);
        if index == 0 {
            trained.model = model.digest();
            log.write_all(format!("{}\n", serde_json::to_string(&trained)?).as_bytes())?;
        }
        model.step(&gradient);
        if index == 0 {
            if (step + 1).is_multiple_of(SAVE_EVERY) {
                models::save(store, run, &models::directory(&job.run), batch.position(), &model)?;
            }
            Said::Trained { step, loss: gradient.mean_loss() }.say()?;
        }
    }
}
