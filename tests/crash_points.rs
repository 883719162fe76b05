//! Every crash point. The method: one run of each script over a filesystem in memory; before each call that
//! changes anything (between two of them the disk is the same), a fork of the disk is crashed and examined
//! in several ways.
//!
//! - The process dies: the disk is as it is (P6, P7).
//! - The node dies: all that isn't synced is lost, or a part of it that a seed draws (P6, R3, R4).
//!
//! Of what is left: nothing acknowledged is lost, nothing is doubled, what is visible is a prefix of what
//! was written, the newest index and the whole log agree, and everyone can go on.
//!
//! The properties of docs/model/commit_protocol.py, on the real engine: "an acknowledged batch is in the
//! log" and "no batch is in the log twice" are [`Script::check_left`]'s prefix test, for crashes; for
//! sleepers see tests/protocol.rs.

#[path = "crash_points/copy.rs"]
mod copy;
#[path = "support/groups.rs"]
mod groups;
#[path = "crash_points/history.rs"]
mod history;
#[path = "crash_points/lost.rs"]
mod lost;
#[path = "crash_points/reclaim.rs"]
mod reclaim;
#[expect(dead_code, reason = "what needs no waiting isn't needed here")]
mod support;

use std::sync::Arc;

use batchweave::{Durability, ErrorKind, MountClass, Options, Primitive, Producer, Result, Settings, Store};
use batchweave_sim::{Fault, Match, Memory, Method, errno};
use parking_lot::Mutex;
use support::*;

/// What a script has tried and what it was told.
#[derive(Clone, Debug, Default)]
struct Told {
    created: bool,
    tried: Vec<(String, u64)>,
    acknowledged: usize,
    /// Names whose Retire was acknowledged, and not opened again since.
    retired: Vec<String>,
    closed: Option<bool>,
}

/// One way to run a script.
#[derive(Clone, Copy, Debug)]
struct Way {
    options: Options,
    primitive: Primitive,
    class: MountClass,
    /// The mount refuses the primitive between two directories, by this errno.
    refuses: Option<i32>,
}

struct Script {
    way: Way,
    disk: Memory,
    told: Arc<Mutex<Told>>,
    examined: Arc<Mutex<u64>>,
    syncs: u64,
}

impl Script {
    fn new(way: Way) -> Self {
        Self { way, disk: Memory::new(), told: Arc::default(), examined: Arc::default(), syncs: 0 }
    }

    fn settings(&self) -> Settings {
        Settings::new().mount_class(self.way.class)
    }

    /// A process whose every change is a crash point.
    fn process(&self) -> Arc<Fault> {
        let mut plan = match self.way.refuses {
            Some(errno) => refusing_across(self.way.primitive, errno),
            None => mount_with(self.way.primitive),
        };
        for &method in Method::CHANGES {
            let (disk, told, examined) = (self.disk.clone(), self.told.clone(), self.examined.clone());
            let way = self.way;
            plan = plan.meanwhile(Match::method(method), move || {
                let told = told.lock().clone();
                let point = {
                    let mut examined = examined.lock();
                    *examined += 1;
                    *examined
                };
                crash(&disk, way, &told, point);
            });
        }
        Arc::new(Fault::new(Arc::new(self.disk.clone()), plan))
    }

    fn store(&self, process: &Arc<Fault>, seed: u64) -> Store {
        let store =
            create(process.clone(), seed, self.way.options, &self.settings()).expect("nothing fails here");
        assert_eq!(store.info().unwrap().primitive, self.way.primitive);
        self.told.lock().created = true;
        store
    }

    fn open(&self, store: &Store, name: &str) -> Producer {
        // A finished name that is being opened may be either.
        self.told.lock().retired.retain(|retired| retired != name);
        store.producer(name).unwrap()
    }

    fn publish(&self, producer: &mut Producer) {
        let part = (producer.name().as_str().to_owned(), producer.next_sequence().get());
        self.told.lock().tried.push(part);
        publish(producer).expect("nothing fails here");
        let mut told = self.told.lock();
        told.acknowledged = told.tried.len();
    }

    /// The end of all is a crash point too. Gives how many there were.
    fn end(&mut self, processes: &[Arc<Fault>]) -> u64 {
        let told = self.told.lock().clone();
        crash(&self.disk, self.way, &told, 0);
        self.syncs =
            processes.iter().map(|one| one.count(Method::SyncFile) + one.count(Method::SyncDir)).sum();
        *self.examined.lock()
    }
}

/// Crashes forks of the disk in every way, and examines what is left.
fn crash(disk: &Memory, way: Way, told: &Told, point: u64) {
    check_left(&disk.fork(), told, way, &format!("process crash at point {point}"));
    if way.options.durability == Durability::Unsynced {
        return;
    }
    let dark = disk.fork();
    dark.power_cut();
    check_left(&dark, told, way, &format!("power cut at point {point}"));
    for seed in [1, 2] {
        let dark = disk.fork();
        let mut drawn = point * 3 + seed;
        dark.power_cut_keeping(|_| {
            drawn = drawn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            drawn >> 40 & 1 == 1
        });
        check_left(&dark, told, way, &format!("power cut at point {point}, keeping by {seed}"));
    }
}

fn check_left(disk: &Memory, told: &Told, way: Way, how: &str) {
    let settings = Settings::new().mount_class(way.class);
    let opened = open_with(Arc::new(disk.clone()), 1000, &settings);
    let store = match opened {
        Ok(store) => store,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{how}: {error}");
            assert!(!told.created, "{how}: the created store is gone: {error}");
            // Half created: whoever comes next creates it.
            let mount = Fault::new(Arc::new(disk.clone()), mount_with(way.primitive));
            create(Arc::new(mount), 1001, way.options, &settings)
                .unwrap_or_else(|error| panic!("{how}: creation can't go on: {error}, {:?}", disk.paths()))
        }
    };
    let parts = check_replay(&store).parts();
    let (tried, told_of) = (&told.tried, told.acknowledged);
    assert!(tried.starts_with(&parts), "{how}: {parts:?} is no prefix of {tried:?}");
    assert!(parts.len() >= told_of, "{how}: an acknowledged part is lost: {parts:?} of {told:?}");
    let per_step = way.options.parts_per_step as usize;
    assert_eq!(read_all(&store), parts[..parts.len() / per_step * per_step], "{how}");
    for name in &told.retired {
        let producers = store.producers().unwrap();
        let one = producers.iter().find(|one| one.name.as_str() == name).expect("it was retired");
        assert!(one.finished, "{how}: {name} isn't finished any more");
    }
    if let Some(closed) = told.closed {
        assert_eq!(store.info().unwrap().closed.is_some(), closed, "{how}");
    }
    let going_on = open_with(Arc::new(disk.clone()), 1002, &settings).unwrap();
    check_going_on(&going_on, &["a", "b"]);
}

/// Two processes, a producer in each, until several boundaries are crossed.
fn publish_over_boundaries(way: Way, parts: u64) -> Script {
    let mut script = Script::new(way);
    let (one, two) = (script.process(), script.process());
    let (first, second) = (script.store(&one, 1), script.store(&two, 2));
    let (mut a, mut b) = (script.open(&first, "a"), script.open(&second, "b"));
    for part in 0..parts {
        // Not in turns, so that whose turn it is at a boundary differs.
        script.publish(if part % 3 == 1 { &mut b } else { &mut a });
    }
    let points = script.end(&[one, two]);
    assert!(points > parts * 4, "only {points} crash points");
    script
}

fn way(parts_per_step: u32, primitive: Primitive, class: MountClass) -> Way {
    Way { options: options().parts_per_step(parts_per_step), primitive, class, refuses: None }
}

#[test]
fn creating_and_publishing_by_link_on_a_local_mount() {
    let script = publish_over_boundaries(way(1, Primitive::Link, MountClass::Local), 34);
    assert!(script.syncs > 2 * 34, "each publish syncs file and directory (R3)");
}

#[test]
fn creating_and_publishing_by_rename_on_a_remote_mount_two_parts_a_step() {
    publish_over_boundaries(way(2, Primitive::RenameNoreplace, MountClass::CloseToOpen), 17);
}

#[test]
fn publishing_by_link_on_a_coherent_mount_two_parts_a_step() {
    publish_over_boundaries(way(2, Primitive::Link, MountClass::Coherent), 17);
}

#[test]
fn publishing_by_rename_on_a_local_mount() {
    publish_over_boundaries(way(1, Primitive::RenameNoreplace, MountClass::Local), 17);
}

#[test]
fn creating_and_publishing_by_rename_of_directories() {
    for class in [MountClass::Local, MountClass::CloseToOpen] {
        publish_over_boundaries(way(1, Primitive::RenameDirectory, class), 17);
    }
}

#[test]
fn publishing_where_the_mount_refuses_it_between_two_directories() {
    for (primitive, errno) in [
        (Primitive::Link, errno::EXDEV),
        (Primitive::Link, errno::EPERM),
        (Primitive::RenameNoreplace, errno::EXDEV),
    ] {
        let way = Way { refuses: Some(errno), ..way(1, primitive, MountClass::Coherent) };
        publish_over_boundaries(way, 17);
    }
}

#[test]
fn an_unsynced_store_survives_the_death_of_processes_and_never_syncs() {
    let mut way = way(1, Primitive::Link, MountClass::Local);
    way.options = way.options.durability(Durability::Unsynced);
    let script = publish_over_boundaries(way, 34);
    assert_eq!(script.syncs, 0, "an unsynced store issues no sync at all, not even at creation (R3)");
}

#[test]
fn opening_retiring_closing_and_reopening() -> Result<()> {
    let mut script = Script::new(way(1, Primitive::Link, MountClass::Local));
    let process = script.process();
    let store = script.store(&process, 1);
    let other = open_with(process.clone(), 2, &script.settings())?;
    // Once with the boundary far, and once across it: every kind of record comes to be a segment's first or
    // last.
    for round in 0..4 {
        let mut a = script.open(&store, "a");
        script.publish(&mut a);
        let mut b = script.open(&other, "b");
        script.publish(&mut b);
        a.finish()?;
        script.told.lock().retired.push("a".to_owned());
        if round % 2 == 1 {
            assert!(other.retire("b")?);
            assert!(!store.retire("b")?, "it is finished already");
        }
        script.told.lock().closed = None;
        assert!(store.close(false)?);
        script.told.lock().closed = Some(true);
        assert!(!other.close(false)?, "it is closed already");
        script.told.lock().closed = None;
        assert!(other.reopen()?);
        script.told.lock().closed = Some(false);
    }
    assert!(store.info()?.head_version.is_some_and(|version| version.get() > 16), "no boundary was crossed");
    script.end(&[process]);
    Ok(())
}
