//! Another Rust archive for a host. run.sh builds it with rustc and links it in addition to libtrtllm_exporter.a.

/// Returns 6 × `factor` after it formatted text and recovered from a panic, which needs much of the standard library.
#[unsafe(no_mangle)]
pub extern "C" fn beside_answer(factor: i32) -> i32 {
    std::panic::set_hook(Box::new(|_| {}));
    let panicked = std::panic::catch_unwind(|| panic!("{factor}")).is_err();
    let text = std::thread::spawn(move || format!("{}", 6 * factor)).join().unwrap_or_default();
    if panicked { text.parse().unwrap_or(-1) } else { -2 }
}
