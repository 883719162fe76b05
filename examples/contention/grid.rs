//! Which runs are made, each with a name for its table.

use serde::Serialize;

use crate::figures::Figures;
use crate::ring;
use crate::scenario::{Arrivals, Disturbance, Hint, Policy, Scenario, Start, Store, interval};
use crate::world;

/// A run and what it came to.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which table it belongs to.
    pub table: String,
    pub store: String,
    pub name: String,
    pub scenario: Scenario,
    pub figures: Figures,
}

/// A store with the name that tables call it by.
pub type Named = (String, Store);

/// What is asked for on the command line.
#[derive(Clone, Debug)]
pub struct Grid {
    pub seed: u64,
    pub producers: Vec<u32>,
    pub stores: Vec<Named>,
    /// Rivals storm: beyond this many producers they only take time.
    pub rivals_max: u32,
}

pub const RIVALS: [Policy; 6] = [
    Policy::Greedy,
    Policy::Fixed(0.1),
    Policy::Fixed(1.0),
    Policy::Fixed(5.0),
    Policy::Backoff,
    Policy::Aimd,
];

/// Every policy at every number of producers, undisturbed.
pub fn steady(grid: &Grid, mut say: impl FnMut(&Row)) -> Vec<Row> {
    let mut rows = Vec::new();
    for (store_name, store) in &grid.stores {
        for &producers in &grid.producers {
            let mut policies = vec![Policy::Paced, Policy::Oracle];
            if producers <= grid.rivals_max {
                policies.extend(RIVALS);
            }
            let mut add = |name: String, scenario: Scenario, figures: Figures| {
                let table = "steady".to_owned();
                let row = Row { table, store: store_name.clone(), name, scenario, figures };
                say(&row);
                rows.push(row);
            };
            for policy in policies {
                let scenario = Scenario::steady(grid.seed, policy, *store, producers);
                let figures = world::run(&scenario);
                add(policy.name(), scenario, figures);
            }
            let scenario = Scenario::steady(grid.seed, Policy::Greedy, *store, producers);
            add("one sequencer".into(), scenario.clone(), ring::sequencer(&scenario));
            add("turns".into(), scenario.clone(), ring::turns(&scenario));
        }
    }
    rows
}

/// What is done to the adaptive policy, and to an oracle that has nothing to find out.
pub fn disturbed(grid: &Grid, mut say: impl FnMut(&Row)) -> Vec<Row> {
    let mut rows = Vec::new();
    for (store_name, store) in grid.stores.iter().filter(|(_, store)| store.serialised > 0.0) {
        for &producers in grid.producers.iter().filter(|producers| **producers >= 16) {
            for (name, scenario) in disturbances(grid.seed, *store, producers) {
                let figures = world::run(&scenario);
                let table = "disturbed".to_owned();
                let row = Row { table, store: store_name.clone(), name, scenario, figures };
                say(&row);
                rows.push(row);
            }
        }
    }
    rows
}

/// The disturbed runs of one store and number of producers. What happens begins in the middle.
pub fn disturbances(seed: u64, store: Store, producers: u32) -> Vec<(String, Scenario)> {
    let steady = Scenario::steady(seed, Policy::Paced, store, producers);
    let middle = steady.seconds / 2.0;
    let at_middle = |what: Vec<(f64, Disturbance)>| Scenario { disturbances: what, ..steady.clone() };
    let hinted = |hint| Scenario { hint, ..steady.clone() };
    let turn = interval(&store, producers);
    // Longer, so that what is counted comes after the start.
    let cold =
        Scenario { seconds: 2.0 * steady.seconds, measure_from: 1.5 * steady.seconds, ..steady.clone() };
    // Ten turns of the store as slow as it then is, with a load that it still carries.
    let jump = 30.0f64.max(50.0 * turn);
    // Ten turns to recover in, and as many to show that it has.
    let doubled = (20.0 * turn).max(30.0);
    // Rare parts, so that each instant's are in before the next; some turns apart, each from a pause.
    let rare = Scenario {
        offered_each: (0.1 / turn).min(steady.offered_each),
        seconds: (200.0 * turn).max(60.0),
        measure_from: (50.0 * turn).max(15.0),
        arrivals: Arrivals::Lockstep,
        ..steady.clone()
    };
    let slower = vec![(middle, Disturbance::Slower(5.0)), (middle + jump, Disturbance::Slower(1.0))];
    let short = vec![(middle, Disturbance::Slower(5.0)), (middle + 30.0, Disturbance::Slower(1.0))];
    let pause = vec![(middle, Disturbance::Pause), (middle * 1.5, Disturbance::Resume)];
    vec![
        (
            "N doubles".into(),
            Scenario { seconds: middle + doubled, ..at_middle(vec![(middle, Disturbance::Join(producers))]) },
        ),
        ("half die".into(), at_middle(vec![(middle, Disturbance::HalfDie)])),
        (
            "five times as slow for 30 s".into(),
            Scenario { seconds: steady.seconds + 60.0, ..at_middle(short) },
        ),
        (
            "five times as slow for ten turns".into(),
            Scenario {
                seconds: 2.0 * middle + jump,
                offered_each: steady.offered_each / 4.0,
                ..at_middle(slower)
            },
        ),
        ("all but four pause".into(), at_middle(pause)),
        ("one is ten times as slow".into(), Scenario { first_slower: 10.0, ..steady.clone() }),
        ("in lockstep".into(), Scenario { arrivals: Arrivals::Lockstep, ..steady.clone() }),
        ("in lockstep, ten turns apart".into(), rare),
        ("cold start, opens paced".into(), Scenario { start: Start::PacedOpens, ..cold.clone() }),
        ("cold start, opens greedy".into(), Scenario { start: Start::GreedyOpens, ..cold }),
        ("hunger always".into(), hinted(Hint::Always)),
        ("hunger at random".into(), hinted(Hint::Random)),
        ("hunger as it is".into(), hinted(Hint::True)),
    ]
}

/// The same load, on logs of these lengths.
pub fn lengths(grid: &Grid, mut say: impl FnMut(&Row)) -> Vec<Row> {
    let mut rows = Vec::new();
    for (store_name, store) in grid.stores.iter().filter(|(_, store)| store.serialised > 0.0) {
        for log_length in [0, 1000, 1_000_000] {
            let scenario = Scenario { log_length, ..Scenario::steady(grid.seed, Policy::Paced, *store, 256) };
            let figures = world::run(&scenario);
            let (table, name) = ("log length".to_owned(), format!("{log_length} commits before"));
            let row = Row { table, store: store_name.clone(), name, scenario, figures };
            say(&row);
            rows.push(row);
        }
    }
    rows
}
