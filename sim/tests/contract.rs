//! The contract suite against this crate's own storages: the property tests of the trait, each by its own
//! function.

use std::sync::Arc;

use batchweave_sim::{Alone, Choices, Class, Fault, Memory, Mount, Plan, SkipZeros, contract};

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

#[test]
fn a_mount_of_each_class_keeps_the_contract() {
    let classes =
        [Class::Local, Class::Coherent { bricks: 1 }, Class::Coherent { bricks: 3 }, Class::CloseToOpen];
    for class in classes {
        let tame = Choices::replay(Vec::new());
        contract::check(&Mount::new(Memory::new(), class, tame, Arc::new(Alone)), "/store".as_ref());
    }
}
