//! Properties of the doorbell: a word that is written with `write_at`, seen through a mapping, waited on and
//! woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use batchweave::storage::{Access, Word};

use super::bytes::NO_MAPS;
use super::{Ground, Property, Verdict, or_skip};

pub(super) const PROPERTIES: &[Property] = &[
    ("words-are-live", words_are_live),
    ("wait-returns-if-the-word-differs", wait_returns_if_the_word_differs),
    ("wait-ends-by-its-timeout", wait_ends_by_its_timeout),
    ("wake-ends-a-wait", wake_ends_a_wait),
];

/// So long that only a wake that doesn't work gets there.
const PATIENCE: Duration = Duration::from_secs(60);

fn word(ground: &Ground<'_>) -> Result<Arc<dyn Word>, Verdict> {
    ground.put("HEAD", &7_u32.to_le_bytes());
    let file = ground.storage.open(&ground.dir, "HEAD", Access::Update).expect("open for update");
    or_skip(ground.storage.map_word(&file), NO_MAPS, "map_word")
}

fn set(ground: &Ground<'_>, value: u32) {
    let file = ground.storage.open(&ground.dir, "HEAD", Access::Update).expect("open for update");
    ground.write(&file, &value.to_le_bytes(), 0);
}

fn words_are_live(ground: &Ground<'_>) -> Verdict {
    let word = match word(ground) {
        Ok(word) => word,
        Err(skip) => return skip,
    };
    assert_eq!(word.load(), 7, "a word isn't the first 4 bytes, little-endian");
    set(ground, 0x0102_0304);
    assert_eq!(word.load(), 0x0102_0304, "a write through another handle isn't seen in the mapped word");
    Verdict::Kept
}

fn wait_returns_if_the_word_differs(ground: &Ground<'_>) -> Verdict {
    let word = match word(ground) {
        Ok(word) => word,
        Err(skip) => return skip,
    };
    set(ground, 8);
    let waited = timed(|| ground.storage.wait(&*word, 7, PATIENCE).expect("wait for a word that differs"));
    assert!(waited < PATIENCE, "a wait slept although the word differs from what was seen");
    Verdict::Kept
}

fn wait_ends_by_its_timeout(ground: &Ground<'_>) -> Verdict {
    let word = match word(ground) {
        Ok(word) => word,
        Err(skip) => return skip,
    };
    ground.storage.wait(&*word, 7, Duration::from_millis(1)).expect("a timeout isn't an error");
    ground.storage.wait(&*word, 7, Duration::ZERO).expect("a timeout of nothing isn't an error");
    ground.storage.wake(&*word).expect("wake when nobody waits");
    Verdict::Kept
}

/// The waker can't know when the waiter sleeps, so it wakes until the waiter says that it is awake.
fn wake_ends_a_wait(ground: &Ground<'_>) -> Verdict {
    let word = match word(ground) {
        Ok(word) => word,
        Err(skip) => return skip,
    };
    let file = ground.open("HEAD");
    let other = ground.storage.map_word(&file).expect("a second mapping of the word");
    let awake = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let waited = timed(|| ground.storage.wait(&*word, 7, PATIENCE).expect("wait"));
            awake.store(true, Ordering::Release);
            waited
        });
        while !awake.load(Ordering::Acquire) {
            ground.storage.wake(&*other).expect("wake");
            std::thread::yield_now();
        }
        let waited = waiter.join().expect("the waiter panicked");
        assert!(waited < PATIENCE, "a wake through another mapping of the word ended no wait");
    });
    Verdict::Kept
}

#[expect(clippy::disallowed_methods, reason = "tells a wake from a timeout of a minute")]
fn timed(wait: impl FnOnce()) -> Duration {
    let start = Instant::now();
    wait();
    start.elapsed()
}
