//! `copy`: what a copy holds, held against its source through the library.

use batchweave::{Batch, Compression, Counts, Options, Producer, Step, Store};

use super::{args, *};

/// A part of slices, one of several blocks, with all that a part can have.
fn publish(producer: &mut Producer, number: u8, compression: Compression) {
    producer.set_compression(compression);
    let mut draft = producer.draft().unwrap();
    draft.add_slice(&vec![number; (1 << 20) + 9], Counts { samples: 3, tokens: number.into() }).unwrap();
    draft.add_slice(&[], Counts::default()).unwrap();
    draft.add_slice(&[number, 1, 2], Counts { samples: 1, tokens: 2 }).unwrap();
    draft.add_slice(b"last", Counts::default()).unwrap();
    draft.attach(format!("attachment {number}").as_bytes()).unwrap();
    draft.metadata(format!("metadata {number}").as_bytes()).unwrap();
    producer.publish(draft, [number]).unwrap().wait().unwrap();
}

/// Six steps of two parts: b before a in the odd ones, compressed in the last two; step 2 is skipped, b has
/// finished, the stream is closed.
fn source(place: &TempDir) -> Store {
    let options = Options::new().divisor(2).parts_per_step(2).segment_size(16);
    let options = options.durability(batchweave::Durability::Unsynced);
    let store = Store::create(place.path().join("source"), options).unwrap();
    let (mut a, mut b) = (store.producer("a").unwrap(), store.producer("b").unwrap());
    for step in 0..6 {
        let compression = if step < 4 { Compression::None } else { Compression::Zstd(1) };
        let (first, second) = if step % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        publish(first, step * 2, compression);
        publish(second, step * 2 + 1, compression);
    }
    b.finish().unwrap();
    store.skip(Step::new(2), Step::new(2), "bad").unwrap();
    store.close(false).unwrap();
    store
}

/// All that a step holds, but its number.
fn contents(batch: &Batch) -> impl PartialEq + std::fmt::Debug + use<> {
    let slices: Vec<_> = batch.slices().map(|slice| slice.unwrap()).collect();
    let slices: Vec<_> = slices.iter().map(|slice| (slice.len(), slice.checksum(), slice.counts())).collect();
    (slices, batch.producers().unwrap(), batch.attachments().unwrap(), batch.metadata().unwrap())
}

fn bytes_on_disk(store: &Store, step: u64) -> u64 {
    let mut commits = store.commits(batchweave::Version::ZERO).unwrap().map(|commit| commit.unwrap());
    commits.find(|commit| commit.first_step == Some(Step::new(step))).unwrap().bytes
}

#[test]
fn a_copy_holds_the_same_and_is_another_store() {
    let place = TempDir::new().unwrap();
    let store = source(&place);
    let dest = place.path().join(OsStr::from_bytes(b"co\xffpy"));
    let made = changes_nothing(store.path(), || run(args!["copy", store.path(), dest, "--json"]).fact());
    assert_eq!((&made["steps"], &made["producers"], &made["closed"]), (&5.into(), &2.into(), &true.into()));
    assert_eq!(made["left_out"], serde_json::json!([{"start": 2, "end": 2}]));

    assert_eq!(run(args!["verify", dest, "--json"]).fact()["clean"], true);
    let info = run(args!["info", dest, "--json"]).fact();
    assert_eq!((&info["origin"], &info["uuid"]), (&made["origin"], &made["uuid"]));
    assert_eq!(info["origin"], store.uuid().to_string());
    assert_ne!(info["origin"], info["uuid"]);
    assert_eq!((&info["next_step"], &info["closed"]), (&5.into(), &5.into()));
    assert_eq!((&info["parts_per_step"], &info["segment_size"]), (&2.into(), &16.into()));
    assert!(run(args!["info", dest]).text().contains(&format!("\ncopy of     {}\n", store.uuid())));

    let copy = Store::open(&dest).unwrap();
    for (number, of) in [0, 1, 3, 4, 5].into_iter().enumerate() {
        let batch = copy.batch(Step::new(number as u64)).unwrap();
        assert_eq!(contents(&batch), contents(&store.batch(Step::new(of)).unwrap()), "step {of}");
    }
    assert!(bytes_on_disk(&copy, 4) < 1 << 16, "what was compressed still is");
    assert!(bytes_on_disk(&copy, 0) > 1 << 20, "what wasn't still isn't");
    let producers = copy.producers().unwrap();
    assert_eq!((&producers[0].state[..], producers[0].finished), (&[11][..], false));
    assert_eq!((&producers[1].state[..], producers[1].finished), (&[10][..], true));
    let beside = fs::read_dir(place.path()).unwrap().count();
    assert_eq!(beside, 2, "nothing is left beside it");
}

#[test]
fn a_part_of_a_store_is_copied() {
    let place = TempDir::new().unwrap();
    let store = source(&place);
    let dest = place.path().join("copy");
    fs::create_dir(&dest).unwrap();
    let said = run(args!["copy", store.path(), dest, "--steps", "1..4"]).text();
    assert!(said.contains(&format!(" of store {}, from its step 1 on\n", store.uuid())), "{said}");
    assert!(said.ends_with("\nsteps 2 to 2 are left out: they were skipped\n"), "{said}");
    let copy = Store::open(&dest).unwrap();
    assert_eq!(copy.info().unwrap().next_step, Step::new(2));
    assert_eq!(copy.info().unwrap().closed, None, "the source goes on after it");
    assert_eq!(contents(&copy.batch(Step::new(1)).unwrap()), contents(&store.batch(Step::new(3)).unwrap()));
    let producers = copy.producers().unwrap();
    // As of their last parts in it: of b more is left behind.
    assert_eq!((&producers[0].state[..], producers[0].sequence.get()), (&[7][..], 2));
    assert_eq!((&producers[1].state[..], producers[1].finished), (&[6][..], false));
    let mut a = copy.producer("a").unwrap();
    publish(&mut a, 40, Compression::None);
    publish(&mut a, 41, Compression::None);
    assert_eq!(copy.info().unwrap().next_step, Step::new(3));
}

#[test]
fn what_cannot_be_copied_is_refused_and_leaves_nothing() {
    let place = TempDir::new().unwrap();
    let store = source(&place);
    let (dest, other) = (place.path().join("copy"), place.path().join("other"));
    fs::create_dir(&other).unwrap();
    fs::write(other.join("mine"), b"mine").unwrap();
    let copy = |to: &Path, steps: &str| run(args!["copy", store.path(), to, "--steps", steps]);
    assert!(copy(&dest, "3..7").failed(17).contains("the next one is 6"));
    assert!(copy(&dest, "3..3").failed(17).contains("there are no steps in 3..3"));
    assert!(copy(&other, "0..1").failed(17).contains("mine"));
    assert!(copy(store.path(), "0..1").failed(17).contains("there is a store already"));
    run(args!["init", place.path().join("copy.partial"), "--unsynced"]).good();
    assert!(copy(&dest, "0..1").failed(17).contains("unfinished copy"));
    run(args!["destroy", place.path().join("copy.partial"), "--confirm"]).good();
    assert!(!dest.exists());

    // What is broken on the way is told, and what was copied before it goes again.
    let first = store.commits(batchweave::Version::ZERO).unwrap().map(|commit| commit.unwrap());
    let bad = first.into_iter().find(|commit| commit.first_step == Some(Step::new(3))).unwrap().version.get();
    let path = store.path().join(format!("log/{:012}/{bad:020}", bad / 16));
    let mut bytes = fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    fs::write(&path, bytes).unwrap();
    run(args!["copy", store.path(), dest]).failed(11);
    assert!(!dest.exists() && !place.path().join("copy.partial").exists());
    copy(&dest, "0..2").good();
    assert!(copy(&dest, "0..2").failed(17).contains("a copy of this store already"));
    assert_eq!(run(args!["verify", dest, "--json"]).fact()["clean"], true);
}
