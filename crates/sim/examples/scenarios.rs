//! Prints the scenarios: `cargo run -p trtllm-sim --example scenarios`.
#![allow(clippy::print_stdout)]

use trtllm_sim::scenario::all;

fn main() {
    for scenario in all() {
        let cure = scenario.cure.map_or("", |cure| cure.says);
        println!("{}\t{}\t{}\t{}\t{cure}", scenario.name, scenario.backend, scenario.cause, scenario.description);
    }
}
