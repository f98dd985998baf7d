//! The page of a recorded session from the real binary, compared byte for byte. `UPDATE_GOLDEN=1 cargo test --test it golden`
//! rewrites all golden files. Names and text of metrics are the public interface, so review the difference before you commit it.

use crate::support;
use crate::support::golden::same_as_golden;
use crate::support::sessions::session;

#[test]
fn the_pages_of_a_session_equal_the_golden_files() {
    let daemon = session(&["--model", "llama \"3\""]);
    let engine = "/metrics?collect[]=triton&collect[]=engine";
    same_as_golden("tests/golden/session.txt", &daemon.text(engine));
    same_as_golden("tests/golden/gateway.txt", &daemon.text("/metrics/gateway"));
    let accept = [("Accept", "application/openmetrics-text;version=1.0.0")];
    same_as_golden(
        "tests/golden/session.openmetrics.txt",
        support::http::request("GET", &daemon.address, engine, &accept, b"").unwrap().text(),
    );
}

#[test]
fn the_default_page_of_a_session_equals_the_golden_file() {
    let daemon = session(&["--model", "llama \"3\"", "--metrics.profile", "default"]);
    same_as_golden("tests/golden/default.txt", &daemon.text("/metrics?collect[]=triton&collect[]=engine"));
}

#[test]
fn the_families_of_a_real_triton_are_described_as_it_describes_them() {
    let page = session(&["--metrics.compat", "triton-core"]).text("/metrics");
    let excerpt = std::fs::read_to_string("tests/fixtures/triton_page_issue667_PARTIAL.txt").unwrap();
    let described: Vec<_> = excerpt.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(described.len(), 4);
    for line in described {
        assert!(page.lines().any(|ours| ours == line), "missing: {line}");
    }
}

#[test]
fn every_series_of_tritons_documentation_is_on_the_page() {
    // The example has the default model and version. Its v1 metrics need static batching, so the session lacks them.
    let page = session(&[]).text("/metrics?collect[]=triton");
    let example = std::fs::read_to_string("tests/fixtures/triton_metrics_readme_v0.19.0.txt").unwrap();
    for line in example.lines().filter(|line| line.contains("nv_trt_llm") && !line.contains("v1_metrics")) {
        let spelled =
            if line.starts_with('#') { line.to_owned() } else { format!("{} ", line.rsplit_once(' ').unwrap().0) };
        assert!(page.lines().any(|ours| ours.starts_with(&spelled)), "missing: {spelled}");
    }
}
