//! The trainer: four data-parallel shares as threads of one process, stepping together.
//!
//! It may die at any instruction. What it saves, model and position in one file, is a pair: whoever starts
//! from the model goes on at exactly the step that the model hasn't seen.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Barrier, RwLock};
use std::time::Instant;

use batchweave::{Position, Run, Share, Store};
use serde::{Deserialize, Serialize};

use crate::corpus::Window;
use crate::job::{Job, Result, SAVE_EVERY, SHARES, Said};
use crate::model::{Gradient, Model};

/// A model, and the position of the first step that it hasn't seen.
#[derive(Serialize, Deserialize)]
pub struct Saved {
    pub position: Position,
    /// As bits, so that what is loaded is what was saved to the last one.
    weights: Vec<u32>,
}

impl Saved {
    fn new(position: Position, model: &Model) -> Self {
        Self { position, weights: model.weights.iter().map(|weight| weight.to_bits()).collect() }
    }

    fn model(&self) -> Model {
        Model { weights: self.weights.iter().map(|bits| f32::from_bits(*bits)).collect() }
    }

    /// What was saved last, if anything.
    pub fn load(run: &Path) -> Result<Option<Self>> {
        let path = run.join("saved.json");
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&fs::read(path)?)?))
    }

    /// All of it or nothing: written and synced beside, then renamed over the old one.
    fn save(&self, run: &Path) -> Result<()> {
        let beside = run.join("saved.json.new");
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(&beside, run.join("saved.json"))?;
        Ok(File::open(run)?.sync_all()?)
    }
}

/// What was trained in a step: a line of the log, for the proof.
#[derive(PartialEq, Serialize, Deserialize)]
pub struct Trained {
    pub step: u64,
    /// As bits.
    pub loss: u32,
    /// The windows that were delivered, share by share.
    pub ids: Vec<u64>,
    /// How long each share was in `next_batch`.
    pub waited_us: Vec<f64>,
}

/// The log of one life of the trainer. The last line is left out if the trainer died while writing it.
pub fn trained(run: &Path, life: u32) -> Result<Vec<Trained>> {
    let text = fs::read_to_string(run.join(format!("trained-{life}.jsonl")))?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// What a share brings into a step.
struct Brought {
    gradient: Gradient,
    ids: Vec<u64>,
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
        let mut trained = Trained { step, loss: 0, ids: Vec::new(), waited_us: Vec::new() };
        // Always in the order of the shares: floating-point sums depend on it.
        for brought in &self.brought {
            let brought = brought.read().expect("no share panics");
            let brought = brought.as_ref().expect("every share came");
            sum.add(&brought.gradient);
            trained.ids.extend(&brought.ids);
            trained.waited_us.push(brought.waited_us);
        }
        trained.loss = sum.mean_loss().to_bits();
        self.barrier.wait();
        (sum, trained)
    }
}

pub fn train(job: &Job) -> Result<()> {
    let saved = Saved::load(&job.run)?;
    let model = saved.as_ref().map_or_else(Model::new, Saved::model);
    // One handle for all threads: they share its view of the store, its waiting and its mapped files.
    let run = Store::open(&job.store)?.run(saved.map(|saved| saved.position))?;
    let meeting = Meeting { brought: [const { RwLock::new(None) }; SHARES], barrier: Barrier::new(SHARES) };
    // A share that stops would leave the others at the barrier for ever, so it takes the process with it.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::exit(101);
    }));
    std::thread::scope(|scope| {
        for index in 0..SHARES {
            let (run, meeting, model) = (&run, &meeting, model.clone());
            scope.spawn(move || {
                if let Err(error) = train_share(job, run, meeting, index, model) {
                    eprintln!("trainer, share {index}: {error}");
                    std::process::exit(1);
                }
            });
        }
    });
    Ok(())
}

/// The loop of one share, as of one rank of a large job.
fn train_share(job: &Job, run: &Run, meeting: &Meeting, index: usize, mut model: Model) -> Result<()> {
    let mut batches = run.consumer(Share::new(index as u32, SHARES as u32)?)?;
    let path = job.run.join(format!("trained-{}.jsonl", job.life));
    let mut log = OpenOptions::new().append(true).create(true).open(path)?;
    loop {
        let asked = Instant::now();
        // None: the stream is closed, for every share after the same step.
        let Some(batch) = batches.next_batch()? else { return Ok(()) };
        let waited_us = asked.elapsed().as_secs_f64() * 1e6;
        let mut mine = Brought { gradient: Gradient::zero(), ids: Vec::new(), waited_us };
        for slice in batch.slices() {
            for window in Window::all_in(&slice?) {
                mine.ids.push(window.id);
                model.learn(window.tokens, &mut mine.gradient);
            }
        }
        let step = batch.step().get();
        let (gradient, trained) = meeting.all_reduce(index, step, mine);
        model.step(&gradient);
        if index == 0 {
            log.write_all(format!("{}\n", serde_json::to_string(&trained)?).as_bytes())?;
            if (step + 1).is_multiple_of(SAVE_EVERY) {
                Saved::new(batch.position(), &model).save(&job.run)?;
            }
            Said::Trained { step, loss: gradient.mean_loss() }.say()?;
        }
    }
}
