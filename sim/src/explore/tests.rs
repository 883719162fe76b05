//! Whether pruning hides an end: small programs, drawn by seed, searched with it and without.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

use batchweave::storage::{Access, Dir, File};

use super::*;
use crate::random::Random;
use crate::simulation::cast::Baton;
use crate::{Calm, Class, Memory, Mount, Node, Process, World};

/// What a process does next.
#[derive(Clone, Copy, Debug)]
enum Act {
    Create(&'static str),
    Link(&'static str),
    Open(&'static str),
    ReadHeld,
    ListHeld,
    OpenDir,
    MakeDir,
    RemoveDir,
    CreateInHeld,
    Remove(&'static str),
    SyncHeld,
    Sleep,
    Now,
}

const ACTS: &[Act] = &[
    Act::Create("x"),
    Act::Create("y"),
    Act::Link("x"),
    Act::Link("y"),
    Act::Open("x"),
    Act::Open("x"),
    Act::ReadHeld,
    Act::ReadHeld,
    Act::ListHeld,
    Act::OpenDir,
    Act::OpenDir,
    Act::MakeDir,
    Act::MakeDir,
    Act::RemoveDir,
    Act::RemoveDir,
    Act::CreateInHeld,
    Act::Remove("x"),
    Act::Remove("y"),
    Act::SyncHeld,
    Act::Sleep,
    Act::Now,
];

fn program(random: &mut Random, length: usize) -> Vec<Act> {
    (0..length).map(|_| ACTS[(random.next() % ACTS.len() as u64) as usize]).collect()
}

/// What a process has in its hands.
struct Hands {
    root: Dir,
    dir: Dir,
    file: Option<File>,
}

/// Does one act; gives what came of it, in words.
fn act(process: &Process, hands: &mut Hands, act: Act) -> String {
    let storage = process.storage();
    let mine = format!("of{}", process.number);
    let done = match act {
        Act::Create(name) => storage.create_exclusive(&hands.root, name).map(drop),
        Act::Link(name) => storage.link(&hands.root, &mine, &hands.root, name),
        Act::Open(name) => storage.open(&hands.root, name, Access::Read).map(|file| hands.file = Some(file)),
        Act::ReadHeld => {
            let Some(file) = &hands.file else { return "nothing held".to_owned() };
            let mut buffer = [0; 8];
            return match storage.read_at(file, &mut buffer, 0) {
                Ok(length) => String::from_utf8_lossy(&buffer[..length]).into_owned(),
                Err(error) => error.to_string(),
            };
        }
        Act::ListHeld => match storage.list(&hands.dir) {
            Ok(names) => return format!("{:?}", names.iter().collect::<Vec<_>>()),
            Err(error) => Err(error),
        },
        Act::OpenDir => storage.open_dir(&hands.root, "z").map(|dir| hands.dir = dir),
        Act::MakeDir => storage.make_dir(&hands.root, "z"),
        Act::RemoveDir => storage.remove_dir(&hands.root, "z"),
        Act::CreateInHeld => storage.create_exclusive(&hands.dir, "w").map(drop),
        Act::Remove(name) => storage.remove(&hands.root, name),
        Act::SyncHeld => storage.sync_dir(&hands.dir),
        Act::Sleep => {
            process.env().sleep(Duration::from_millis(1));
            Ok(())
        }
        Act::Now => return format!("{:?}", process.env().now()),
    };
    format!("{:?}", done.map_err(|error| error.to_string()))
}

/// What each came to, once it has ended.
type Told = Mutex<Vec<(usize, Vec<String>)>>;

fn perform(process: &Process, acts: &[Act], told: &Told) -> Result<(), String> {
    let storage = process.storage();
    let root = storage.open_root("/".as_ref()).map_err(|error| error.to_string())?;
    let file = storage.create_exclusive(&root, &format!("of{}", process.number));
    let file = file.map_err(|error| error.to_string())?;
    storage.write_at(&file, &[b'0' + process.number as u8], 0).map_err(|error| error.to_string())?;
    storage.close(file).map_err(|error| error.to_string())?;
    if process.number == 0 {
        storage.link(&root, "of0", &root, "x").map_err(|error| error.to_string())?;
        storage.make_dir(&root, "z").map_err(|error| error.to_string())?;
    }
    let mut hands = Hands { dir: root.clone(), root, file: None };
    process.world.meet();
    let mut came = Vec::new();
    for one in acts {
        came.push(act(process, &mut hands, *one));
        // Only what the acts come to decides what is done: their histories have to tell.
        if came.last() == came.first() && came.len() > 2 {
            break;
        }
    }
    told.lock().push((process.number, came));
    Ok(())
}

fn digest(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn searched(programs: &[Vec<Act>], class: Class, prunes: bool) -> Explored {
    let search = Search { runs_max: 400_000, prunes, is_noticed: Arc::new(|_, _| true) };
    explore(&search, |choices, style| {
        let memory = Memory::new();
        let told: Arc<Told> = Arc::default();
        let mounts: Arc<Mutex<Vec<Mount>>> = Arc::default();
        let fingerprint: Fingerprint = {
            let (memory, told, mounts) = (memory.clone(), Arc::clone(&told), Arc::clone(&mounts));
            Arc::new(move || {
                let mut said = told.lock().clone();
                said.sort();
                let nodes: Vec<u64> = mounts.lock().iter().map(Mount::fingerprint).collect();
                digest(&(memory.whole_fingerprint(), said, nodes))
            })
        };
        let world = World::new(choices.clone(), style(fingerprint), 1, 1000, Arc::new(Calm));
        world.expect(programs.len());
        for (number, acts) in programs.iter().enumerate() {
            let pause = Arc::new(Baton(world.downgrade()));
            let mount = Mount::new(memory.clone(), class, choices.clone(), pause);
            mounts.lock().push(mount.clone());
            let node = Node { number, storage: Arc::new(mount), years_off: 0 };
            let (acts, told) = (acts.clone(), Arc::clone(&told));
            world.add(&node, "actor", 0, move |process| perform(process, &acts, &told));
        }
        let end = world.run();
        let mut said = told.lock().clone();
        said.sort();
        (end, digest(&(memory.fingerprint(), said)))
    })
}

fn check(programs: &[Vec<Act>], class: Class) -> (u64, u64) {
    let (fast, slow) = (searched(programs, class, true), searched(programs, class, false));
    assert_eq!((&fast.failure, &slow.failure), (&None, &None));
    assert!(fast.complete && slow.complete, "{class:?}: {programs:?}");
    assert_eq!(fast.ends, slow.ends, "{class:?}: {programs:?}");
    (fast.runs, slow.runs)
}

/// Each would lose an end if a part of what a thread has seen were not in its history. Who creates `y` is what
/// makes the order of the others' acts matter.
#[test]
fn what_a_thread_has_seen_is_in_its_history() {
    use Act::*;
    let both = |acts: &[Act]| vec![acts.to_vec(), acts.to_vec()];
    // Who has removed it.
    check(&both(&[Remove("x"), Create("y")]), Class::Local);
    // Who holds the old one, and who the new one.
    let mut directories = both(&[OpenDir, Create("y"), CreateInHeld]);
    directories.push(vec![RemoveDir, MakeDir]);
    check(&directories, Class::Local);
    let mut files = both(&[Open("x"), Create("y"), ReadHeld]);
    files.push(vec![Remove("x"), Link("x")]);
    check(&files, Class::Local);
    // What the first server has listed.
    for (first, last) in [("a", "b"), ("b", "c"), ("a", "c"), ("c", "a"), ("b", "a"), ("c", "b")] {
        let passing = vec![Create(first), Remove(first), Create(last), OpenDir];
        check(&[vec![ListHeld], passing], Class::Coherent { bricks: 3 });
    }
    // When it was.
    check(&[vec![Now, Create("y")], vec![Sleep, Create("y")]], Class::Local);
}

#[test]
fn pruning_hides_no_end() {
    let (mut pruned, mut all) = (0, 0);
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let lengths: &[usize] = if seed % 3 == 0 { &[2, 2, 2] } else { &[4, 3] };
        let programs: Vec<_> = lengths.iter().map(|length| program(&mut random, *length)).collect();
        for class in [Class::Local, Class::Coherent { bricks: 3 }, Class::CloseToOpen] {
            let (fast, slow) = check(&programs, class);
            pruned += fast;
            all += slow;
        }
    }
    assert!(pruned * 2 < all, "{pruned} of {all}: pruning spares nothing");
}
