//! `/`: a page for people that lists engines and GPUs and links to the other endpoints. It loads no outside resource.

use std::fmt::Write as _;

use crate::state::State;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
    table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #ddd}\
    td.n{text-align:right;font-variant-numeric:tabular-nums}.stalled,.unreachable{color:#b00}.simulated{color:#850}";

/// The page as HTML.
#[must_use]
pub fn page(state: &State, telemetry_path: &str) -> String {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>trtllm-exporter</title><style>{STYLE}</style></head>\
         <body><h1>trtllm-exporter {}</h1><p>Prometheus exporter for NVIDIA TensorRT-LLM engines and their GPUs.</p>\
         <p><a href=\"{path}\">Metrics</a> · <a href=\"{path}/gateway\">Gateway metrics</a> · \
         <a href=\"/api/v1/engines\">Engines as JSON</a> · <a href=\"/healthz\">Health</a> · <a href=\"/readyz\">Readiness</a></p>",
        env!("CARGO_PKG_VERSION"),
        path = escape(telemetry_path),
    );
    html.push_str(
        "<h2>Engines</h2><table><tr><th>Model<th>Version<th>Source<th>State<th>Iterations<th>Lost<th>Completed</tr>",
    );
    for (engine, snapshot) in state.engines() {
        let name = &engine.name;
        let simulated = if snapshot.about.simulated { " <span class=\"simulated\">simulated</span>" } else { "" };
        let _ = write!(
            html,
            "<tr><td>{}{simulated}<td>{}<td>{}<td class=\"{state}\">{state}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}</tr>",
            escape(&name.model),
            escape(&name.version),
            name.source,
            snapshot.totals.iterations,
            snapshot.totals.iterations_lost,
            snapshot.totals.requests_completed,
            state = snapshot.state.name(),
        );
    }
    let found = state.discovery.load();
    if !found.is_empty() {
        html.push_str("</table><h2>Found by auto</h2><table><tr><th>Address<th>What it is</tr>");
        for (address, what) in found.iter() {
            let _ = write!(html, "<tr><td>{}<td>{}</tr>", escape(address), escape(what));
        }
    }
    let gpus = state.gpus();
    html.push_str("</table><h2>GPUs</h2><table><tr><th>Index<th>Name<th>UUID<th>Utilisation<th>Memory used</tr>");
    for gpu in &gpus.gpus {
        let percent = gpu.readings.utilization_ratio.map(|ratio| format!("{:.0} %", ratio * 100.0));
        let memory =
            gpu.readings.memory.used_bytes.map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)));
        let _ = write!(
            html,
            "<tr><td>{}<td>{}<td>{}<td class=\"n\">{}<td class=\"n\">{}</tr>",
            gpu.identity.index,
            escape(gpu.identity.name.as_deref().unwrap_or("")),
            escape(&gpu.identity.uuid),
            percent.as_deref().unwrap_or("–"),
            memory.as_deref().unwrap_or("–"),
        );
    }
    html.push_str("</table></body></html>\n");
    html
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
