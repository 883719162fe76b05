//! What bytes <-> values costs: a small commit, slice entries, an index of one default segment.
//!
//! - No storage: what these cost is paid beside a sync or a read of a page, and has to vanish against it.

use std::hint::black_box;

use batchweave::format::commit::{Draft, Header, People, seal};
use batchweave::format::cursor::Writer;
use batchweave::format::index::{
    Contents, Header as IndexHeader, PartEntry, Section, VersionEntry, check_section, version_entry,
};
use batchweave::format::part::{Item, PartDescriptor, SliceEntry};
use batchweave::format::record::{Parts, Record};
use batchweave::{Checksum, Generation, Name, Nonce, Part, Segment, StoreUuid};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

fn record() -> Record {
    let state = Item { length: 64, checksum: Checksum::new(1) };
    let part = PartDescriptor { place: 4096, slices: 8, table: 1 << 20, state, ..PartDescriptor::default() };
    Record::Parts(Parts {
        producer: name("tok-017"),
        incarnation: 3.into(),
        first: 4.into(),
        parts: vec![part],
    })
}

fn draft() -> Draft {
    let text = |text: &str| text.to_owned();
    Draft {
        store: StoreUuid::new([1; 16]),
        nonce: Nonce::new([2; 16]),
        generation: Generation::new(0),
        seen: None,
        attempt_us: 900,
        people: People {
            wall_us: 5,
            pid: 6,
            host: text("node-17"),
            job: text("4711"),
            library: text("batchweave"),
        },
    }
}

fn commit(c: &mut Criterion) {
    let record = record();
    c.bench_function("record/encode", |b| b.iter(|| black_box(&record).encode()));
    c.bench_function("commit/seal", |b| {
        b.iter_batched(draft, |draft| seal(draft, &record).expect("a sound record"), BatchSize::SmallInput)
    });
    let block = seal(draft(), &record).expect("a sound record").block;
    c.bench_function("commit/decode", |b| {
        b.iter(|| {
            let (header, checksum) = Header::decode(black_box(&block)).expect("what was sealed");
            (header.record(&block, &[]).expect("what was sealed"), checksum)
        })
    });
}

fn slices(c: &mut Criterion) {
    let entry = SliceEntry { offset: 4096, stored: 5000, length: 5000, ..SliceEntry::default() };
    let mut group = c.benchmark_group("slice entry");
    group.throughput(Throughput::Elements(1));
    group.bench_function("encode", |b| {
        b.iter(|| {
            let mut to = Writer::new();
            black_box(&entry).encode(7, &mut to);
            to.into_bytes()
        })
    });
    let mut to = Writer::new();
    entry.encode(7, &mut to);
    let bytes: [u8; 64] = to.into_bytes().try_into().expect("an entry is 64 bytes");
    group.bench_function("decode", |b| {
        b.iter(|| SliceEntry::decode(7, black_box(&bytes), 1 << 20).expect("what was encoded"))
    });
    group.finish();
}

fn contents() -> Contents {
    let version = |number: u64| VersionEntry {
        nonce: Nonce::new([3; 16]),
        checksum: Checksum::new(number),
        kind: 2,
        void: 0,
    };
    Contents {
        store: StoreUuid::new([1; 16]),
        segment: Segment::new(9),
        first_part: Part::new(9 * 256),
        versions: (0..256).map(version).collect(),
        parts: (0..256).map(|at: u64| PartEntry { version: (9 * 256 + at).into(), ordinal: 0 }).collect(),
        state: vec![4; 4096],
        producer_states: (0..32).map(|at: u32| (name(&format!("tok-{at:03}")), vec![5; 256])).collect(),
    }
}

fn index(c: &mut Criterion) {
    let contents = contents();
    c.bench_function("index of 256/encode", |b| b.iter(|| black_box(&contents).encode()));
    let (bytes, _) = contents.encode();
    c.bench_function("index of 256/open and find one version", |b| {
        b.iter(|| {
            let header =
                IndexHeader::decode(black_box(&bytes).first_chunk().expect("a header")).expect("a header");
            let placed = header.placed(Section::Versions);
            let end = (placed.offset + placed.length) as usize;
            let section = bytes.get(placed.offset as usize..end).expect("a section");
            check_section(Section::Versions, placed, section).expect("what was encoded");
            version_entry(section, 200).expect("an entry")
        })
    });
}

criterion_group!(benches, commit, slices, index);
criterion_main!(benches);
