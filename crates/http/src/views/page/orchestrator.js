// The card of an orchestrator of disaggregated serving: its requests, and its requests to the workers of each side.
"use strict";

const SIDES = ["context", "generation", "encoder"];

/** One reading: the numbers of the metrics page, and what changed in the last WINDOW_SECONDS. */
function readOrchestrator(scope, time, earlier) {
  const value = (name, labels) => scope.value(`nv_trt_llm_disagg_${name}`, labels);
  const sum = (name, labels) => {
    const values = scope.all(`nv_trt_llm_disagg_${name}`, labels).map(({ value }) => value);
    return values.length ? values.reduce((one, other) => one + other) : undefined;
  };
  const reading = { time, totals: { requests: sum("requests_total"), errors: sum("request_errors_total") }, buckets: { queue: scope.buckets("nv_trt_llm_disagg_queue_time_seconds") } };
  for (const side of SIDES) {
    for (const name of ["requests", "retries", "errors"]) reading.totals[`${side}_${name}`] = value(`worker_${name}_total`, { side });
    for (const name of ["request_time", "time_to_first_byte"]) {
      reading.buckets[`${side}_${name}`] = scope.buckets(`nv_trt_llm_disagg_worker_${name}_seconds`, { side });
    }
    reading[`${side}_workers`] = value("ready_workers", { side });
    reading[`${side}_minimal`] = value("minimal_workers", { side });
  }
  reading.ready = value("ready");
  const before = earlier.find((old) => time - old.time <= WINDOW_SECONDS);
  if (!before) return reading;
  const grew = (name) => increase(before.totals[name], reading.totals[name]);
  const rate = (name) => grew(name) / (time - before.time);
  const share = (part, whole) => (grew(whole) > 0 ? grew(part) / grew(whole) : undefined);
  reading.requests = rate("requests");
  // A request that was not accepted is an error, and not among the requests.
  reading.errors = grew("errors") > 0 ? Math.min(1, grew("errors") / Math.max(grew("requests"), grew("errors"))) : grew("requests") > 0 ? 0 : undefined;
  for (const q of [0.5, 0.95]) reading[`queue${q * 100}`] = quantile(q, before.buckets.queue, reading.buckets.queue);
  for (const side of SIDES) {
    reading[`${side}_rate`] = rate(`${side}_requests`);
    reading[`${side}_errors`] = share(`${side}_errors`, `${side}_requests`);
    reading[`${side}_retries`] = rate(`${side}_retries`);
    for (const name of ["request_time", "time_to_first_byte"]) {
      for (const q of [0.5, 0.95]) reading[`${side}_${name}${q * 100}`] = quantile(q, before.buckets[`${side}_${name}`], reading.buckets[`${side}_${name}`]);
    }
  }
  return reading;
}

const ORCHESTRATOR_NUMBERS = [
  ["Ready", (r) => shown(r.ready, (ready) => (ready === 1 ? "yes" : "no"))],
  ["Requests", (r) => shown(r.requests, perSecond)],
  ["Errors", (r) => shown(r.errors, percent)],
  ["Routing p95", (r) => shown(r.queue95, seconds)],
];

/** A side has a column: on a telephone, a column for each number would be too much. */
const SIDE_ROWS = [
  ["workers", (r, side) => shown(r[`${side}_workers`], (ready) => (ready < r[`${side}_minimal`] ? `${count(ready)} of ${count(r[`${side}_minimal`])}` : count(ready)))],
  ["requests", (r, side) => shown(r[`${side}_rate`], perSecond)],
  ["errors", (r, side) => shown(r[`${side}_errors`], percent)],
  ["retries", (r, side) => shown(r[`${side}_retries`], perSecond)],
  ["request p50", (r, side) => shown(r[`${side}_request_time50`], seconds)],
  ["request p95", (r, side) => shown(r[`${side}_request_time95`], seconds)],
  ["first byte p95", (r, side) => shown(r[`${side}_time_to_first_byte95`], seconds)],
];

class OrchestratorCard {
  constructor(engine) {
    this.labels = { model: engine.model, version: engine.version, ...engine.labels };
    this.readings = [];
    this.state = element("span", { class: "state" });
    this.why = element("p", { class: "why" });
    this.about = element("p", { class: "about" });
    this.numbers = new Numbers(ORCHESTRATOR_NUMBERS);
    const line = (side, key) => ({ label: side, value: (reading) => reading[`${side}_${key}`] });
    this.charts = [
      new Chart("Requests to workers", [line("context", "rate"), line("generation", "rate")], perSecond),
      new Chart("Request time p95", [line("context", "request_time95"), line("generation", "request_time95")], seconds),
      new Chart("Errors of workers", [line("context", "errors"), line("generation", "errors")], percent, 1),
    ];
    const labels = Object.entries(engine.labels).map(([name, value]) => ` ${name}=${value}`).join("");
    const title = element("h3", {}, engine.model, " ", element("small", {}, `version ${engine.version}${labels}`));
    this.sides = element("tbody");
    this.head = element("thead");
    const table = element("table", {}, element("caption", {}, "Requests to the workers of each side"), this.head, this.sides);
    const graphs = element("div", { class: "charts" }, ...this.charts.map(({ node }) => node));
    this.node = element("article", {}, element("header", {}, title, this.state), this.why, this.about, this.numbers.node, table, graphs);
  }

  show(engine, series, records, time) {
    setText(this.state, engine.state);
    this.state.className = `state ${engine.state}`;
    const { unansweredSinceTimestampSeconds: since } = engine.lastPoll;
    setText(this.why, since === undefined ? engine.why : `${engine.why} (no answer for ${seconds(Math.max(0, Math.round(time - since)))})`);
    setText(this.about, ["orchestrator", engine.source, engine.engineVersion && `TensorRT-LLM ${engine.engineVersion}`].filter(Boolean).join(" · "));
    const reading = readOrchestrator(new Scope(series, this.labels), time, this.readings);
    this.readings = [...this.readings.filter((old) => time - old.time < KEPT_SECONDS && old.time < time), reading];
    this.numbers.show(reading);
    const known = SIDES.filter((side) => reading.totals[`${side}_requests`] !== undefined || reading[`${side}_workers`] !== undefined);
    this.head.replaceChildren(element("tr", {}, element("td"), ...known.map((side) => element("th", { scope: "col" }, side))));
    const cells = (text) => known.map((side) => element("td", {}, text(reading, side) ?? "–"));
    this.sides.replaceChildren(...SIDE_ROWS.map(([name, text]) => element("tr", {}, element("th", { scope: "row" }, name), ...cells(text))));
    const span = Math.min(KEPT_SECONDS, Math.max(30, time - this.readings[0].time));
    for (const chart of this.charts) chart.draw(this.readings, span);
  }
}
