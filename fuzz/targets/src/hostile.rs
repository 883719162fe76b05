//! Stores made to hurt, each by one lie under checksums that are right. Every one opens, and its only step
//! can't
//! be read: `Corrupt`, by every mode, and without the memory that it asks for; and `verify` says so.

use std::io::Write as _;

use batchweave::format::codec::Encoder;
use batchweave::format::part::SliceEntry;
use batchweave::format::record::{Parts, Record};
use batchweave::{
    ConsumerOptions, ErrorKind, Incarnation, Name, Next, ReadMode, Result, Sequence, Settings, Share, Start,
    Step, Store,
};
use batchweave_sim::Memory;

use crate::craft::{self, Contents, Part};
use crate::{crafted, files, reading};

const MIB: usize = 1 << 20;
const TIB: u64 = 1 << 40;

/// A store to be read, and what is wrong with it.
#[derive(Debug)]
pub struct Hostile {
    /// In words.
    pub what: &'static str,
    memory: Memory,
}

impl Hostile {
    /// Reads it.
    ///
    /// # Panics
    /// When its step isn't refused, or a promise is broken.
    pub fn read(&self) {
        for mode in [ReadMode::Map, ReadMode::Copy] {
            let store = reading::open(&self.memory, &Settings::new().read_mode(mode)).expect("it opens");
            // Who reads single slices sees none of the others, a consumer no attachment.
            let errors = [reading::whole(&store, Step::ZERO).err(), next(&store).err()];
            assert!(errors.iter().any(Option::is_some), "{}: it is read", self.what);
            for error in errors.into_iter().flatten() {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{}: {error}", self.what);
            }
            let report = store.verify(|_| ()).expect("a report");
            assert!(!report.is_clean(), "{}: verify finds nothing", self.what);
        }
        reading::everything(&self.memory, false);
    }
}

fn next(store: &Store) -> Result<Next> {
    let run = store.run(Start::Beginning)?;
    run.consumer_with(Share::WHOLE, ConsumerOptions::new().window_steps(0))?.try_next()
}

/// All of them, each made when it is asked for.
pub fn stores() -> impl Iterator<Item = Hostile> {
    type Make = fn() -> Memory;
    let all: [(&str, Make); 9] = [
        ("many raw slices in one place", || in_one_place(&[7; MIB], false, 400)),
        ("many compressed slices in one place", || in_one_place(&vec![0; 8 * MIB], true, 64)),
        ("a slice before the one before it", backward),
        ("a frame that unpacks to far more than it declares", bomb),
        ("a frame that declares far more than it unpacks to", || {
            declared(|contents| contents.entries[0].length = TIB)
        }),
        ("an attachment that declares far more than it unpacks to", || {
            declared(|contents| contents.packed = Some(TIB))
        }),
        ("a slice that is longer than any file", || described(|part| part.descriptor.table = TIB, TIB)),
        ("more slices than any table holds", || described(|part| part.descriptor.slices = 1 << 32, 0)),
        ("a file that is cut short", cut),
    ];
    all.into_iter().map(|(what, make)| Hostile { what, memory: make() })
}

fn with_slice(bytes: &[u8], compress: bool) -> Contents {
    let mut contents = Contents::default();
    contents.slice(bytes, compress);
    contents
}

fn in_one_place(bytes: &[u8], compress: bool, count: usize) -> Memory {
    let mut contents = with_slice(bytes, compress);
    contents.entries = vec![contents.entries[0]; count];
    one_part(contents.part())
}

fn backward() -> Memory {
    let mut contents = with_slice(b"first", false);
    contents.slice(b"second", false);
    contents.entries.swap(0, 1);
    one_part(contents.part())
}

fn bomb() -> Memory {
    let mut encoder = Encoder::new(Vec::new(), 3).expect("a level of zstd");
    (0..512).for_each(|_| encoder.write_all(&[0; MIB]).expect("memory"));
    let frame = encoder.finish().expect("memory");
    let mut contents = with_slice(&frame, false);
    let entry = contents.entries[0];
    contents.entries =
        vec![SliceEntry { length: 100, codec: batchweave::format::codec::Codec::Zstd, ..entry }];
    one_part(contents.part())
}

fn declared(lie: impl Fn(&mut Contents)) -> Memory {
    let mut contents = with_slice(b"a small slice", true);
    contents.attachment = craft::zstd(b"a small attachment");
    contents.packed = Some(18);
    lie(&mut contents);
    one_part(contents.part())
}

/// A part with a lie in its descriptor; its slice says that it is `long` bytes, if that isn't 0.
fn described(lie: impl Fn(&mut Part), long: u64) -> Memory {
    let mut contents = with_slice(b"a small slice", false);
    if long > 0 {
        (contents.entries[0].stored, contents.entries[0].length) = (long, long);
    }
    let mut part = contents.part();
    lie(&mut part);
    one_part(part)
}

fn cut() -> Memory {
    let memory = one_part(with_slice(&[7; 9000], false).part());
    let path = files::all(&memory).into_iter().rfind(|path| path.starts_with("log/")).expect("a commit");
    let bytes = files::read(&memory, &path).expect("a commit");
    files::write(&memory, &path, &bytes[..9000]);
    memory
}

/// A store whose one step is this part.
fn one_part(part: Part) -> Memory {
    let producer = Name::new("a").expect("a name");
    let mut parts = [part];
    let payload = craft::place(&mut parts);
    let open = Record::Open { producer: producer.clone(), last: None };
    let record = Record::Parts(Parts {
        producer,
        incarnation: Incarnation::ZERO,
        first: Sequence::ZERO,
        parts: vec![parts[0].descriptor],
    });
    crafted::of([(open, Vec::new()), (record, payload)])
}
