//! Predictions of changed engines against what the simulated engine does with the change. Seeds are those of no other test.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod cases;
mod observed;
mod table;
mod truth;

#[test]
fn predictions_hold_on_seeds_that_were_not_used_before() {
    let table = table::Table::play(&cases::all());
    println!("{table}");
    let wrong = table.wrong();
    assert!(wrong.is_empty(), "{table}\n{}", wrong.join("\n"));
}
