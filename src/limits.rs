//! Every bound of the engine, with its reason. Units come last in the names.
//!
//! Decoders hold what they read against these before they allocate; writers before they write.

use std::time::Duration;

/// A slice begins at a multiple of this: a page on every x86 machine, a direct-I/O block on every filesystem.
pub const SLICE_ALIGN_BYTES: u64 = 4096;
/// The header of a commit. One page, so that a reader gets it with one small read.
pub const COMMIT_HEADER_BYTES: u64 = 4096;
/// One entry of a slice table.
pub const SLICE_ENTRY_BYTES: u64 = 64;
/// Slices are checksummed in blocks of this: large enough to cost nothing, small enough to verify a range.
pub const CHECKSUM_BLOCK_BYTES: u64 = 1 << 20;
/// The longest commit, so that every offset is also an `off_t`.
pub const COMMIT_BYTES_MAX: u64 = i64::MAX as u64;

/// Versions in a segment: at least enough that a boundary's syncs are shared, at most what one open may
/// replay.
pub const SEGMENT_SIZE_MIN: u32 = 16;
/// See [`SEGMENT_SIZE_MIN`].
pub const SEGMENT_SIZE_MAX: u32 = 4096;
/// See [`SEGMENT_SIZE_MIN`].
pub const SEGMENT_SIZE_DEFAULT: u32 = 256;
/// Parts in a step; far above the number of producers that can usefully share one step.
pub const PARTS_PER_STEP_MAX: u32 = 65_536;
/// The divisor of the number of slices; far above any data-parallel size.
pub const DIVISOR_MAX: u32 = 1 << 20;

/// A producer's state with one part. It is copied into every index, so it is a cursor, not a buffer.
pub const STATE_BYTES_MAX: usize = 1 << 20;
/// All producers' states: what an index carries at most.
pub const STATES_BYTES_MAX: u64 = 64 << 20;
/// Metadata of a part or a checkpoint.
pub const METADATA_BYTES_MAX: usize = 64 << 10;
/// Producers that a store ever saw; they stay, so that a requeued one sees that it is done.
pub const PRODUCERS_MAX: usize = 65_536;
/// Groups that a store ever saw; their names stay, so that an older incarnation stays fenced.
pub const GROUPS_MAX: usize = 4096;
/// Checkpoints that a group retains at once: far above what anybody keeps models of.
pub const CHECKPOINTS_MAX: usize = 4096;
/// The record of one commit: room for 65,536 part descriptors or a Rewind over 65,536 names.
pub const RECORD_BYTES_MAX: u64 = 64 << 20;
/// Parts in one commit; grouping stays far below.
pub const PARTS_PER_COMMIT_MAX: usize = 65_536;
/// Slices in one part: 2^32 table entries are 256 GiB of table, more than any step needs.
pub const SLICES_PER_PART_MAX: u64 = 1 << 32;
/// An index, all sections: states, 4096 versions of parts, pieces.
pub const INDEX_BYTES_MAX: u64 = 1 << 32;
/// What people's fields (host, job, library) may take each; longer ones are cut.
pub const PEOPLE_TEXT_BYTES_MAX: usize = 64;
/// A skip's reason.
pub const REASON_BYTES_MAX: usize = 4096;
/// A decompressed slice or attachment, declared: beyond it a reader would rather refuse than allocate.
pub const DECOMPRESSED_BYTES_MAX: u64 = 1 << 40;

/// Marks that are kept: a writer that slept through fewer boundaries still sees the log by name (R6).
pub const MARKS_KEPT: u64 = 64;
/// Attempts to win a version before `Contended`: with fair odds among 64 racing writers never reached.
pub const COMMIT_ATTEMPTS_MAX: u32 = 10_000;
/// Attempts of one link that neither won nor lost (R2), before its outcome is unknown.
pub const PUT_ATTEMPTS_MAX: u32 = 4;
/// Looks at something that contradicts itself for a moment: a directory that vanished, a listing that lags.
pub const LOOK_AGAIN_MAX: u32 = 8;
/// Loads of a log that has moved on by two segments before one was done: each has the same fair chance, and
/// small segments on a busy machine pass in less time than a process is kept from its core.
pub const LOADS_MAX: u32 = 1000;
/// Pause between two such looks, doubled each time.
pub const LOOK_AGAIN_PAUSE: Duration = Duration::from_millis(5);
/// How long reading outlasts errors of a remote mount that may pass, unless told: a server that fails over,
/// or a client that was evicted and connects again, is back within one to two minutes.
pub const IO_PATIENCE_REMOTE: Duration = Duration::from_secs(120);
/// The longest pause between two attempts while a mount is away: short against an outage, and long enough
/// that a thousand ranks don't keep a server that comes back from coming back.
pub const IO_RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);
/// A mount that is away is spoken of at once, after this long, and whenever that time has doubled.
pub const IO_PATIENCE_WORD: Duration = Duration::from_secs(10);
/// A mark check is made at least this often while polling (R7).
pub const POLLS_PER_MARK_CHECK: u32 = 8;

/// Writes are cut to this, and read or written on: what the kernel takes in one call.
pub const IO_CHUNK_BYTES: usize = 0x7fff_f000;
/// A draft's write buffer: small parts are written with one call, large slices pass it by.
pub const DRAFT_BUFFER_BYTES: usize = 256 << 10;
/// A piece of a large slice that is hashed and then written while it is still in the cache.
pub const DRAFT_PIECE_BYTES: usize = 256 << 10;

/// A piece of what is copied from file to file through memory, where the filesystem can't do it by itself.
pub const FILE_COPY_PIECE_BYTES: usize = 1 << 20;

/// Published parts that wait to be committed, unless told: enough for the pace of some hundred producers, and
/// each holds a descriptor and a write buffer.
pub const QUEUE_PARTS_DEFAULT: usize = 16;
/// How long a producer that is dropped goes on committing what waits: who ends by an error shall end.
pub const DROP_FLUSH_MAX: Duration = Duration::from_secs(60);
/// A part of more bytes gets a commit of its own: to copy it costs more than an attempt.
pub const GROUP_PART_BYTES_MAX: u64 = 4 << 20;
/// Bytes of the parts that are put into one commit.
pub const GROUP_BYTES_MAX: u64 = 64 << 20;
/// Parts that are put into one commit.
pub const GROUP_PARTS_MAX: usize = 1024;

/// Prefetch window in steps.
pub const WINDOW_STEPS_DEFAULT: usize = 8;
/// Prefetch window in bytes; never taken from the node's memory.
pub const WINDOW_BYTES_DEFAULT: u64 = 256 << 20;
/// Indexes that a handle keeps open for readers behind the head.
pub const INDEX_CACHE: usize = 4;

/// A group's progress is told at most this often: it is for people and for producers that wait.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// All producers of a store together ask its groups once in this time whether they are hungry, so that the
/// calls don't grow with their number.
pub const HUNGER_LOOK: Duration = Duration::from_millis(100);
/// Room that only parts may not use, at least: what a stuck job is helped with are control records.
pub const MARGIN_BYTES_MIN: u64 = 256 << 20;
/// ... or this part of the disk, if that is more.
pub const MARGIN_OF_DISK: u64 = 100;
/// On a small disk it is at most this part of it, or nothing could be published there.
pub const MARGIN_OF_SMALL_DISK: u64 = 8;
/// Inodes that parts may not use; on a small disk likewise.
pub const MARGIN_INODES: u64 = 4096;
/// Small parts look for that room only each so many: it costs a call.
pub const PARTS_PER_ROOM_CHECK: u32 = 16;
/// What a part may have to be small.
pub const SMALL_PART_BYTES: u64 = 1 << 20;
/// Given up when a control record meets a full disk.
pub const BALLAST_BYTES: usize = 1 << 20;

/// Local waiting: at first and at most this long on the doorbell before the log is probed.
pub const DOORBELL_WAIT_MIN: Duration = Duration::from_millis(50);
/// See [`DOORBELL_WAIT_MIN`].
pub const DOORBELL_WAIT_MAX: Duration = Duration::from_secs(1);
/// Remote waiting: bounds of the interval between two probes.
pub const PROBE_INTERVAL_MIN: Duration = Duration::from_millis(50);
/// See [`PROBE_INTERVAL_MIN`].
pub const PROBE_INTERVAL_MAX: Duration = Duration::from_secs(2);
/// How long `next_batch` waits unless told.
pub const NEXT_BATCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Free buffers that a handle keeps in copy mode.
pub const POOL_BYTES_MAX: usize = 512 << 20;
/// What copy mode reads at once on a local mount and then hashes: it stays in a core's second cache.
pub const COPY_PIECE_BYTES: usize = 256 << 10;
/// Slices that follow each other are read in runs of up to this, in copy mode into one buffer: small enough
/// that two threads get equal shares of a step, large enough that sharing it out costs nothing.
pub const RUN_BYTES: u64 = 1 << 20;
/// What is read without asking first whether the file reaches that far: memory isn't taken for more on the
/// word of a table alone.
pub const READ_UNASKED_BYTES: u64 = 16 << 20;
/// Faults that a verification lists: enough to see what happened to a store, and a bound on what the list
/// takes.
pub const FINDINGS_MAX: usize = 10_000;
/// Of these, broken slices of one part: a file that was overwritten shouldn't hide what else is wrong.
pub const FINDINGS_PER_PART_MAX: u32 = 16;
/// Commits that a handle keeps open or mapped, for colocated consumers at about the same step.
pub const COMMIT_CACHE: usize = 4;
/// A commit up to this is faulted in whole when it is mapped: one call instead of one for each of its pieces.
pub const WHOLE_COMMIT_BYTES: u64 = 256 << 10;
/// A commit up to this is read whole with its header by whoever has waited for it, also where commits are
/// mapped: to map, fault in and unmap so little costs more than to copy it. A small buffer of the pool.
pub const READ_WHOLE_BYTES: usize = 12 << 10;
/// Commits of one step that are kept open while it is read; beyond, one is opened twice. Far below `ulimit
/// -n`.
pub const STEP_COMMITS_OPEN_MAX: usize = 64;
/// After a consumer leaves `next_batch`, the prefetcher waits this long for it to come back before it waits
/// for the log itself: a consumer that waits gets a commit at first hand.
pub const PREFETCH_LINGER: Duration = Duration::from_millis(2);
/// While the consumer waits for the log itself, the prefetcher looks this often whether it has left: a
/// wake-up would cost each step that was waited for its own delay, and reading ahead begins this much later
/// at most.
pub const HUNGRY_LOOK: Duration = Duration::from_millis(50);
/// History is looked at again before a hand-out when the last look is older than this.
pub const HISTORY_AGE_MAX: Duration = Duration::from_secs(1);
