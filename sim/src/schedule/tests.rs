//! The scheduler: one order by one seed, time that takes no time, and the ends of processes and runs.

use super::*;
use crate::Stopped;

fn node(memory: &Memory) -> Node {
    Node { number: 0, storage: Arc::new(memory.clone()), years_off: 0 }
}

/// Three processes that each make files, by a seed: the names in the order of their making, and the story.
fn three(seed: u64, style: Style) -> (Vec<String>, String, End) {
    let memory = Memory::new();
    let world = World::new(Choices::random(seed), style, seed, 1000, Arc::new(Calm));
    let order = Arc::new(Mutex::new(Vec::new()));
    for name in ["a", "b", "c"] {
        let order = Arc::clone(&order);
        world.add(&node(&memory), name, 0, move |process| {
            let storage = process.storage();
            let root = storage.open_root("/".as_ref()).map_err(|error| error.to_string())?;
            for number in 0..5 {
                let file = format!("{name}{number}");
                storage.create_exclusive(&root, &file).map_err(|error| error.to_string())?;
                order.lock().push(file);
                process.env().sleep(Duration::from_millis(1));
            }
            Ok(())
        });
    }
    let end = world.run();
    let order = order.lock().clone();
    (order, world.story().to_string(), end)
}

#[test]
fn a_seed_gives_the_same_story_again_and_another_seed_another() {
    for style in [Style::Sticky(2), Style::Urgency(8)] {
        let first = three(5, style.clone());
        assert_eq!(first.2.trouble, None);
        assert_eq!(first.0.len(), 15);
        let again = three(5, style.clone());
        assert_eq!((&first.0, &first.1), (&again.0, &again.1));
        assert!((6..16).any(|seed| three(seed, style.clone()).0 != first.0), "{style:?} has one order only");
    }
}

#[test]
fn the_story_says_who_did_what() {
    let (_, story, _) = three(1, Style::Sticky(1));
    assert!(story.contains("node 0 / b: create_exclusive b3: ok"), "{story}");
}

#[test]
fn half_an_hour_of_sleep_takes_no_time() {
    let world = World::new(Choices::random(0), Style::Sticky(1), 0, 100, Arc::new(Calm));
    world.add(&node(&Memory::new()), "sleeper", 0, |process| {
        process.env().sleep(Duration::from_secs(1800));
        assert!(!process.env().signal().wait(0, Some(Duration::from_secs(1800))));
        Ok(())
    });
    let end = world.run();
    assert_eq!((end.trouble, end.took), (None, Duration::from_secs(3600)));
}

#[test]
fn who_waits_for_ever_is_trouble_and_the_run_ends() {
    let world = World::new(Choices::random(0), Style::Sticky(1), 0, 100, Arc::new(Calm));
    world.add(&node(&Memory::new()), "waiter", 0, |process| {
        let signal = process.env().signal();
        assert!(!signal.wait(0, None) && process.is_dead());
        Ok(())
    });
    let trouble = world.run().trouble.expect("nobody notifies");
    assert!(trouble.contains("node 0 / waiter") && trouble.contains("Signal"), "{trouble}");
}

#[test]
fn who_never_ends_is_trouble_and_the_run_ends() {
    let memory = Memory::new();
    let world = World::new(Choices::random(0), Style::Sticky(1), 0, 100, Arc::new(Calm));
    world.add(&node(&memory), "busy", 0, |process| {
        let storage = process.storage();
        while !process.is_dead() {
            drop(storage.open_root("/".as_ref()));
        }
        Ok(())
    });
    let trouble = world.run().trouble.expect("it never ends");
    assert!(trouble.contains("100 calls"), "{trouble}");
}

#[test]
fn what_a_thread_was_started_for_is_waited_for_by_turns() {
    let world = World::new(Choices::random(3), Style::Sticky(1), 3, 100, Arc::new(Calm));
    world.add(&node(&Memory::new()), "parent", 0, |process| {
        let env = process.env();
        let signal = env.signal();
        let (theirs, sleeping) = (Arc::clone(&signal), process.env());
        let body = move || {
            sleeping.sleep(Duration::from_secs(1));
            theirs.notify();
        };
        let task = env.spawn("child", Box::new(body)).map_err(|error| error.to_string())?;
        assert!(signal.wait(0, Some(Duration::from_secs(2))), "the child has notified");
        assert!(task.join());
        Ok(())
    });
    assert_eq!(world.run().trouble, None);
}

/// Kills the process before its k-th call of creating.
struct KillAt(u64, std::sync::atomic::AtomicU64);

impl Fates for KillAt {
    fn decide(&self, world: &World, process: usize, method: Method, _: &str) -> Fate {
        if method == Method::CreateExclusive
            && self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == self.0
        {
            world.kill(process);
        }
        Fate::default()
    }
}

#[test]
fn a_process_that_dies_has_no_further_effect_and_another_takes_its_place() {
    let memory = Memory::new();
    let fates = Arc::new(KillAt(1, Default::default()));
    let world = World::new(Choices::random(0), Style::Sticky(2), 0, 100, fates);
    let lives = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lives);
    world.add(&node(&memory), "writer", 1, move |process| {
        seen.lock().push((process.name.clone(), process.number));
        let storage = process.storage();
        let root = storage.open_root("/".as_ref()).map_err(|error| error.to_string())?;
        for number in 0..3 {
            if let Err(error) = storage.create_exclusive(&root, &format!("{}-{number}", process.number)) {
                assert!(process.is_dead() && Stopped::caused(&error));
                process.env().sleep(Duration::from_secs(1));
            }
        }
        Ok(())
    });
    assert_eq!(world.run().trouble, None);
    assert_eq!(memory.paths(), ["0-0", "1-0", "1-1", "1-2"]);
    assert_eq!(*lives.lock(), [("writer".to_owned(), 0), ("writer, life 2".to_owned(), 1)]);
}

#[test]
fn the_dead_wait_until_their_deadline_and_nobody_waits_for_them() {
    let memory = Memory::new();
    let fates = Arc::new(KillAt(0, Default::default()));
    let world = World::new(Choices::random(0), Style::Sticky(2), 0, 100, fates);
    world.add(&node(&memory), "dead", 0, |process| {
        let root = process.storage().open_root("/".as_ref()).map_err(|error| error.to_string())?;
        process.storage().create_exclusive(&root, "file").expect_err("it dies before");
        let (env, signal) = (process.env(), process.env().signal());
        let until = env.now() + Duration::from_secs(1800);
        while env.now() < until {
            signal.wait(0, Some(Duration::from_secs(10)));
        }
        Ok(())
    });
    let end = world.run();
    assert_eq!(end.trouble, None);
    assert!(end.took < Duration::from_secs(1), "{:?} passed for the living", end.took);
}

#[test]
fn an_error_of_a_living_process_is_trouble() {
    let world = World::new(Choices::random(0), Style::Sticky(1), 0, 100, Arc::new(Calm));
    world.add(&node(&Memory::new()), "unhappy", 0, |_| Err("a sample came twice".to_owned()));
    assert_eq!(world.run().trouble.as_deref(), Some("unhappy: a sample came twice"));
}
