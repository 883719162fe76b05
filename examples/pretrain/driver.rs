//! The driver: starts the producers and the trainer, kills some of them on the way, rewinds the store under
//! them all, starts again who ended by that, and ends the stream.
//!
//! What happens when is decided by progress, which the children report line by line, never by time.

use std::path::Path;
use std::time::{Duration, Instant};

use batchweave::{RewindOptions, RewindReport, Store};

use crate::corpus::Corpus;
use crate::crew::{Crew, Death, Heard};
use crate::job::{PARTITIONS, Result, Role, SAVE_EVERY, Said, producer_name};
use crate::models::checkpoints;
use crate::screen::Screen;

/// The producer that is killed.
const VICTIM: Role = Role::Producer(1);

/// What happened.
pub struct Driven {
    /// Who was killed when, what was rewound, and where everybody went on.
    pub events: Vec<String>,
    /// Where the trainer's lives began: each at the step of the newest checkpoint that there was.
    pub begins: Vec<u64>,
    pub rewound: RewindReport,
    /// From the start to the end of the last producer.
    pub published_in: Duration,
    /// From the start to the end of the trainer.
    pub trained_in: Duration,
}

pub fn drive(corpus: &Corpus, store: &Store, run: &Path) -> Result<Driven> {
    // Halfway between two saves, so that the steps since the last one are trained again.
    let between_saves = |step: u64| step / SAVE_EVERY * SAVE_EVERY + SAVE_EVERY / 2;
    let mut driver = Driver {
        store,
        crew: Crew::new(store, run),
        screen: Screen::new(corpus),
        victim_dies_at: corpus.batches(1) / 3,
        trainer_dies_at: between_saves(corpus.steps() / 4),
        rewinds_at: between_saves(corpus.steps() / 2),
        events: Vec::new(),
        begins: Vec::new(),
        rewound: None,
        began: Instant::now(),
        published_in: Duration::ZERO,
    };
    (0..PARTITIONS).try_for_each(|partition| driver.crew.start(Role::Producer(partition)))?;
    driver.start_trainer()?;
    while driver.crew.runs(Role::Trainer) {
        match driver.crew.hear()? {
            (role, Heard::Said(said)) => driver.on_word(role, said)?,
            (role, Heard::Ended) => driver.on_end(role)?,
        }
    }
    driver.screen.finish();
    let early = || "the trainer was done before the store was rewound; give it more text";
    Ok(Driven {
        events: driver.events,
        begins: driver.begins,
        rewound: driver.rewound.ok_or_else(early)?,
        published_in: driver.published_in,
        trained_in: driver.began.elapsed(),
    })
}

struct Driver<'d> {
    store: &'d Store,
    crew: Crew<'d>,
    screen: Screen,
    /// After so many of its batches.
    victim_dies_at: u64,
    /// After these steps.
    trainer_dies_at: u64,
    rewinds_at: u64,
    events: Vec<String>,
    begins: Vec<u64>,
    rewound: Option<RewindReport>,
    began: Instant,
    published_in: Duration,
}

impl Driver<'_> {
    fn event(&mut self, what: String) {
        self.screen.say(&what);
        self.events.push(what);
    }

    fn on_word(&mut self, role: Role, said: Said) -> Result<()> {
        self.screen.show(role, &said);
        let due = match said {
            Said::Opened { batches: 0 } => false,
            Said::Opened { .. } => {
                self.event(format!("{role} goes on {said}"));
                false
            }
            Said::Published { batches } => role == VICTIM && batches >= self.victim_dies_at,
            Said::Trained { step, .. } => step >= self.trainer_dies_at,
        };
        if due && self.crew.kill(role)? {
            self.event(format!("{role} killed (SIGKILL) {said}"));
        }
        let resumed = self.begins.len() == 2;
        match said {
            Said::Trained { step, .. } if resumed && step >= self.rewinds_at && self.rewound.is_none() => {
                self.rewind(step)
            }
            _ => Ok(()),
        }
    }

    fn on_end(&mut self, role: Role) -> Result<()> {
        match (self.crew.bury(role)?, role) {
            (Death::Rewound, _) if self.rewound.is_none() => {
                Err(format!("{role} says that the store was rewound, but nobody did that").into())
            }
            (Death::Killed, Role::Producer(_)) => self.crew.start(role),
            (Death::Rewound, Role::Producer(_)) => {
                self.event(format!("{role} was fenced by the rewind"));
                self.crew.start(role)
            }
            // It retired its name, and the rewind took that back.
            (Death::Natural, Role::Producer(partition)) if !self.has_finished(partition)? => {
                self.crew.start(role)
            }
            (Death::Natural, Role::Producer(_)) => {
                self.screen.say(&format!("{role} has finished"));
                self.close_if_all_finished()
            }
            (Death::Killed | Death::Rewound, Role::Trainer) => self.start_trainer(),
            (Death::Natural, Role::Trainer) => Ok(()),
        }
    }

    fn start_trainer(&mut self) -> Result<()> {
        let newest = checkpoints(self.store)?.pop();
        if let Some(newest) = &newest {
            self.event(format!("trainer goes on from checkpoint {}", newest.name));
        }
        self.begins.push(newest.map_or(0, |newest| newest.position.step.get()));
        self.crew.start(Role::Trainer)
    }

    /// Takes back the newest steps while everybody runs, as if a run had gone wrong: those since the newest
    /// checkpoint. That one stays until two more have been made, however late this is.
    fn rewind(&mut self, trained: u64) -> Result<()> {
        // With at least one step that was trained for certain, since its windows have to come again.
        let beyond = |step: u64| step <= trained;
        let Some(to) = checkpoints(self.store)?.pop().filter(|to| beyond(to.position.step.get())) else {
            return Ok(());
        };
        let rewound = self.store.rewind(to.position.step, RewindOptions::new())?;
        if checkpoints(self.store)?.pop().is_none_or(|newest| newest.name != to.name) {
            return Err(format!("checkpoint {} went before the store was rewound to it", to.name).into());
        }
        let (from, parts, generation) = (rewound.next_step, rewound.parts, rewound.generation);
        self.event(format!(
            "store rewound from step {from} to {}: {parts} batches dropped, generation {generation}",
            to.name
        ));
        self.rewound = Some(rewound);
        // Who had finished already may have something to do again.
        for partition in 0..PARTITIONS {
            if !self.crew.runs(Role::Producer(partition)) && !self.has_finished(partition)? {
                self.crew.start(Role::Producer(partition))?;
            }
        }
        Ok(())
    }

    fn has_finished(&self, partition: usize) -> Result<bool> {
        let name = producer_name(partition);
        let known = self.store.producers()?;
        Ok(known.iter().any(|producer| producer.name.as_str() == name && producer.finished))
    }

    fn close_if_all_finished(&mut self) -> Result<()> {
        for partition in 0..PARTITIONS {
            if !self.has_finished(partition)? {
                return Ok(());
            }
        }
        self.store.close(false)?;
        self.published_in = self.began.elapsed();
        self.screen.say(&format!("stream closed at step {}", self.store.info()?.next_step));
        Ok(())
    }
}
