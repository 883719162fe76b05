//! The processes of a run, on their nodes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use batchweave::Settings;
use parking_lot::Mutex;

use super::base;
use super::life::Trainer;
use super::setup::{Setup, Shape};
use crate::Choices;
use crate::actors::{
    Allowed, Consuming, Meets, Operating, Producing, Running, Saved, Stage, Training, await_open, close,
    consume, inspect, join, operate, pass_segments, produce, train, watch,
};
use crate::coverage::Coverage;
use crate::damage::Damage;
use crate::faults::{Faults, Next};
use crate::mount::{Links, Mount, Pause, Traits};
use crate::schedule::{Node, World};

/// More calls than any run needs that ends.
const CALLS_MAX: u64 = 40_000;
/// ... than one of the lifecycle does.
const LIFECYCLE_CALLS_MAX: u64 = 200_000;
/// How many steps a trainer reads in one life: more than there are.
const TRAINED: u64 = 200;

/// All that a run is made of.
pub(super) struct Cast {
    pub(super) world: World,
    pub(super) stage: Arc<Stage>,
    pub(super) damage: Arc<Damage>,
}

impl Cast {
    pub(super) fn assemble(setup: &Setup, seed: u64, choices: &Choices, coverage: &Arc<Coverage>) -> Self {
        let (memory, ledger, base_parts) = base::fork(setup.store(), setup.shape == Shape::Lifecycle);
        let damage = Arc::new(Damage::new(setup.base));
        let faults = Arc::new(Faults {
            kinds: setup.wrongs.clone(),
            next: Mutex::new(Next { left: setup.faults, wrong: None }),
            memory: memory.clone(),
            root: base::PATH.to_owned(),
            mounts: Mutex::default(),
            ledger: Arc::clone(&ledger),
            parts_per_step: u64::from(setup.parts_per_step),
            damage: Arc::clone(&damage),
            coverage: Arc::clone(coverage),
        });
        let lives = setup.shape == Shape::Lifecycle;
        let calls_max = if lives { LIFECYCLE_CALLS_MAX } else { CALLS_MAX };
        let world = World::new(choices.clone(), setup.style.clone(), seed, calls_max, faults.clone());
        let readers_node = usize::from(setup.read_only);
        let nodes: Vec<Node> = (0..setup.nodes + readers_node)
            .map(|number| {
                let pause = Arc::new(Baton(world.downgrade()));
                let (links, wild_one_in) = (setup.links, setup.wild_one_in);
                let read_only = number >= setup.nodes;
                let traits = Traits { links, wild_one_in, read_only, ..setup.class.traits() };
                let mount = Mount::with_traits(memory.clone(), setup.class, traits, choices.clone(), pause);
                faults.mounts.lock().push(mount.clone());
                let years_off = i64::from(*choices.one_of(&[0, 10, -10]));
                Node { number, storage: Arc::new(mount), years_off }
            })
            .collect();
        let stage = Arc::new(Stage {
            path: PathBuf::from(base::PATH),
            options: base::options(setup.store()),
            settings: setup.io_patience.map_or(Settings::new(), |most| Settings::new().io_patience(most)),
            ledger,
            memory,
            allowed: Allowed {
                // Without links a sleeper's only copy may be removed with the segment that it got a name in.
                failures: setup.faults > 0 && !setup.life.calm
                    || (setup.passes > 0 || lives) && setup.links == Links::Nowhere,
                damage: setup.shape == Shape::Damage,
                closes: setup.closers > 0,
                stale: lives && setup.io_patience.is_some(),
            },
            coverage: Arc::clone(coverage),
        });
        let cast = Self { world, stage, damage };
        cast.add_all(setup, &nodes, base_parts, choices);
        cast
    }

    fn add_all(&self, setup: &Setup, nodes: &[Node], base_parts: u64, choices: &Choices) {
        let on = || &nodes[choices.pick(setup.nodes as u32) as usize];
        let reads_on = || if setup.read_only { &nodes[setup.nodes] } else { on() };
        let ring: BTreeSet<&str> = setup.writers.iter().map(|writer| writer.name).collect();
        let ring = ring.into_iter().filter(|_| setup.parts_per_turn > 0);
        let ring: Vec<String> = ring.map(str::to_owned).collect();
        for (number, writer) in setup.writers.iter().enumerate() {
            let stage = Arc::clone(&self.stage);
            let plan = Producing {
                name: writer.name.to_owned(),
                parts: writer.parts,
                slices: setup.divisor,
                padding: writer.padding,
                finishes: writer.finishes,
                meets: Meets::Never,
                ahead: setup.ahead,
                ring: ring.clone(),
                parts_per_turn: setup.parts_per_turn,
            };
            let name = format!("producer {} {number}", writer.name);
            self.world.add(on(), &name, writer.restarts, move |process| produce(process, &stage, &plan));
        }
        let of_name = |name| {
            let named = setup.writers.iter().filter(|writer| writer.name == name);
            named.map(|writer| writer.parts).max().unwrap_or(0)
        };
        let named = ["a", "b", "c"].map(of_name).iter().sum::<u64>();
        let steps = (base_parts + named) / u64::from(setup.parts_per_step);
        for (number, reader) in setup.readers.iter().enumerate() {
            let stage = Arc::clone(&self.stage);
            let plan = Consuming {
                steps,
                window: reader.window,
                ranks: reader.ranks,
                saved: Arc::default(),
                saves_every: reader.saves_every,
            };
            let name = format!("consumer {number}");
            self.world
                .add(reads_on(), &name, reader.restarts, move |process| consume(process, &stage, &plan));
        }
        if setup.inspections > 0 {
            let (stage, times, synced) = (Arc::clone(&self.stage), setup.inspections, setup.synced);
            self.world.add(on(), "inspector", 0, move |process| inspect(process, &stage, times, synced));
        }
        for number in 0..setup.watchers {
            let stage = Arc::clone(&self.stage);
            let name = format!("watcher {number}");
            self.world.add(reads_on(), &name, 1, move |process| watch(process, &stage, 4));
        }
        for number in 0..setup.closers {
            let stage = Arc::clone(&self.stage);
            let name = format!("closer {number}");
            self.world.add(on(), &name, 1, move |process| {
                process.env().sleep(Duration::from_millis(u64::from(process.world.choices().pick(100))));
                close(process, &stage)
            });
        }
        if setup.passes > 0 {
            self.add_time(setup, on());
        }
        self.add_life(setup, on, reads_on);
    }

    /// Who lets segments pass.
    fn add_time(&self, setup: &Setup, node: &Node) {
        let (stage, passes) = (Arc::clone(&self.stage), setup.passes);
        // Runs of the lifecycle take longer.
        let unit = Duration::from_micros(if setup.shape == Shape::Lifecycle { 100 } else { 20 });
        self.world.add(node, "time", 0, move |process| {
            for pass in 0..passes {
                let pause = process.world.choices().pick(200);
                process.env().sleep(unit * pause);
                if !await_open(process, &stage)? {
                    break;
                }
                process.world.say("two segments pass, and what may be removed is".to_owned());
                pass_segments(&stage.memory, &stage, "others", u64::from(pass) + 1000)?;
            }
            Ok(())
        });
    }

    /// Who trains, joins and operates.
    fn add_life<'n>(&self, setup: &Setup, on: impl Fn() -> &'n Node, reads_on: impl Fn() -> &'n Node) {
        let groups = ["g", "h"].map(|name| (name, Arc::<Saved>::default()));
        let plan_of = |trainer: &Trainer| {
            let known = groups.iter().find(|(name, _)| trainer.group == Some(*name));
            Training {
                group: trainer.group.map(str::to_owned),
                steps: TRAINED,
                window: trainer.window,
                ranks: trainer.ranks,
                saves_one_in: trainer.saves_one_in,
                checkpoints_one_in: trainer.checkpoints_one_in,
                retains: trainer.retains,
                retires: trainer.retires,
                saved: known.map(|(_, saved)| Arc::clone(saved)).unwrap_or_default(),
            }
        };
        for (number, trainer) in setup.life.trainers.iter().enumerate() {
            let (stage, plan) = (Arc::clone(&self.stage), plan_of(trainer));
            let name = format!("trainer {} {number}", trainer.group.unwrap_or("of no group"));
            // Who only reads may do so from where nothing can be written.
            let node = if trainer.group.is_none() { reads_on() } else { on() };
            let late = Duration::from_millis(trainer.late_ms.into());
            self.world.add(node, &name, trainer.restarts, move |process| {
                process.env().sleep(late);
                train(process, &stage, &plan)
            });
        }
        for number in 0..setup.life.joiners {
            let Some(first) = setup.life.trainers.iter().find(|trainer| trainer.group.is_some()) else {
                break;
            };
            let (stage, plan) = (Arc::clone(&self.stage), plan_of(first));
            let name = format!("rank {number}");
            self.world.add(reads_on(), &name, 1, move |process| join(process, &stage, &plan));
        }
        let running = Arc::<Running>::default();
        for (number, operator) in setup.life.operators.iter().enumerate() {
            let stage = Arc::clone(&self.stage);
            let plan = Operating {
                word: operator.word,
                times: operator.times,
                running: Arc::clone(&running),
                owes_reopen: AtomicBool::new(false),
            };
            let name = format!("operator {number}");
            self.world.add(on(), &name, operator.restarts, move |process| operate(process, &stage, &plan));
        }
    }
}

/// What a mount needs of the scheduler.
#[derive(Debug)]
pub(crate) struct Baton(pub(crate) crate::schedule::Absent);

impl Pause for Baton {
    fn pause(&self, seen: u64) {
        if let Some(world) = self.0.upgrade() {
            world.pause(seen);
        }
    }

    fn wait_on(&self, key: u64, timeout: Duration) {
        if let Some(world) = self.0.upgrade() {
            world.wait_on(key, timeout);
        }
    }

    fn wake(&self, key: u64) {
        if let Some(world) = self.0.upgrade() {
            world.wake(key);
        }
    }
}
