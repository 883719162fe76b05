//! One simulated run: a seed draws the filesystem, the processes, what they do and what goes wrong; the
//! oracle holds what comes of it against the promises.
//!
//! - [`simulate`] makes a run of a seed, [`repeat`] makes it again from its decisions, [`shrink`] looks for
//!   tamer decisions that go wrong too.
//! - The set-up is drawn like everything else, so it is shrunk like everything else.

pub(crate) mod base;
pub(crate) mod cast;
mod hunt;
mod life;
mod setup;
mod shrink;
mod workers;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub use self::hunt::hunt;
pub use self::life::{Life, Operator, Trainer};
pub use self::setup::{Setup, Shape};
pub use self::shrink::shrink;
pub use self::workers::{jobs, on_cores};
use crate::coverage::Coverage;
use crate::coverage::Met;
use crate::oracle::{examine, examine_after_power_cut, examine_reclaimed, examine_tail, goes_on, took_turns};
use crate::schedule::{Story, words_of};
use crate::{Choices, Taken};

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its seed: of the entropy, and of the decisions unless they were given.
    pub seed: u64,
    /// What it drew.
    pub setup: Setup,
    /// The first promise that was broken; none if all were kept.
    pub trouble: Option<String>,
    /// Its decisions.
    pub decisions: Vec<Taken>,
    /// What happened.
    pub story: Story,
    /// Storage calls of all processes.
    pub calls: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trouble = self.trouble.as_deref().unwrap_or("all promises are kept");
        let wild = self.decisions.iter().filter(|taken| taken.answer > 0).count();
        writeln!(f, "seed {}: {trouble}", self.seed)?;
        writeln!(f, "{:?}", self.setup)?;
        writeln!(f, "{} decisions, {wild} of them not tame; {} calls", self.decisions.len(), self.calls)?;
        write!(f, "{}", self.story)
    }
}

/// Makes the run of a seed, of any shape, or of the given one.
pub fn simulate(seed: u64, shape: Option<Shape>, coverage: &Arc<Coverage>) -> Report {
    run(seed, shape, Choices::random(seed), coverage)
}

/// Makes a run again, from its decisions.
pub fn repeat(seed: u64, shape: Option<Shape>, decisions: Vec<u32>) -> Report {
    run(seed, shape, Choices::replay(decisions), &Arc::default())
}

fn run(seed: u64, shape: Option<Shape>, choices: Choices, coverage: &Arc<Coverage>) -> Report {
    let setup = Setup::draw(shape, &choices);
    let cast = cast::Cast::assemble(&setup, seed, &choices, coverage);
    let end = cast.world.run();
    let judged = || catch_unwind(AssertUnwindSafe(|| judge(&setup, &cast, &choices)));
    let trouble = end.trouble.or_else(|| match judged() {
        Ok(judged) => judged.err(),
        Err(panic) => Some(words_of(&*panic)),
    });
    Report {
        seed,
        setup,
        trouble,
        decisions: choices.taken(),
        story: cast.world.take_story(),
        calls: end.calls,
    }
}

/// What is left when everybody has ended.
fn judge(setup: &Setup, cast: &cast::Cast, choices: &Choices) -> Result<(), String> {
    let stage = &cast.stage;
    cast.damage.mend(&stage.memory)?;
    if setup.shape == Shape::Sleepers {
        if setup.synced {
            let copy = stage.memory.fork();
            let odds = *choices.one_of(&[0, 2, 4, 1]);
            copy.power_cut_keeping(|_| choices.chance(odds));
            examine_tail(&copy, &stage.path, &stage.ledger)
                .map_err(|what| format!("after a power cut: {what}"))?;
        }
        return examine_tail(&stage.memory, &stage.path, &stage.ledger);
    }
    let replayed = examine(&stage.memory, &stage.path, &stage.ledger)?;
    if setup.shape == Shape::Turns && replayed.is_some_and(|replayed| took_turns(&replayed.turns)) {
        stage.coverage.met(Met::TurnsTaken, 1);
    }
    goes_on(&stage.memory, &stage.path, &stage.ledger)?;
    if setup.shape == Shape::Lifecycle {
        stage.coverage.met(Met::NameGivenAgain, stage.memory.names_given_again());
        examine_reclaimed(&stage.memory, &stage.path, &stage.ledger, setup.synced.then_some(choices))?;
    }
    // What was damaged was mended by hand, which nobody syncs.
    if setup.synced && setup.shape != Shape::Damage {
        examine_after_power_cut(&stage.memory, &stage.path, &stage.ledger, choices)?;
    }
    Ok(())
}
