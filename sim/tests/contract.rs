//! The contract suite against this crate's own storages: the property tests of the trait, each by its own
//! function.

use std::sync::Arc;

use batchweave_sim::{Fault, Memory, Plan, SkipZeros, contract};

#[test]
fn memory_keeps_the_contract() {
    contract::check(&Memory::new(), "/store".as_ref());
}

#[test]
fn an_idle_fault_keeps_the_contract() {
    contract::check(&Fault::new(Arc::new(Memory::new()), Plan::new()), "/store".as_ref());
}

#[test]
fn skipping_zeros_keeps_the_contract() {
    contract::check(&SkipZeros::new(Arc::new(Memory::new())), "/store".as_ref());
}
