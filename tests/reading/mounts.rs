//! What a mount changes for readers: one that can't map, one that is remote, one that remembers what it
//! didn't find. Who reads gets the same everywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use batchweave::env::Env;
use batchweave::{MountClass, Next, Settings, Share, Start, Step, Store};
use batchweave_sim::{
    Alone, Choices, Class, Fault, Match, Memory, Method, Mount, Plan, Seeded, Traits, errno,
};
use parking_lot::Mutex;
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::quiet;
use crate::support::{create, open_in, open_with, options, parse, publish};

/// Over a boundary, so that an index is read.
const STEPS: u64 = 40;
const ENODEV: i32 = 19;

fn prepared() -> Memory {
    let disk = Memory::new();
    let store = create(Arc::new(disk.clone()), 1, options(), &Settings::new()).unwrap();
    let mut producer = store.producer("a").unwrap();
    for _ in 0..STEPS {
        publish(&mut producer).unwrap();
    }
    disk
}

/// Reads all there is, from the beginning and by single steps.
fn read_all(store: &Store) {
    let mut consumer = store.run(Start::Beginning).unwrap().consumer_with(Share::WHOLE, quiet()).unwrap();
    for step in 0..STEPS {
        let Next::Batch(batch) = consumer.try_next().unwrap() else { panic!("step {step} is there") };
        assert_eq!(parse(&batch.slice(0).unwrap()), ("a".to_owned(), step));
        assert_eq!(parse(&store.batch(step.into()).unwrap().slice(0).unwrap()), ("a".to_owned(), step));
    }
    assert!(matches!(consumer.try_next().unwrap(), Next::Pending));
}

/// Counts warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicU64>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn event(&self, _event: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}

#[test]
fn where_nothing_can_be_mapped_all_is_read_and_one_warning_says_so() {
    let plan = Plan::new().fail(Match::method(Method::Map), ENODEV);
    let process = Arc::new(Fault::new(Arc::new(prepared()), plan));
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        read_all(&open_with(process.clone(), 2, &Settings::new()).unwrap());
    });
    assert!(process.count(Method::Map) > 0, "nobody tried to map, so this tests nothing");
    assert_eq!(warnings.0.load(Ordering::Relaxed), 1);
}

#[test]
fn what_is_remote_is_read_and_never_mapped_unless_told() {
    let disk = prepared();
    for class in
        [Class::Coherent { bricks: 1 }, Class::Coherent { bricks: 3 }, Class::CloseToOpen, Class::Local]
    {
        let mount = Mount::new(disk.clone(), class, Choices::replay(Vec::new()), Arc::new(Alone));
        let store = open_with(Arc::new(mount), 2, &Settings::new()).unwrap();
        read_all(&store);
        let calls = store.stats().calls;
        assert_eq!(calls.map + calls.populate == 0, class != Class::Local, "{class:?}: {calls:?}");
    }
}

#[test]
fn a_step_is_seen_soon_by_a_node_that_remembers_what_it_did_not_find() {
    const MOST: Duration = Duration::from_secs(2);
    for looks in [1, 2, 5, 10, 20, 40, 80, 200] {
        let disk = prepared();
        // Whatever it may answer from a stale cache, it does.
        let traits = Traits { wild_one_in: 1, ..Class::CloseToOpen.traits() };
        let choices = Choices::replay(Vec::new());
        let mount = Mount::with_traits(disk.clone(), Class::CloseToOpen, traits, choices, Arc::new(Alone));
        let process = Arc::new(Fault::new(Arc::new(mount), Plan::new()));
        let env = Arc::new(Seeded::new(3));
        let settings = Settings::new().mount_class(MountClass::CloseToOpen);
        let store = open_in(process.clone(), &env, &settings).unwrap();
        let mut consumer = store.run(Step::new(STEPS)).unwrap().consumer_with(Share::WHOLE, quiet()).unwrap();
        assert!(matches!(consumer.try_next().unwrap(), Next::Pending));
        let began = env.now();
        let (published, clock) = (Arc::new(Mutex::new(None)), env.clone());
        let told = published.clone();
        // Right after the server has said no, so many times.
        let name = "log/000000000002/00000000000000000041";
        let look = || Match::method(Method::Open).named(name).nth(looks);
        let published_meanwhile = Plan::new().meanwhile(look(), move || {
            *told.lock() = Some(clock.now());
            publish(&mut crate::support::open(disk.clone(), 4).unwrap().producer("b").unwrap()).unwrap();
        });
        process.set_plan(published_meanwhile.fail(look(), errno::ENOENT));
        let batch = consumer.next_batch_timeout(Duration::from_secs(3600)).unwrap().unwrap();
        assert_eq!(parse(&batch.slice(0).unwrap()), ("b".to_owned(), 0));
        let published = published.lock().expect("it was published while somebody waited");
        let late = env.now().saturating_sub(published);
        assert!(late <= MOST, "{late:?} late after a wait of {:?}", published.saturating_sub(began));
    }
}
