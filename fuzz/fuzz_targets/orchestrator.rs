#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| trtllm_exporter_fuzz::orchestrator::run(data));
