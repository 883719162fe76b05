//! See `batchweave_fuzz_targets::TARGETS`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| batchweave_fuzz_targets::run("part", data));
