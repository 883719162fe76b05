//! Faults that the simulation found, by a seed that showed each.
//!
//! A seed is a set-up drawn by `Setup::draw`, and what its decisions make of it: when the drawing or the
//! engine's calls change, it may no longer show its fault. So each has a direct test too, which is named; it
//! stands in `tests/found/` of the library. One fault has that only, no seed of 20,000 showed it: that the
//! store's own directory was synced through a handle that was open when a sync of it failed. Three have a
//! seed only; what the lifecycle's first runs found has direct tests only (`reclaimed`), as its drawing
//! changed meanwhile.

use std::sync::Arc;

use batchweave_sim::Coverage;
use batchweave_sim::simulation::{Shape, simulate};

/// Seed, shape, what went wrong, and the direct test.
const FOUND: &[(u64, Option<Shape>, &str)] = &[
    // removed::whoever_looks_for_the_end_finds_it
    (45, Some(Shape::Sleepers), "ESTALE of a commit that was removed before it was read was an error"),
    // removed::whoever_looks_for_the_end_finds_it
    (97, Some(Shape::Sleepers), "so was that of a directory that was removed before it was listed"),
    // removed::whoever_opens_a_producer_gets_its_state
    (5372, Some(Shape::Sleepers), "a producer's state was looked for in a commit that was removed meanwhile"),
    // removed::whoever_crosses_a_boundary_has_published_once
    (1784, Some(Shape::Sleepers), "a complete segment's directory that was removed poisoned who synced it"),
    // removed::whoever_crosses_a_boundary_has_published_once
    (554, Some(Shape::Sleepers), "an index couldn't be built of commits that were removed"),
    // removed::whoever_publishes_has_published_once
    (1324, Some(Shape::Sleepers), "the directory of one's own commit, removed when it was synced, poisoned"),
    // removed::whoever_crosses_a_boundary_has_published_once
    (4107, Some(Shape::Sleepers), "a commit renamed to where nobody reads had lost its staged name"),
    // mounts::an_error_that_passes_chooses_no_primitive
    (815, Some(Shape::Traffic), "an error that passed was taken for a mount that can't link"),
    // mounts::a_probe_that_was_sent_twice_has_won
    (4698, Some(Shape::Traffic), "so was EEXIST of the probe's own link"),
    // mounts::what_was_open_when_a_sync_failed_is_not_synced_through
    (1218, Some(Shape::Traffic), "a directory that was open when a sync of it failed was synced through"),
    // mounts::a_link_refused_between_directories_is_unsupported_whatever_it_is_for
    (54, Some(Shape::Traffic), "EXDEV of an index was an error like any other"),
    // the same
    (21, Some(Shape::Traffic), "so was that of STORE"),
    // drafts: a_draft_whose_finished_file_vanished_is_given_back_to_be_written_anew
    (1_000_277_152, None, "a commit whose only file was removed with a segment was tried for ever"),
    // the simulation's own: no reclaim does so
    (77_002_756, None, "what passes segments removed a staged file that lay beside its place"),
    (91_002_824, None, "a flush after an error met the closed stream"),
    // reclaimed::a_control_file_that_is_removed_while_it_is_written_is_staged_anew
    (306_714, Some(Shape::Lifecycle), "an index whose staged file was taken for litter wasn't put on NFS"),
    // none yet
    (3_000_381_807, None, "what sleepers had linked into a segment made anew was an error of the log"),
    // none yet
    (3_000_509_902, None, "a producer got the sequence of its Open with the state of a later one's part"),
    // reclaimed::who_cannot_look_at_the_floor_calls_nothing_damaged
    (
        1_917_648_413,
        Some(Shape::Lifecycle),
        "a step that was freed was called missing when the look at the floor failed",
    ),
    // the same
    (2_315_807_179, Some(Shape::Lifecycle), "so it was on a local mount, where EINTR kept a reader from it"),
    // reclaimed::who_rewinds_to_what_another_has_dropped_is_told_so
    (1_917_652_399, Some(Shape::Lifecycle), "what a rewind read was removed: another rewind had dropped it"),
    // reclaimed::who_joins_by_a_snapshot_whose_index_is_removed_begins_from_a_newer_one
    (1_917_650_798, Some(Shape::Lifecycle), "the index before a snapshot's commits was removed while opened"),
    // races::who_was_set_back_to_finished_is_not_told_that_it_finished (in tests/lifecycle)
    (2_181_027_127, Some(Shape::Lifecycle), "who a rewind had set back was told that it had finished"),
    // reclaimed::who_writes_where_a_segment_is_begun_already_is_late_and_no_more
    (3_085_293_448, Some(Shape::Lifecycle), "a segment removed between look-up and opening was an error"),
    // the same
    (3_085_294_021, Some(Shape::Lifecycle), "so was the index before it, removed while it was read"),
    // reclaimed::who_begins_again_and_finishes_while_a_rewind_is_staged_is_set_back_to_unfinished
    (
        388_751_776,
        Some(Shape::Lifecycle),
        "a rewind to what was the head called a name finished that wasn't there",
    ),
    // reclaimed::a_removed_segment_that_a_sleeper_begins_again_while_it_is_verified_is_no_fault
    (412, Some(Shape::Lifecycle), "verify missed a removed segment that a sleeper had begun again"),
    // the same
    (118, Some(Shape::Lifecycle), "so it did beside a rewind"),
    // reclaimed::a_log_that_passes_by_twice_while_it_is_verified_is_no_fault
    (191, Some(Shape::Lifecycle), "verify judged what was removed by indexes younger than its state"),
    // reclaimed::what_is_removed_half_while_it_is_verified_is_no_fault
    (1711, Some(Shape::Lifecycle), "verify called a commit unreadable that was removed while it was read"),
    // reclaimed::a_segment_that_is_complete_and_removed_while_it_is_verified_is_no_fault
    (100_219, Some(Shape::Lifecycle), "so it did where the segment had got its index only since"),
    // reclaimed::an_index_that_is_put_again_while_it_is_verified_is_no_fault
    (304_810, Some(Shape::Lifecycle), "verify missed a removed segment whose index a sleeper had put again"),
    // reclaimed::what_is_removed_half_while_it_is_verified_is_no_fault
    (102_930, Some(Shape::Lifecycle), "so it did where the commit's size was asked for"),
    // mounts::what_is_begun_in_the_middle_of_a_listing_is_not_called_purged
    (12_069, Some(Shape::Lifecycle), "verify missed a segment that a listing over several servers lacked"),
    // the same
    (501_063, Some(Shape::Lifecycle), "so it did where three nodes wrote"),
    // closing::who_closes_or_reopens_while_steps_are_skipped_has_done_so (in tests/lifecycle)
    (187, Some(Shape::Lifecycle), "a close that a skip came before was refused as if history were another"),
    // the same
    (122, Some(Shape::Lifecycle), "so was a reopen"),
    // closing::a_part_that_met_the_closed_stream_goes_in_once_it_is_reopened (in tests/lifecycle)
    (11, Some(Shape::Lifecycle), "who had met the closed stream was told so after it was reopened"),
    // forgotten::a_rewind_gives_no_forgotten_producer_back (in tests/lifecycle)
    (134, Some(Shape::Lifecycle), "a rewind gave a name back to who had it before it was forgotten"),
    // forgotten::who_begins_a_forgotten_name_anew_while_a_rewind_is_staged_is_not_set_back_to_who_had_it
    (831, Some(Shape::Lifecycle), "so did one that was staged before the name was forgotten"),
    (
        5_017_852,
        None,
        "verify missed a removed segment whose index went between its two looks at the indexes",
    ),
    (5_011_617, None, "verify took a stale answer about a segment that is being removed for a fault"),
];

#[test]
fn what_was_found_stays_mended() {
    for (seed, shape, fault) in FOUND {
        let report = simulate(*seed, *shape, &Arc::new(Coverage::default()));
        assert!(report.trouble.is_none(), "again, perhaps: {fault}\n{report}");
    }
}
