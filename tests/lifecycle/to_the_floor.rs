//! Rewinding to exactly the floor, after a reclaim that left nothing before it: wherever in its segment the
//! floor's first part lies, every producer gets the state that it had then.

use batchweave::{ErrorKind, ReclaimOptions, RewindOptions, Start, Step};

use super::*;

#[test]
fn wherever_the_floor_lies_in_its_segment() {
    // Version 0 opens "a", and step s is in version s + 1: the first, a middle and the last of segment 4.
    for floor in [63, 70, 78] {
        for by_group in [false, true] {
            let disk = prepared(120);
            let store = process(&disk, 2);
            let mut options = ReclaimOptions::new().up_to(Step::new(floor));
            if by_group {
                let run = store.group("g").unwrap().begin(Start::Beginning).unwrap();
                run.checkpoint(store.position(Step::new(floor)).unwrap(), "kept").unwrap();
                options = ReclaimOptions::new().keep(1);
            }
            let freed = store.reclaim(&options).unwrap();
            assert_eq!((freed.floor.get(), freed.segments.count, freed.indexes.count), (floor, 4, 3));
            let saved = store.position(Step::new(floor)).unwrap();
            let below = store.rewind(Step::new(floor - 1), RewindOptions::default()).unwrap_err();
            assert_eq!(below.kind(), ErrorKind::Reclaimed, "{below}");
            store.rewind(Step::new(floor), RewindOptions::default()).unwrap();

            let fresh = process(&disk, 3);
            let mut producer = fresh.producer("a").unwrap();
            assert_eq!(producer.next_sequence().get(), floor);
            assert_eq!(producer.state(), state("a", floor - 1).as_bytes());
            publish(&mut producer).unwrap();
            // A position at the floor is as good as before, in the new generation; one beyond it isn't.
            let run = fresh.run(saved).unwrap();
            assert_eq!(deliver(&mut consumer(&run), 1), [floor]);
            assert!(process(&disk, 4).verify(|_| ()).unwrap().is_clean());
            fresh.reclaim(&options).unwrap();
            assert_eq!(fresh.info().unwrap().floor.get(), floor);
        }
    }
}

#[test]
fn a_batch_whose_step_is_freed_before_it_is_read_says_so() {
    let disk = prepared(120);
    let reader = process(&disk, 2);
    let batch = reader.batch(Step::new(3)).unwrap();
    process(&disk, 3).reclaim(&ReclaimOptions::new().up_to(Step::new(100))).unwrap();
    // Its commit isn't open any more once others were read.
    for step in 100..110 {
        reader.batch(Step::new(step)).unwrap().slice(0).unwrap();
    }
    let error = batch.slice(0).unwrap_err();
    assert_eq!((error.kind(), error.about_step()), (ErrorKind::Reclaimed, Some(Step::new(3))), "{error}");
}
