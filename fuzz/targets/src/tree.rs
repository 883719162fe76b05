//! Whole stores whose files were changed: a sound store with everything in it, then anything done to its
//! files, with checksums made right where the input says so.

use std::sync::OnceLock;

use batchweave::{ConsumerOptions, Settings, Share, Start};
use batchweave_sim::Memory;

use crate::input::Input;
use crate::{files, golden, reading, reseal};

/// How many things are done to a store's files: mostly one, since of several the first hides the others.
const EDITS: [usize; 8] = [1, 1, 1, 1, 2, 2, 3, 8];

/// The store that is changed; made once.
fn base() -> Memory {
    static BASE: OnceLock<Memory> = OnceLock::new();
    BASE.get_or_init(|| golden::plain(0)).fork()
}

/// Changes files and reads everything; and goes on reading by a handle that was opened before.
pub fn tree(data: &[u8]) {
    let mut input = Input::new(data);
    let memory = base();
    let flags = input.u8();
    let mut follower = (flags & 1 == 1).then(|| {
        let store = reading::open(&memory, &Settings::new()).expect("a sound store");
        let run = store.run(Start::Beginning).expect("a run");
        let options = ConsumerOptions::new().window_steps(0);
        let mut consumer = run.consumer_with(Share::WHOLE, options).expect("a consumer");
        consumer.try_next().expect("a step");
        (store, consumer)
    });
    for _ in 0..EDITS[usize::from(flags >> 5)] {
        if input.is_empty() {
            break;
        }
        edit(&memory, &mut input);
    }
    if let Some((store, consumer)) = &mut follower {
        reading::follow(consumer);
        reading::typed(store.info());
    }
    reading::everything(&memory, flags & 6 == 6);
}

/// One change to one file.
pub fn edit(memory: &Memory, input: &mut Input<'_>) {
    let paths = files::all(memory);
    let path = input.pick(&paths).clone();
    let mut bytes = files::read(memory, &path).unwrap_or_default();
    let at = if input.rarely(3) {
        // Where fields are.
        usize::from(input.u8()) * 8 % 832
    } else {
        usize::from(input.u16())
    };
    let end = bytes.len();
    let kind = input.u8();
    match kind % 10 {
        0..=3 => {
            let new = input.take(1 + usize::from(kind) / 16);
            if let Some(range) = bytes.get_mut(at..(at + new.len()).min(end)) {
                range.copy_from_slice(&new[..range.len()]);
            }
        }
        4 => {
            if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
                *field = input.number(u64::from_le_bytes(*field)).to_le_bytes();
            }
        }
        5 => bytes.truncate(at.min(end)),
        6 => bytes.resize(end + at, 0),
        7 => bytes = files::read(memory, input.pick::<String>(&paths)).unwrap_or_default(),
        8 => {
            let new = other_name(&path, input);
            files::write(memory, &new, &bytes);
            return;
        }
        _ => {
            files::remove(memory, &path);
            if kind > 127 {
                files::make_dir(memory, &path);
            }
            return;
        }
    }
    if input.u8().is_multiple_of(2) {
        reseal::file(&path, &mut bytes);
    }
    files::write(memory, &path, &bytes);
}

/// A name beside a file's, of a number near its own or near a border.
fn other_name(path: &str, input: &mut Input<'_>) -> String {
    let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
    let number = input.number(name.parse().unwrap_or(0));
    match parents {
        "index" | "marks" => format!("{parents}/{number:012}"),
        "" => format!("marks/{number:012}"),
        _ if input.rarely(4) => format!("log/{number:012}/{name}"),
        _ => format!("{parents}/{number:020}"),
    }
}
