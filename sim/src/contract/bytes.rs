//! Properties of bytes: written, read, copied, mapped.

use batchweave::storage::{Access, Mapping};

use super::{Ground, Property, Verdict, expect_fails, or_skip};
use crate::errno;

pub(super) const PROPERTIES: &[Property] = &[
    ("reads-are-short-at-the-end", reads_are_short_at_the_end),
    ("holes-are-zero", holes_are_zero),
    ("update-writes-in-place", update_writes_in_place),
    ("read-handles-do-not-write", read_handles_do_not_write),
    ("offsets-are-64-bit", offsets_are_64_bit),
    ("copies-inside", copies_inside),
    ("mappings-hold-the-bytes", mappings_hold_the_bytes),
    ("populate-finds-the-end", populate_finds_the_end),
];

/// What a mount that can't map files answers.
pub(super) const NO_MAPS: &[i32] = &[errno::ENODEV, errno::EACCES, errno::EOPNOTSUPP];

fn reads_are_short_at_the_end(ground: &Ground<'_>) -> Verdict {
    ground.put("f", b"0123456789");
    let file = ground.open("f");
    assert_eq!(ground.storage.size(&file).expect("size"), 10);
    let mut buffer = [0xee; 8];
    assert_eq!(ground.storage.read_at(&file, &mut buffer, 6).expect("read over the end"), 4);
    assert_eq!(&buffer, b"6789\xee\xee\xee\xee", "a short read touched more than it read");
    assert_eq!(ground.storage.read_at(&file, &mut buffer, 10).expect("read at the end"), 0);
    assert_eq!(ground.storage.read_at(&file, &mut buffer, 1 << 40).expect("read beyond the end"), 0);
    assert_eq!(ground.storage.read_at(&file, &mut [], 0).expect("read of nothing"), 0);
    Verdict::Kept
}

fn holes_are_zero(ground: &Ground<'_>) -> Verdict {
    let file = ground.create("f");
    ground.write(&file, b"end", 20_000);
    ground.write(&file, b"begin", 0);
    ground.write(&file, &[], 90_000);
    ground.storage.close(file).expect("close");
    let mut expected = vec![0; 20_003];
    expected[..5].copy_from_slice(b"begin");
    expected[20_000..].copy_from_slice(b"end");
    assert!(
        ground.read_name("f") == expected,
        "a hole isn't zero, or the size isn't that of the furthest byte"
    );
    Verdict::Kept
}

fn update_writes_in_place(ground: &Ground<'_>) -> Verdict {
    ground.put("f", b"0123456789");
    let file = ground.storage.open(&ground.dir, "f", Access::Update).expect("open for update");
    assert_eq!(ground.read(&file), b"0123456789", "open for update changed the file, or can't read");
    ground.write(&file, b"xy", 3);
    ground.storage.close(file).expect("close");
    assert_eq!(ground.read_name("f"), b"012xy56789");
    Verdict::Kept
}

fn read_handles_do_not_write(ground: &Ground<'_>) -> Verdict {
    ground.put("f", b"bytes");
    let file = ground.open("f");
    expect_fails(
        ground.storage.write_at(&file, b"x", 0),
        &[errno::EBADF],
        "write through a handle for reading",
    );
    assert_eq!(ground.read_name("f"), b"bytes");
    Verdict::Kept
}

fn offsets_are_64_bit(ground: &Ground<'_>) -> Verdict {
    let file = ground.create("f");
    let far = (5 << 30) + 7;
    let too_large = &[errno::EFBIG, errno::ENOSPC];
    if let Err(skip) = or_skip(ground.storage.write_at(&file, b"far", far), too_large, "write at 5 GiB") {
        return skip;
    }
    assert_eq!(ground.storage.size(&file).expect("size"), far + 3);
    let mut buffer = [0xee; 5];
    assert_eq!(ground.storage.read_at(&file, &mut buffer, far - 1).expect("read at 5 GiB"), 4);
    assert_eq!(&buffer, b"\0far\xee");
    let mut low = [0xee; 8];
    ground.storage.read_at(&file, &mut low, far - (4 << 30)).expect("read at 1 GiB");
    assert_eq!(low, [0; 8], "an offset was cut to 32 bits");
    Verdict::Kept
}

fn copies_inside(ground: &Ground<'_>) -> Verdict {
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
    ground.put("from", &bytes);
    let (from, to) = (ground.open("from"), ground.create("to"));
    ground.write(&to, b"head", 0);
    let cannot = &[errno::EXDEV, errno::EINVAL, errno::ENOSYS, errno::EOPNOTSUPP];
    let (mut at, mut into) = (1000, 4);
    loop {
        let copied = ground.storage.copy_range(&from, at, &to, into, 10_000_000);
        match or_skip(copied, cannot, "copy_range") {
            Ok(0) => break,
            Ok(copied) => (at, into) = (at + copied, into + copied),
            Err(skip) => return skip,
        }
    }
    let copied = ground.read(&to);
    assert_eq!(copied.len(), bytes.len() - 996, "a copy stopped early, or went beyond the end");
    assert!(
        copied.starts_with(b"head") && copied[4..] == bytes[1000..],
        "a copy isn't what it was copied from"
    );
    Verdict::Kept
}

fn mapped(ground: &Ground<'_>, bytes: &[u8], length: u64) -> Result<Mapping, Verdict> {
    ground.put("f", bytes);
    or_skip(ground.storage.map(&ground.open("f"), length), NO_MAPS, "map of a file")
}

fn mappings_hold_the_bytes(ground: &Ground<'_>) -> Verdict {
    let bytes: Vec<u8> = (0..100_001_u32).map(|n| (n / 3) as u8).collect();
    let map = match mapped(ground, &bytes, bytes.len() as u64) {
        Ok(map) => map,
        Err(skip) => return skip,
    };
    // Before Linux 5.14 populate is EINVAL; the bytes are there all the same.
    let populated =
        or_skip(ground.storage.populate(&map, 0..bytes.len() as u64), &[errno::EINVAL], "populate");
    ground.storage.populate(&map, 5..5).expect("populate of nothing");
    ground.storage.remove(&ground.dir, "f").expect("remove of a mapped file");
    assert!(map[..] == bytes[..], "a mapping isn't what the file holds");
    populated.err().unwrap_or(Verdict::Kept)
}

fn populate_finds_the_end(ground: &Ground<'_>) -> Verdict {
    // 64 pages of 4096: beyond the end on every page size there is.
    let beyond = 10_000 + (64 << 12);
    let map = match mapped(ground, &[7; 10_000], beyond) {
        Ok(map) => map,
        Err(skip) => return skip,
    };
    match or_skip(ground.storage.populate(&map, 0..10_000), &[errno::EINVAL], "populate of what is there") {
        Ok(()) => {}
        Err(skip) => return skip,
    }
    let populated = ground.storage.populate(&map, 0..beyond);
    populated.expect_err("populate of more than the file holds went well, so reading it is a SIGBUS");
    Verdict::Kept
}
