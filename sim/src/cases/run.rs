//! A case as a world, and all its runs.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use batchweave::Settings;

use super::fates::Once;
use super::judge::judge;
use super::{Case, Mishap};
use crate::Choices;
use crate::actors::{Allowed, Producing, Stage, ask, pass_segments, peek, produce};
use crate::explore::{Explored, Fingerprint, Notices, Search, explore};
use crate::fault::Method;
use crate::mount::{Class, Mount, Traits};
use crate::schedule::{Node, Style, World, mix, words_of};
use crate::simulation::base;
use crate::simulation::cast::Baton;

/// More calls than any run needs that ends.
const CALLS_MAX: u64 = 20_000;

/// A case that is about to run.
struct Assembled {
    world: World,
    stage: Arc<Stage>,
    fingerprint: Fingerprint,
}

pub(super) fn explore_case(case: &Case, runs_max: u64) -> Explored {
    let notices = notices(case);
    let search = Search { runs_max, prunes: true, is_noticed: Arc::clone(&notices) };
    let mut judged = HashSet::new();
    explore(&search, |choices, style| {
        let assembled = assemble(case, choices, style, &notices);
        let mut end = assembled.world.run();
        if end.trouble.is_some() || end.pruned {
            return (end, 0);
        }
        let digest = (assembled.fingerprint)();
        if judged.insert(digest) {
            end.trouble = judge_caught(case, &assembled.stage).err();
        }
        (end, digest)
    })
}

pub(super) fn story(case: &Case, decisions: Vec<u32>) -> String {
    let notices = notices(case);
    let search = Search { runs_max: 1, prunes: false, is_noticed: Arc::clone(&notices) };
    let mut told = String::new();
    let choices = Choices::replay(decisions);
    explore(&search, |_, style| {
        let assembled = assemble(case, &choices, style, &notices);
        let end = assembled.world.run();
        let trouble = end.trouble.clone().or_else(|| judge_caught(case, &assembled.stage).err());
        told = format!("{}: {}\n{}", case.name, trouble.unwrap_or_default(), assembled.world.story());
        (end, 0)
    });
    told
}

/// The oracle panics where replay can't go on.
fn judge_caught(case: &Case, stage: &Stage) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| judge(case, stage))).unwrap_or_else(|panic| Err(words_of(&*panic)))
}

fn assemble(
    case: &Case,
    choices: &Choices,
    style: &dyn Fn(Fingerprint) -> Style,
    notices: &Notices,
) -> Assembled {
    let kind =
        base::Kind { versions: case.base, synced: true, parts_per_step: 1, divisor: 1, linkless: false };
    let (memory, ledger, _) = base::fork(kind, false);
    let fates = Arc::new(Once {
        mishap: case.mishap,
        happened: AtomicBool::new(false),
        notices: Arc::clone(notices),
    });
    let mounts: Arc<parking_lot::Mutex<Vec<Mount>>> = Arc::default();
    let fingerprint: Fingerprint = {
        let (memory, ledger, mounts) = (memory.clone(), Arc::clone(&ledger), Arc::clone(&mounts));
        let fates = Arc::clone(&fates);
        Arc::new(move || {
            let known = [memory.whole_fingerprint(), ledger.fingerprint(), u64::from(fates.is_left())];
            let nodes = mounts.lock();
            let caches = nodes.iter().map(Mount::fingerprint);
            known.into_iter().chain(caches).fold(0, mix)
        })
    };
    let world = World::new(choices.clone(), style(Arc::clone(&fingerprint)), 1, CALLS_MAX, fates);
    let stage = Arc::new(Stage {
        path: PathBuf::from(base::PATH),
        options: base::options(kind),
        settings: Settings::new(),
        ledger,
        memory: memory.clone(),
        allowed: Allowed { failures: case.mishap == Mishap::LostReply, ..Allowed::default() },
        coverage: Arc::default(),
    });
    let node = |number: usize| {
        // A listing's order is nothing that the engine minds, and would double every history.
        let wild_one_in = if case.class == Class::CloseToOpen { 2 } else { 0 };
        let traits = Traits { reorders: false, wild_one_in, ..case.class.traits() };
        let pause = Arc::new(Baton(world.downgrade()));
        let mount = Mount::with_traits(memory.clone(), case.class, traits, choices.clone(), pause);
        mounts.lock().push(mount.clone());
        Node { number, storage: Arc::new(mount), years_off: 0 }
    };
    add_all(case, &world, &stage, node);
    Assembled { world, stage, fingerprint }
}

fn add_all(case: &Case, world: &World, stage: &Arc<Stage>, node: impl Fn(usize) -> Node) {
    let readers = usize::from(case.looks > 0) + usize::from(case.asks > 0);
    let passing = usize::from(case.passes > 0);
    world.expect(case.writers.len() + readers + passing);
    for (number, writer) in case.writers.iter().enumerate() {
        let stage = Arc::clone(stage);
        let plan = Producing {
            name: writer.name.to_owned(),
            parts: writer.parts,
            slices: 1,
            padding: 0,
            finishes: false,
            meets: writer.meets,
            ahead: 0,
            ring: Vec::new(),
            parts_per_turn: 0,
        };
        let name = format!("writer {number} of {}", writer.name);
        world.add(&node(number), &name, 0, move |process| produce(process, &stage, &plan));
    }
    if case.looks > 0 {
        let (stage, looks) = (Arc::clone(stage), case.looks);
        world.add(&node(case.writers.len()), "reader", 0, move |process| peek(process, &stage, looks));
    }
    if case.asks > 0 {
        let (stage, asks) = (Arc::clone(stage), case.asks);
        world.add(&node(case.writers.len() + 1), "asker", 0, move |process| ask(process, &stage, asks));
    }
    if case.passes > 0 {
        let (stage, passes) = (Arc::clone(stage), case.passes);
        world.add(&node(case.writers.len() + 2), "time", 0, move |process| {
            process.world.meet();
            for pass in 0..passes {
                if pass > 0 {
                    process.world.pause(u64::from(pass));
                }
                process.world.say("two segments pass, and what may be removed is".to_owned());
                pass_segments(&stage.memory, &stage, "others", u64::from(pass) + 1000)?;
            }
            Ok(())
        });
    }
}

/// Which calls of a case others notice. Its store is there, and nothing in it changes but by the engine's own
/// calls and by the removal of whole segments.
fn notices(case: &Case) -> Notices {
    let (all, removes, base, rings) = (case.plods, case.passes > 0, case.base, case.looks > 0);
    Arc::new(move |method, on| {
        // Its name is known to one process only, until it is linked, and after that has no meaning.
        let staged = on.starts_with("stage/") && !on.contains(" -> ");
        all || match method {
            Method::OpenRoot | Method::Mount | Method::MapWord | Method::Populate => false,
            // What has its final name doesn't change (R1), but an NFS server forgets what is removed. HEAD
            // changes, where there is one.
            Method::ReadAt | Method::WriteAt => (rings && on == "HEAD") || (removes && !staged),
            Method::Close | Method::Size | Method::Map | Method::SyncFile => removes && !staged,
            Method::SyncDir => removes && on.starts_with("log/"),
            // As long as it is there, what was linked from it isn't gone.
            Method::Remove if staged => removes,
            // The store's own directories stay what they are.
            Method::OpenDir => on.contains('/'),
            Method::Open if !removes && is_old(on, base) => false,
            Method::Open => on != "STORE" && !staged,
            // Nobody waits for the doorbell.
            Method::Wake => false,
            _ => !staged,
        }
    })
}

/// Whether this is a commit that was there before anybody came.
fn is_old(on: &str, base: u64) -> bool {
    let version = on.strip_prefix("log/").and_then(|path| path.split('/').nth(1));
    version.and_then(|version| version.parse::<u64>().ok()).is_some_and(|version| version < base)
}
