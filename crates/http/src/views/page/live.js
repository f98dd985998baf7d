// Keeps the page up to date while it is visible. Nothing is requested while it is hidden.
"use strict";

const EVERY_MS = 2000;
const KEPT_SECONDS = 300;
/** Rates and quantiles are of this time. */
const WINDOW_SECONDS = 30;

/** Of the metrics page. The names of other exporters are not needed. */
const GROUPS = ["triton", "engine", "gpu", "exporter"].map((group) => `collect[]=${group}`).join("&");

const NVML_STATES = {
  off: "GPU metrics are switched off (--gpu off).",
  starting: "NVML is being initialized.",
  up: "NVML works, but no GPU is visible to the exporter.",
  library_not_found: "NVIDIA's library libnvidia-ml.so.1 was not found. On a GPU node, make it visible to the exporter.",
  driver_not_loaded: "The NVIDIA driver is not loaded.",
  version_mismatch: "The NVIDIA library and driver have different versions. Restart the node or the container.",
  no_permission: "The exporter may not open the GPU devices.",
  failed: "NVML failed; the log has the reason.",
  released: "NVML is closed on request.",
};

const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const compact = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });
const count = (value) => (value < 10000 ? plain.format(value) : compact.format(value));
const perSecond = (value) => `${count(value)}/s`;
const percent = (value) => `${plain.format(value * 100)} %`;
const seconds = (value) => (value < 0.001 ? `${plain.format(value * 1e6)} µs` : value < 1 ? `${plain.format(value * 1e3)} ms` : `${plain.format(value)} s`);
const GIB = 2 ** 30;
const shown = (value, format) => (value === undefined || !Number.isFinite(value) ? undefined : format(value));

/** One reading of an engine: the numbers of the metrics page, and what changed in the last WINDOW_SECONDS. */
function readEngine(scope, time, earlier) {
  const value = (name, labels) => scope.value(`nv_trt_llm_${name}`, labels);
  const request = (type) => value("request_metrics", { request_type: type });
  const reading = { time, totals: {}, buckets: {} };
  for (const name of ["iterations", "generation_tokens", "context_tokens", "kv_cache_blocks_reused", "kv_cache_blocks_missed"]) {
    reading.totals[name] = value(`${name}_total`);
  }
  for (const name of ["iteration_latency", "time_to_first_token", "time_per_output_token"]) {
    reading.buckets[name] = scope.buckets(`nv_trt_llm_${name}_seconds`);
  }
  Object.assign(reading, {
    active: request("active"),
    max: request("max"),
    scheduled: request("scheduled"),
    waiting: request("waiting"),
    queued: value("queued_requests"),
    paused: value("inflight_batcher_metrics", { inflight_batcher_specific_metric: "paused_requests" }),
    kvUse: value("kv_cache_block_metrics", { kv_cache_block_type: "fraction" }),
    lost: value("iterations_lost_total"),
    restarts: value("engine_restarts_total"),
    completed: value("requests_completed_total"),
    acceptance: value("spec_decode_acceptance_ratio"),
    ranks: value("attention_dp_ranks"),
  });
  const before = earlier.find((old) => time - old.time <= WINDOW_SECONDS);
  if (!before) return reading;
  const rate = (name) => {
    const change = increase(before.totals[name], reading.totals[name]);
    return change === undefined ? undefined : change / (time - before.time);
  };
  const during = (q, name) => quantile(q, before.buckets[name], reading.buckets[name]);
  const reused = increase(before.totals.kv_cache_blocks_reused, reading.totals.kv_cache_blocks_reused);
  const missed = increase(before.totals.kv_cache_blocks_missed, reading.totals.kv_cache_blocks_missed);
  Object.assign(reading, {
    iterations: rate("iterations"),
    generated: rate("generation_tokens"),
    context: rate("context_tokens"),
    hits: reused + missed > 0 ? reused / (reused + missed) : undefined,
    latency50: during(0.5, "iteration_latency"),
    latency99: during(0.99, "iteration_latency"),
    first50: during(0.5, "time_to_first_token"),
    first95: during(0.95, "time_to_first_token"),
    output50: during(0.5, "time_per_output_token"),
    output95: during(0.95, "time_per_output_token"),
  });
  return reading;
}

const NUMBERS = [
  ["Active requests", (r) => shown(r.active, count) && (r.max === undefined ? count(r.active) : `${count(r.active)} of ${count(r.max)}`)],
  ["Waiting", (r) => shown(r.waiting, count)],
  ["Queued", (r) => shown(r.queued, count)],
  ["KV cache", (r) => shown(r.kvUse, percent)],
  ["Generated tokens", (r) => shown(r.generated, perSecond)],
  ["Iterations", (r) => shown(r.iterations, perSecond)],
  ["Accepted drafts", (r) => shown(r.acceptance, percent)],
  ["Ranks", (r) => shown(r.ranks, count)],
  ["Completed requests", (r) => shown(r.completed, count)],
  ["Lost iterations", (r) => shown(r.lost, count)],
  ["Restarts", (r) => shown(r.restarts, count)],
];

function engineCharts() {
  const line = (label, key) => ({ label, value: (reading) => reading[key] });
  return [
    new Chart("Requests", [line("active", "active"), line("waiting", "waiting"), line("paused", "paused")], count),
    new Chart("Tokens", [line("generated", "generated"), line("context", "context")], perSecond),
    new Chart("KV cache", [line("used", "kvUse"), line("reused", "hits")], percent, 1),
    new Chart("Iteration latency", [line("p50", "latency50"), line("p99", "latency99")], seconds),
    new Chart("Time to first token", [line("p50", "first50"), line("p95", "first95")], seconds),
    new Chart("Time per output token", [line("p50", "output50"), line("p95", "output95")], seconds),
  ];
}

/** A list of numbers; those that are unknown are left out. */
class Numbers {
  constructor(numbers) {
    this.rows = numbers.map(([name, text]) => {
      const value = element("dd");
      return { text, value, row: element("div", {}, element("dt", {}, name), value) };
    });
    this.node = element("dl", {}, ...this.rows.map(({ row }) => row));
  }

  show(reading) {
    for (const { text, value, row } of this.rows) {
      const shownText = text(reading);
      row.hidden = shownText === undefined;
      setText(value, shownText ?? "");
    }
  }
}

const RANK_COLUMNS = [
  ["rank", (row) => String(rankOf(row))],
  ["active", (row) => shown(own(row, row.numActiveRequests), count)],
  ["scheduled", ({ inflightBatchingStats: batch }) => shown(batch?.numScheduledRequests, count)],
  ["context tokens", ({ inflightBatchingStats: batch }) => shown(batch?.numCtxTokens, count)],
  ["generating", ({ inflightBatchingStats: batch }) => shown(batch?.numGenRequests, count)],
  ["KV cache", (row) => (row.kvCacheStats?.maxNumBlocks > 0 ? shown(own(row, row.kvCacheStats.usedNumBlocks / row.kvCacheStats.maxNumBlocks), percent) : undefined)],
];
/** With `rank`, `attentionDpRank` can be that of the rank which sends the rows. */
const rankOf = (row) => row.rank ?? row.attentionDpRank;
/** Rows without `rank` have their own batch, and copy the rest from rank 0. */
const own = (row, value) => (row.rank !== undefined || !(row.attentionDpRank > 0) ? value : undefined);

/** The last row of each rank, as the engine sent it. */
class Ranks {
  constructor() {
    this.rows = element("tbody");
    const head = element("tr", {}, ...RANK_COLUMNS.map(([name]) => element("th", { scope: "col" }, name)));
    this.node = element("table", {}, element("caption", {}, "Last iteration of each rank"), element("thead", {}, head), this.rows);
  }

  show(records) {
    const last = new Map(records.filter((row) => rankOf(row) !== undefined).map((row) => [rankOf(row), row]));
    this.node.hidden = last.size < 2;
    const rows = [...last.keys()].sort((one, other) => one - other).map((rank) => last.get(rank));
    const cells = (row) => RANK_COLUMNS.map(([, text], column) => element(column ? "td" : "th", column ? {} : { scope: "row" }, text(row) ?? "–"));
    this.rows.replaceChildren(...rows.map((row) => element("tr", {}, ...cells(row))));
  }
}

class EngineCard {
  constructor(engine) {
    this.labels = { model: engine.model, version: engine.version, ...engine.labels };
    this.readings = [];
    this.state = element("span", { class: "state" });
    this.simulated = element("span", { class: "simulated" }, "simulated");
    this.why = element("p", { class: "why" });
    this.about = element("p", { class: "about" });
    this.numbers = new Numbers(NUMBERS);
    this.charts = engineCharts();
    const labels = Object.entries(engine.labels).map(([name, value]) => ` ${name}=${value}`).join("");
    const title = element("h3", {}, engine.model, " ", element("small", {}, `version ${engine.version}${labels}`));
    this.graphs = element("div", { class: "charts" }, ...this.charts.map(({ node }) => node));
    const head = element("header", {}, title, this.state, this.simulated);
    this.ranks = new Ranks();
    this.node = element("article", {}, head, this.why, this.about, this.numbers.node, this.ranks.node, this.graphs);
  }

  show(engine, series, records, time) {
    setText(this.state, engine.state);
    this.state.className = `state ${engine.state}`;
    this.simulated.hidden = !engine.simulated;
    const { unansweredSinceTimestampSeconds: since } = engine.lastPoll;
    setText(this.why, since === undefined ? engine.why : `${engine.why} (no answer for ${seconds(Math.max(0, Math.round(time - since)))})`);
    const last = engine.lastRecordTimestampSeconds;
    const parts = [engine.source, engine.backend, engine.engineVersion && `TensorRT-LLM ${engine.engineVersion}`];
    parts.push(last === undefined ? "no record yet" : `last record ${seconds(Math.max(0, time - last))} ago`);
    setText(this.about, parts.filter(Boolean).join(" · "));
    const reading = readEngine(new Scope(series, this.labels), time, this.readings);
    this.readings = [...this.readings.filter((old) => time - old.time < KEPT_SECONDS && old.time < time), reading];
    // Without a record, all totals are 0.
    this.numbers.node.hidden = this.graphs.hidden = last === undefined;
    this.ranks.show(records);
    if (last === undefined) return;
    this.numbers.show(reading);
    const span = Math.min(KEPT_SECONDS, Math.max(30, time - this.readings[0].time));
    for (const chart of this.charts) chart.draw(this.readings, span);
  }
}

const GPU_NUMBERS = [
  ["Utilization", (gpu) => shown(gpu.value("nv_gpu_utilization"), percent)],
  ["Memory", (gpu) => shown(gpu.value("nv_gpu_memory_used_bytes"), (used) => `${plain.format(used / GIB)} of ${plain.format(gpu.value("nv_gpu_memory_total_bytes") / GIB)} GiB`)],
  ["Power", (gpu) => shown(gpu.value("nv_gpu_power_usage"), (watts) => `${plain.format(watts)} of ${plain.format(gpu.value("nv_gpu_power_limit"))} W`)],
  ["Temperature", (gpu) => shown(gpu.value("nv_gpu_temperature_celsius", { sensor: "gpu" }), (celsius) => `${plain.format(celsius)} °C`)],
  ["SM active", (gpu) => shown(gpu.value("nv_gpu_sm_active_ratio"), percent)],
  ["Clocks limited by", (gpu) => gpu.all("nv_gpu_clocks_event_active").filter(({ value }) => value === 1).map(({ labels }) => labels.reason.replaceAll("_", " ")).join(", ") || "nothing"],
  ["Last Xid", (gpu) => shown(gpu.value("nv_gpu_last_xid"), count)],
];

class GpuCard {
  constructor(uuid) {
    this.uuid = uuid;
    this.title = element("h3");
    this.state = element("span", { class: "state" });
    this.numbers = new Numbers(GPU_NUMBERS);
    this.node = element("article", {}, element("header", {}, this.title, this.state), this.numbers.node);
  }

  show(info, series) {
    const gpu = new Scope(series, { gpu_uuid: this.uuid });
    const state = gpu.all("nv_gpu_state").find(({ value }) => value === 1)?.labels.state ?? "";
    setText(this.title, `GPU ${info.index ?? ""} ${info.name ?? this.uuid}`);
    setText(this.state, state.replaceAll("_", " "));
    this.state.className = `state ${state}`;
    this.numbers.show(gpu);
  }
}

const FACTS = { count, seconds, share: percent, text: (text) => text };

/** What `trtllm-exporter doctor` would say about the last half minute. */
class FindingCard {
  constructor(finding) {
    const severity = element("span", { class: `state ${finding.severity}` }, finding.severity);
    this.facts = element("p");
    const head = element("header", {}, severity, element("h3", {}, finding.says));
    const subject = element("p", { class: "about" }, `${finding.kind} ${finding.subject} · ${finding.rule}`);
    this.node = element("article", {}, head, subject, this.facts, element("p", {}, `Change: ${finding.change}`));
  }

  show(finding) {
    // The sentence ends with the error.
    const facts = finding.facts.filter(({ name }) => name !== "error");
    setText(this.facts, facts.map(({ name, value, unit }) => `${name}: ${FACTS[unit](value)}`).join(" · "));
  }
}

/** Keeps one card per key, in the order of the keys. */
class Cards {
  constructor(parent) {
    this.parent = parent;
    this.cards = new Map();
  }

  show(keys, create, update) {
    for (const [key, card] of this.cards) {
      if (!keys.includes(key)) {
        card.node.remove();
        this.cards.delete(key);
      }
    }
    keys.forEach((key, index) => {
      if (!this.cards.has(key)) this.cards.set(key, create(index));
      const card = this.cards.get(key);
      if (this.parent.children[index] !== card.node) this.parent.insertBefore(card.node, this.parent.children[index] ?? null);
      update(card, index);
    });
  }
}

const byId = (id) => document.getElementById(id);
const findingCards = new Cards(byId("findings"));
const engineCards = new Cards(byId("engines"));
const gpuCards = new Cards(byId("gpus"));

function showFindings({ windowSeconds, findings }) {
  const key = ({ rule, kind, subject }) => JSON.stringify([rule, kind, subject]);
  findingCards.show(findings.map(key), (index) => new FindingCard(findings[index]), (card, index) => card.show(findings[index]));
  byId("no-findings").hidden = findings.length > 0;
  setText(byId("no-findings"), windowSeconds > 0 ? `Nothing found in the last ${seconds(windowSeconds)}.` : "Watching.");
}

function show(series, engines, records, found, time) {
  const key = ({ model, version, labels, orchestrator }) => JSON.stringify([model, version, labels, orchestrator !== undefined]);
  const card = (engine) => (engine.orchestrator === undefined ? new EngineCard(engine) : new OrchestratorCard(engine));
  engineCards.show(engines.map(key), (index) => card(engines[index]), (card, index) => card.show(engines[index], series, records[index], time));
  byId("no-engines").hidden = engines.length > 0;
  const gpus = (series.get("nv_gpu_info") ?? []).map(({ labels }) => labels);
  gpuCards.show(gpus.map((gpu) => gpu.gpu_uuid), (index) => new GpuCard(gpus[index].gpu_uuid), (card, index) => card.show(gpus[index], series));
  const nvml = (series.get("trtllm_exporter_nvml_state") ?? []).find(({ value }) => value === 1)?.labels.state;
  byId("no-gpus").hidden = gpus.length > 0;
  setText(byId("no-gpus"), NVML_STATES[nvml] ?? "");
  byId("found-section").hidden = found.length === 0;
  byId("found").replaceChildren(...found.map(({ address, finding }) => element("li", {}, element("code", {}, address), ` ${finding}`)));
  const refused = (series.get("trtllm_exporter_publishers_refused_total") ?? []).filter(({ value }) => value > 0);
  byId("refused").hidden = refused.length === 0;
  setText(byId("refused"), `Refused publishers: ${refused.map(({ labels, value }) => `${labels.reason} ${count(value)}`).join(", ")}`);
}

async function get(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(10000) });
  if (!response.ok) throw new Error(`${path} answers ${response.status}`);
  return response;
}

async function update() {
  const [text, engines, found, findings] = await Promise.all([
    get(`${document.body.dataset.metrics}?${GROUPS}`).then((response) => response.text()),
    get("api/v1/engines").then((response) => response.json()),
    get("api/v1/discovery").then((response) => response.json()),
    get("api/v1/findings").then((response) => response.json()),
  ]);
  showFindings(findings);
  const series = parseMetrics(text);
  const records = await Promise.all(engines.map((engine) => recordsOfRanks(engine, series)));
  show(series, engines, records, found, Date.now() / 1000);
}

/** The last records of an engine with ranks, none of other engines. */
async function recordsOfRanks({ model, version, labels }, series) {
  const ranks = new Scope(series, { model, version, ...labels }).value("nv_trt_llm_attention_dp_ranks");
  if (!(ranks > 1)) return [];
  const query = new URLSearchParams({ engine: `${model}:${version}`, last: 128 });
  // Two engines that differ in their labels only have no records here.
  return get(`api/v1/iterations?${query}`).then((response) => response.json(), () => []);
}

let failedSince;
async function run() {
  if (document.visibilityState === "visible") {
    const time = new Date().toLocaleTimeString();
    try {
      await update();
      failedSince = undefined;
      setText(byId("connection"), "");
      setText(byId("updated"), `updated ${time}`);
    } catch (error) {
      failedSince ??= time;
      setText(byId("connection"), `No answer from the exporter since ${failedSince}; retrying. ${error.message}`);
    }
    document.body.classList.toggle("disconnected", failedSince !== undefined);
  }
  setTimeout(run, EVERY_MS);
}
run();
