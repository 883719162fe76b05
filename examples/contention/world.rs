//! Producers, a store and its log in virtual time.
//!
//! - An attempt: read what is new until a look finds a version free; travel to the store; wait there for
//!   those who came before, where it serialises; win if nobody has the version by then.
//! - A producer knows what it has replayed with its last attempt, and nothing else: N too.
//! - Deterministic: events go by time, then in the order in which they were made.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use batchweave::commit::census::Live;
use batchweave::commit::pacing::{Attempt, Observed, Pacing, Verdict};

use crate::figures::Figures;
use crate::log::Log;
use crate::random::Random;
use crate::scenario::{Arrivals, Disturbance, Hint, Policy, Scenario, Start};
use crate::tally::Tally;

/// Versions in a segment; more than two of them behind, one replays the index and two segments.
const SEGMENT: u64 = 256;
/// Producers that go on publishing through a pause.
const UNPAUSED: usize = 4;
/// Own attempts of which a record carries the least cost.
const COSTS_KEPT: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Part(usize),
    /// Parts for all.
    Tick,
    Wake(usize, u64),
    Look(usize),
    Link(usize),
    Verdict(usize),
    Disturb(usize),
}

struct Producer {
    pacing: Box<dyn Pacing>,
    random: Random,
    is_alive: bool,
    is_open: bool,
    born: u64,
    /// An attempt is under way.
    is_busy: bool,
    /// The application waits for room in the queue.
    is_blocked: bool,
    /// When what waits was published.
    waiting: VecDeque<u64>,
    /// Of these, what the attempt takes.
    taken: usize,
    /// Since when something waited and nothing was committed.
    starving_since: Option<u64>,
    view: u64,
    live: Live,
    looked: u64,
    asks: u64,
    costs: VecDeque<Duration>,
    committed: u64,
}

/// What consumers have of what was committed.
struct Consumers {
    rate: f64,
    left: f64,
    at: u64,
    stalled: f64,
}

pub struct World<'a> {
    scenario: &'a Scenario,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    made: u64,
    producers: Vec<Producer>,
    log: Log,
    random: Random,
    store_free_at: u64,
    /// All of an attempt takes so many times as long.
    slower: f64,
    is_paused: bool,
    consumers: Consumers,
    tally: Tally,
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario) -> Figures {
    let mut world = World::new(scenario);
    let end = nanos(scenario.seconds);
    while let Some(Reverse((at, _, event))) = world.events.pop() {
        if at > end {
            break;
        }
        world.now = at;
        world.handle(event);
    }
    world.now = end;
    world.finish()
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let offered = scenario.offered_each * f64::from(scenario.producers);
        let mut world = Self {
            scenario,
            now: 0,
            events: BinaryHeap::new(),
            made: 0,
            producers: Vec::new(),
            log: Log::new(scenario.log_length),
            random: Random::new(scenario.seed),
            store_free_at: 0,
            slower: 1.0,
            is_paused: false,
            consumers: Consumers { rate: 0.95 * offered, left: 0.0, at: 0, stalled: 0.0 },
            tally: Tally::new(scenario),
        };
        for (number, (at, _)) in scenario.disturbances.iter().enumerate() {
            world.make(nanos(*at), Event::Disturb(number));
        }
        world.join(scenario.producers);
        if scenario.start == Start::Open {
            world.open_all();
        }
        if scenario.arrivals == Arrivals::Lockstep {
            world.make(nanos(0.5 / scenario.offered_each), Event::Tick);
        }
        world
    }

    fn make(&mut self, at: u64, event: Event) {
        self.made += 1;
        self.events.push(Reverse((at, self.made, event)));
    }

    fn join(&mut self, more: u32) {
        for _ in 0..more {
            let number = self.producers.len();
            self.producers.push(Producer {
                pacing: self.scenario.policy.build(&self.scenario.store, self.scenario.knobs),
                random: Random::new(self.random.bits()),
                is_alive: true,
                is_open: false,
                born: self.now,
                is_busy: false,
                is_blocked: false,
                waiting: VecDeque::new(),
                taken: 0,
                starving_since: None,
                view: self.log.head(),
                live: self.log.live(usize::MAX),
                looked: 0,
                asks: 0,
                costs: VecDeque::new(),
                committed: 0,
            });
            if self.scenario.start != Start::Open || self.now > 0 {
                self.make(self.now, Event::Wake(number, 0));
            }
        }
    }

    /// All have opened, one after the other, before the run.
    fn open_all(&mut self) {
        let cost = Duration::from_secs_f64(self.scenario.store.attempt());
        for number in 0..self.producers.len() {
            self.log.open(number, cost);
        }
        for number in 0..self.producers.len() {
            let live = self.log.live(number);
            let view = self.log.head();
            let one = &mut self.producers[number];
            (one.is_open, one.live, one.view) = (true, live, view);
            one.costs.push_back(cost);
            one.pacing.note(&Attempt { ended: Duration::ZERO, cost, won: true });
            self.begin_parts(number);
        }
        self.tally.opened(self.producers.len(), 0);
    }

    fn begin_parts(&mut self, number: usize) {
        if self.scenario.arrivals == Arrivals::Apart {
            let phase = self.producers[number].random.unit() / self.scenario.offered_each;
            self.make(self.now + nanos(phase), Event::Part(number));
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Part(number) => self.part(number),
            Event::Tick => {
                for number in 0..self.producers.len() {
                    self.part(number);
                }
                self.make(self.now + nanos(1.0 / self.scenario.offered_each), Event::Tick);
            }
            Event::Wake(number, asks) if self.producers[number].asks == asks => self.ask(number),
            Event::Wake(..) => {}
            Event::Look(number) => self.look(number),
            Event::Link(number) => {
                let service = nanos(self.scenario.store.serialised * self.slower);
                let verdict = self.now.max(self.store_free_at) + service;
                if service > 0 {
                    self.store_free_at = verdict;
                }
                self.make(verdict, Event::Verdict(number));
            }
            Event::Verdict(number) => self.verdict(number),
            Event::Disturb(number) => self.disturb(self.scenario.disturbances[number].1),
        }
    }

    fn part(&mut self, number: usize) {
        let paused = self.is_paused && number >= UNPAUSED;
        let one = &mut self.producers[number];
        if !one.is_alive || !one.is_open || paused {
            return;
        }
        if one.waiting.len() >= self.scenario.queue_parts as usize {
            one.is_blocked = true;
        } else {
            one.waiting.push_back(self.now);
            one.starving_since.get_or_insert(self.now);
            if self.scenario.arrivals == Arrivals::Apart {
                let wait = (0.75 + one.random.unit() / 2.0) / self.scenario.offered_each;
                self.make(self.now + nanos(wait), Event::Part(number));
            }
        }
        self.ask(number);
    }

    fn ask(&mut self, number: usize) {
        let hungry = self.is_hungry(number);
        let is_full_at = self.scenario.queue_parts as usize;
        let alive = self.tally.alive;
        let one = &mut self.producers[number];
        if one.is_busy || !one.is_alive || (one.is_open && one.waiting.is_empty()) {
            return;
        }
        let seen = Observed {
            now: Duration::from_nanos(self.now),
            parts: if one.is_open { one.waiting.len() as u32 } else { 1 },
            bytes: 0,
            since: Duration::from_nanos(one.waiting.front().copied().unwrap_or(one.born)),
            is_full: one.waiting.len() >= is_full_at,
            producers: if self.scenario.policy == Policy::Oracle { alive } else { one.live.producers },
            attempt_of_others: one.live.attempt,
            hungry,
            random: one.random.bits(),
        };
        let at_once = !one.is_open && self.scenario.start == Start::GreedyOpens;
        match if at_once { Verdict::Commit } else { one.pacing.decide(&seen) } {
            Verdict::Commit => self.begin(number),
            Verdict::Hold(hold) => {
                one.asks += 1;
                let (asks, hold) = (one.asks, u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX / 4));
                self.make(self.now.saturating_add(hold), Event::Wake(number, asks));
            }
        }
    }

    fn begin(&mut self, number: usize) {
        let one = &mut self.producers[number];
        one.is_busy = true;
        one.asks += 1;
        one.taken = one.waiting.len();
        // The look that finds nothing costs as much as one that finds a commit.
        let after = self.replay(number) + self.way(number, self.scenario.store.read);
        self.make(self.now + after, Event::Look(number));
    }

    /// What a producer needs for something that takes others so long.
    fn way(&self, number: usize, seconds: f64) -> u64 {
        let own = if number == 0 { self.scenario.first_slower } else { 1.0 };
        nanos(seconds * self.slower * own)
    }

    /// Reads what is new.
    fn replay(&mut self, number: usize) -> u64 {
        let head = self.log.head();
        let one = &mut self.producers[number];
        let behind = (head - one.view).min(2 * SEGMENT);
        one.view = head;
        self.tally.calls += behind;
        self.way(number, self.scenario.store.read * behind as f64)
    }

    fn look(&mut self, number: usize) {
        let after = self.replay(number);
        if after > 0 {
            self.make(self.now + after, Event::Look(number));
            return;
        }
        let live = self.log.live(number);
        let one = &mut self.producers[number];
        (one.live, one.looked) = (live, self.now);
        let begins = one.view > 0 && one.view.is_multiple_of(SEGMENT);
        let boundary = if begins { self.scenario.store.boundary } else { 0.0 };
        let mut travel = self.way(number, self.scenario.store.travel + boundary);
        if number == 0 {
            // What the store itself takes is as long for all: a slow one is that much farther away.
            travel += nanos((self.scenario.first_slower - 1.0) * self.scenario.store.serialised);
        }
        self.make(self.now + travel, Event::Link(number));
    }

    fn verdict(&mut self, number: usize) {
        let cost = Duration::from_nanos(self.now - self.producers[number].looked);
        let one = &mut self.producers[number];
        let won = one.is_alive && one.view == self.log.head();
        let least = one.costs.iter().min().copied().unwrap_or_default();
        one.is_busy = false;
        one.pacing.note(&Attempt { ended: Duration::from_nanos(self.now), cost, won });
        if one.costs.len() >= COSTS_KEPT {
            one.costs.pop_front();
        }
        one.costs.push_back(cost);
        let is_part = one.is_open;
        self.tally.attempt(self.now, won, is_part);
        match (won, is_part) {
            (true, true) => self.committed(number, least),
            (true, false) => {
                self.log.open(number, least);
                self.producers[number].is_open = true;
                self.tally.opened(1, self.now);
                self.begin_parts(number);
            }
            _ => {}
        }
        let (head, live) = (self.log.head(), self.log.live(number));
        let one = &mut self.producers[number];
        one.live = live;
        if won {
            one.view = head;
        }
        self.ask(number);
    }

    fn committed(&mut self, number: usize, least: Duration) {
        self.log.publish(number, least);
        let one = &mut self.producers[number];
        for published in one.waiting.drain(..one.taken) {
            self.tally.part(self.now, self.now - published);
        }
        if self.now >= self.tally.from {
            one.committed += one.taken as u64;
        }
        let since = one.starving_since.take().unwrap_or(self.now);
        self.tally.gap(self.now, self.now - since);
        one.starving_since = (!one.waiting.is_empty()).then_some(self.now);
        self.consumers.left += one.taken as f64;
        one.taken = 0;
        if std::mem::take(&mut one.is_blocked) {
            self.make(self.now, Event::Part(number));
        }
    }

    fn is_hungry(&mut self, number: usize) -> bool {
        let consumers = &mut self.consumers;
        let wanted = consumers.rate * (self.now - consumers.at) as f64 / 1e9;
        if self.now >= self.tally.from {
            consumers.stalled += (wanted - consumers.left).max(0.0) / consumers.rate;
        }
        consumers.left = (consumers.left - wanted).max(0.0);
        consumers.at = self.now;
        match self.scenario.hint {
            Hint::Never => false,
            Hint::Always => true,
            Hint::Random => self.producers[number].random.unit() < 0.5,
            Hint::True => consumers.left < 1.0,
        }
    }

    fn disturb(&mut self, disturbance: Disturbance) {
        match disturbance {
            Disturbance::Join(more) => self.join(more),
            Disturbance::HalfDie => {
                let mut died = 0;
                for one in self.producers.iter_mut().skip(1).step_by(2) {
                    died += u32::from(one.is_alive && one.is_open);
                    one.is_alive = false;
                }
                self.tally.died(died, self.now);
            }
            Disturbance::Slower(times) => self.slower = times,
            Disturbance::Pause => self.is_paused = true,
            Disturbance::Resume => {
                self.is_paused = false;
                for number in UNPAUSED..self.producers.len() {
                    self.part(number);
                }
            }
        }
    }

    fn finish(mut self) -> Figures {
        for number in 0..self.producers.len() {
            let one = &self.producers[number];
            if let Some(since) = one.starving_since.filter(|_| one.is_alive) {
                self.tally.gap(self.now, self.now - since);
            }
        }
        let from = self.tally.from;
        let lived = self.producers.iter().filter(|one| one.is_alive && one.born <= from);
        let shares = lived.map(|one| one.committed as f64);
        self.tally.figures(self.now, self.consumers.stalled, shares)
    }
}
