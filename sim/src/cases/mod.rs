//! Small cases of the real engine, for every schedule of them: what docs/model/commit_protocol.py does with
//! the protocol in the abstract.
//!
//! - A case is two or three processes with a few calls each on a store of a few versions. What they do before
//!   they meet is one after the other; from then on the order of their calls is open, and so is whatever a
//!   close-to-open mount may answer.
//! - At the end of every schedule the model's properties are held against what is left, and
//!   the oracle's.
//! - Each process has a node of its own, so what it does to its node's caches nobody else notices.

mod fates;
mod judge;
mod run;

use crate::actors::Meets;
use crate::explore::Explored;
use crate::mount::Class;

/// A producer of a case.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// Which name it has: several may have the same.
    pub name: &'static str,
    /// Parts of that name in the end.
    pub parts: u64,
    /// What it has done before they meet.
    pub meets: Meets,
}

/// What goes wrong in a case, by choice, at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// Nothing.
    None,
    /// The first writer dies, before any of its calls that others can notice.
    Death,
    /// The reply to a link of the first writer is lost, and the second try finds the name taken.
    LostReply,
}

/// A small case.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is about.
    pub name: String,
    /// What the nodes' mounts are like.
    pub class: Class,
    /// Versions there are before anybody comes: a segment has 16.
    pub base: u64,
    /// Who writes.
    pub writers: Vec<Writer>,
    /// How often a reader, if there is one, reads to the end.
    pub looks: u32,
    /// How often somebody, if there is one, asks for the stream's end.
    pub asks: u32,
    /// How often two segments pass at once, and what may be removed is.
    pub passes: u32,
    /// What goes wrong.
    pub mishap: Mishap,
    /// Whether every call counts as noticed by others: to see that nothing is hidden by what doesn't.
    pub plods: bool,
}

/// A kind of case, for one class of mounts.
pub type Kind = fn(Class) -> Case;

const ONE_SERVER: Class = Class::Coherent { bricks: 1 };
const THREE_SERVERS: Class = Class::Coherent { bricks: 3 };

/// The classes of mounts.
pub const CLASSES: [Class; 4] = [Class::Local, ONE_SERVER, THREE_SERVERS, Class::CloseToOpen];

/// The cases that take a second or few.
pub fn small() -> Vec<Case> {
    let of_all: [Kind; 9] = [
        publish_against_publish,
        open_against_publish,
        publish_against_a_boundary,
        a_sleeper,
        a_sleeper_in_a_boundary,
        a_question,
        an_overtaken_reader,
        a_death,
        a_lost_reply,
    ];
    let of_all = of_all.iter().flat_map(|kind| CLASSES.map(kind));
    // Where several servers answer a listing one after the other, there are as many more orders.
    let classes = [Class::Local, ONE_SERVER, Class::CloseToOpen];
    let of_some =
        [two_build_an_index as Kind, a_look_at_a_boundary].into_iter().flat_map(|kind| classes.map(kind));
    of_all.chain(of_some).collect()
}

/// The cases that take a minute or few.
pub fn large() -> Vec<Case> {
    let of_all: [Kind; 5] = [
        a_twice_overtaken_sleeper,
        three_publish,
        open_against_open,
        a_death_in_a_boundary,
        two_sleepers_in_a_boundary,
    ];
    let of_all = of_all.iter().flat_map(|kind| CLASSES.map(kind));
    of_all.chain([two_build_an_index(THREE_SERVERS), a_look_at_a_boundary(THREE_SERVERS)]).collect()
}

impl Case {
    fn new(name: &str, class: Class, base: u64, writers: &[Writer]) -> Self {
        Self {
            name: format!("{name} on {class:?}"),
            class,
            base,
            writers: writers.to_vec(),
            looks: 0,
            asks: 0,
            passes: 0,
            mishap: Mishap::None,
            plods: false,
        }
    }

    /// Makes every schedule of it, `runs_max` at most, until one goes wrong.
    pub fn explore(&self, runs_max: u64) -> Explored {
        run::explore_case(self, runs_max)
    }

    /// What happens in the schedule of these decisions, in words.
    pub fn story(&self, decisions: Vec<u32>) -> String {
        run::story(self, decisions)
    }
}

const fn opened(name: &'static str, parts: u64) -> Writer {
    Writer { name, parts, meets: Meets::WithName }
}

const fn unopened(name: &'static str, parts: u64) -> Writer {
    Writer { name, parts, meets: Meets::WithStore }
}

/// Two producers, each with one part, amid a segment.
pub fn publish_against_publish(class: Class) -> Case {
    Case::new("publish against publish", class, 3, &[opened("a", 1), opened("b", 1)])
}

/// Three producers, each with one part, amid a segment.
pub fn three_publish(class: Class) -> Case {
    Case::new("three publish", class, 3, &[opened("a", 1), opened("b", 1), opened("c", 1)])
}

/// One name: a producer publishes while another one opens its name anew, and publishes too (P4).
pub fn open_against_publish(class: Class) -> Case {
    Case::new("open against publish", class, 3, &[opened("a", 1), unopened("a", 1)])
}

/// One name, which two producers open.
pub fn open_against_open(class: Class) -> Case {
    Case::new("open against open", class, 3, &[unopened("a", 1), unopened("a", 1)])
}

/// Two producers come to a segment's first version, so both build the index of the one before (R4).
pub fn two_build_an_index(class: Class) -> Case {
    Case::new("two build an index", class, 14, &[opened("a", 1), opened("b", 1)])
}

/// Two producers, one version before a segment's first: who loses it has to build the index.
pub fn publish_against_a_boundary(class: Class) -> Case {
    Case::new("publish against a boundary", class, 13, &[opened("a", 1), opened("b", 1)])
}

/// A writer sleeps anywhere while two segments pass, and its own is removed (R6).
pub fn a_sleeper(class: Class) -> Case {
    Case { passes: 1, ..Case::new("a sleeper", class, 3, &[opened("a", 2)]) }
}

/// A writer sleeps anywhere before, in or after a boundary.
pub fn a_sleeper_in_a_boundary(class: Class) -> Case {
    Case { passes: 1, ..Case::new("a sleeper in a boundary", class, 15, &[opened("a", 2)]) }
}

/// A writer sleeps twice, before, in or after a boundary.
pub fn a_twice_overtaken_sleeper(class: Class) -> Case {
    Case { passes: 2, ..Case::new("a twice overtaken sleeper", class, 15, &[opened("a", 1)]) }
}

/// Two writers at a boundary, overtaken.
pub fn two_sleepers_in_a_boundary(class: Class) -> Case {
    let writers = [opened("a", 1), opened("b", 1)];
    Case { passes: 1, ..Case::new("two sleepers in a boundary", class, 14, &writers) }
}

/// A writer dies anywhere while another one publishes; then a third one opens the name of the dead (P7).
pub fn a_death(class: Class) -> Case {
    Case { name: format!("a death on {class:?}"), mishap: Mishap::Death, ..publish_against_publish(class) }
}

/// The same, at a boundary.
pub fn a_death_in_a_boundary(class: Class) -> Case {
    let name = format!("a death in a boundary on {class:?}");
    Case { name, mishap: Mishap::Death, ..two_build_an_index(class) }
}

/// A writer whose link has succeeded is told that the name is taken, while another one publishes (R2).
pub fn a_lost_reply(class: Class) -> Case {
    let name = format!("a lost reply on {class:?}");
    Case { name, mishap: Mishap::LostReply, ..publish_against_publish(class) }
}

/// A reader opens the store and reads while a writer publishes over a boundary: it sees a prefix (P6).
pub fn a_look_at_a_boundary(class: Class) -> Case {
    Case { looks: 1, ..Case::new("a look at a boundary", class, 14, &[opened("a", 2)]) }
}

/// A reader asks for the stream's end before, while or after two segments pass, and its own is removed (R7).
pub fn an_overtaken_reader(class: Class) -> Case {
    Case { asks: 2, passes: 1, ..Case::new("an overtaken reader", class, 3, &[]) }
}

/// A reader asks for the stream's end while a writer publishes: what is acknowledged is in every answer (P6).
pub fn a_question(class: Class) -> Case {
    Case { asks: 2, ..Case::new("a question", class, 3, &[opened("a", 1)]) }
}
