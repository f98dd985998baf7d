//! Prints how long one hour of virtual time takes: `cargo run --release -p trtllm-sim --example hour`.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use trtllm_sim::{Config, Engine, write};

fn main() {
    for (rows, text) in [(false, false), (true, false), (true, true)] {
        let mut config = Config::default();
        config.statistics.rows = rows;
        let release = config.release;
        let mut engine = Engine::new(config, 1);
        let (mut records, mut bytes) = (0, 0);
        let start = Instant::now();
        engine.run(3600.0, |step| {
            records += step.records.len();
            if text {
                bytes += step.records.iter().map(|r| write::record(r, release, 0).to_string().len()).sum::<usize>();
            }
        });
        println!("rows {rows}, JSON {text}: {records} iterations in {:.2?}, {bytes} bytes", start.elapsed());
    }
}
