// Keeps the page up to date while it is visible. Nothing is requested while it is hidden. All numbers and conclusions come from the
// exporter's API.
"use strict";

const EVERY_MS = 2000;
/** With at most this many engines, the details of all of them are open. */
const FEW_ENGINES = 4;

const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const compact = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });
const count = (value) => (value < 10000 ? plain.format(value) : compact.format(value));
// One decimal is enough for a mean number of requests.
const mean = (value) => count(Math.round(value * 10) / 10);
const perSecond = (value) => `${count(value)}/s`;
const percent = (value) => `${plain.format(value * 100)} %`;
const seconds = (value) => (value < 0.001 ? `${plain.format(value * 1e6)} µs` : value < 1 ? `${plain.format(value * 1e3)} ms` : `${plain.format(value)} s`);
const watts = (value) => `${plain.format(value)} W`;
const GIB = 2 ** 30;
const shown = (value, format) => (value === undefined ? undefined : format(value));
const UNITS = { count, seconds, share: percent, ratio: count, watts, bytes: (value) => `${plain.format(value / 1e9)} GB` };
const SEVERITIES = ["none", "info", "warning", "critical"];

const evidenceText = (evidence) => evidence.map(({ name, value, unit, threshold }) =>
  `${name}: ${UNITS[unit](value)}${threshold === undefined ? "" : ` (limit ${UNITS[unit](threshold)})`}`).join(" · ");
const clockTime = (time) => new Date(time * 1000).toLocaleTimeString();
const severityOf = ({ verdict }) => verdict?.severity ?? "none";
/** For an engine in trouble, the cause that limits it replaces its state. */
const badge = (engine) => (severityOf(engine) === "none" ? [engine.state, engine.state] : [engine.verdict.cause.replaceAll("_", " "), engine.verdict.severity]);
const reason = (engine) => (severityOf(engine) === "none" ? engine.why : engine.verdict.says);
const keyOf = ({ model, version, labels, orchestrator }) => JSON.stringify([model, version, labels, orchestrator !== undefined]);
const podOf = ({ namespace, pod } = {}) => pod && [namespace, pod].filter(Boolean).join("/");
const nameOf = ({ model, version, labels }) => [model, version, podOf(labels)].filter(Boolean).join(":");

/** Keeps one item per key, in the order of the keys. */
class Items {
  constructor(parent) {
    this.parent = parent;
    this.items = new Map();
  }

  show(things, key, create) {
    const keys = things.map(key);
    for (const [known, item] of this.items) {
      if (!keys.includes(known)) {
        item.node.remove();
        this.items.delete(known);
      }
    }
    keys.forEach((wanted, index) => {
      if (!this.items.has(wanted)) this.items.set(wanted, create(things[index]));
      const { node } = this.items.get(wanted);
      if (this.parent.children[index] !== node) this.parent.insertBefore(node, this.parent.children[index] ?? null);
      this.items.get(wanted).show(things[index]);
    });
  }
}

/** A row of a table. columns: [title, text(thing), class] */
class TableRow {
  constructor(columns, first) {
    this.columns = columns;
    this.cells = columns.map(([, , kind], column) => element(column ? "td" : "th", { ...(column ? {} : { scope: "row" }), class: kind ?? "" }));
    if (first) this.cells[0].append(first);
    this.first = first;
    this.node = element("tr", {}, ...this.cells);
  }

  show(thing) {
    this.columns.forEach(([, text], column) => {
      if (column > 0 || !this.first) setText(this.cells[column], text(thing) ?? "–");
    });
  }
}

function table(columns, caption, rows) {
  const head = element("tr", {}, ...columns.map(([title, , kind]) => element("th", { scope: "col", class: kind ?? "" }, title)));
  return element("table", {}, element("caption", {}, caption), element("thead", {}, head), rows);
}

/** A list of numbers. Unknown numbers are left out. */
class Numbers {
  constructor(numbers) {
    this.rows = numbers.map(([name, text]) => {
      const value = element("dd");
      return { text, value, row: element("div", {}, element("dt", {}, name), value) };
    });
    this.node = element("dl", {}, ...this.rows.map(({ row }) => row));
  }

  show(thing) {
    for (const { text, value, row } of this.rows) {
      const shownText = text(thing);
      row.hidden = shownText === undefined;
      setText(value, shownText ?? "");
    }
  }
}

const ENGINE_COLUMNS = [
  ["Engine", ({ model, version }) => `${model} ${version}`, "name"],
  ["State", (engine) => badge(engine)[0], "badge"],
  ["What limits it", reason, "words"],
  ["Waiting", ({ window }) => shown(window?.waiting, mean), "wide"],
  ["Tokens", ({ window, totals }) => (totals?.iterations > 0 ? shown(window?.generationTokensPerSecond, perSecond) : undefined), "wide"],
  ["First token p95", ({ window }) => shown(window?.ttftSeconds?.p95, seconds), "wide"],
  ["Objectives met", ({ window }) => shown(window?.objectivesMetRatio, percent), "wide"],
  ["KV cache", ({ load }) => shown(load?.kvCacheUsedRatio, percent), "wide"],
];

/** The row of an engine. Its button opens and closes the details. */
class EngineRow extends TableRow {
  constructor(engine) {
    const button = element("button", { type: "button" }, `${engine.model} ${engine.version}${labelsOf(engine)}`);
    super(ENGINE_COLUMNS, button);
    this.state = element("span", { class: "state" });
    button.addEventListener("click", () => {
      toggled.set(keyOf(engine), button.getAttribute("aria-expanded") !== "true");
      showDetails();
    });
  }

  show(engine) {
    super.show(engine);
    const [text, kind] = badge(engine);
    setText(this.state, text);
    this.state.className = `state ${kind}`;
    this.cells[1].replaceChildren(this.state);
    this.first.setAttribute("aria-expanded", String(isOpen(engine)));
  }
}

const labelsOf = ({ labels }) => Object.entries(labels).map(([name, value]) => ` ${name}=${value}`).join("");

const NUMBERS = [
  ["Active requests", ({ load }) => shown(load?.active, (active) => (load.maxActive === undefined ? count(active) : `${count(active)} of ${count(load.maxActive)}`))],
  ["Waiting", ({ load }) => shown(load?.waiting, count)],
  ["Queued", ({ load }) => shown(load?.waitingForSeat ?? load?.queued, count)],
  ["Paused", ({ load }) => shown(load?.paused || undefined, count)],
  ["KV cache", ({ load }) => shown(load?.kvCacheUsedRatio, percent)],
  ["Generated tokens", ({ window }) => shown(window?.generationTokensPerSecond, perSecond)],
  ["Iterations", ({ window }) => shown(window?.iterationsPerSecond, perSecond)],
  ["Objectives met", ({ window }) => shown(window?.objectivesMetRatio, percent)],
  ["Accepted drafts", ({ load }) => shown(load?.specDecodeAcceptanceRatio, percent)],
  ["Ranks", ({ load }) => shown(load?.ranks?.length, count)],
  ["Completed requests", ({ totals }) => shown(totals?.requestsCompleted, count)],
  ["Lost iterations", ({ totals }) => shown(totals?.iterationsLost, count)],
  ["Restarts", ({ totals }) => shown(totals?.engineRestarts, count)],
];

function engineCharts() {
  const line = (label, value) => ({ label, value });
  return [
    new Chart("Requests", [line("in the batch", (slot) => slot.scheduled), line("waiting", (slot) => slot.waiting)], count),
    new Chart("Tokens", [line("generated", (slot) => slot.generationTokensPerSecond), line("context", (slot) => slot.contextTokensPerSecond)], perSecond),
    new Chart("KV cache", [line("used", (slot) => slot.kvCacheUsedRatio), line("reused", (slot) => slot.kvCacheHitRatio)], percent, 1),
    new Chart("Iteration", [line("mean", (slot) => slot.iterationSeconds?.mean), line("p99", (slot) => slot.iterationSeconds?.p99)], seconds),
    new Chart("Time to first token", [line("p50", (slot) => slot.ttftSeconds?.p50), line("p95", (slot) => slot.ttftSeconds?.p95)], seconds),
    new Chart("Time per output token", [line("p50", (slot) => slot.tpotSeconds?.p50), line("p95", (slot) => slot.tpotSeconds?.p95)], seconds),
    new Chart("Time in the queue", [line("mean", (slot) => slot.queueSeconds?.mean), line("p95", (slot) => slot.queueSeconds?.p95)], seconds),
    new Chart("Objectives", [line("met", (slot) => slot.objectivesMetRatio)], percent, 1),
  ];
}

const RANK_COLUMNS = [
  ["rank", ({ rank }) => String(rank ?? "other")],
  ["active", ({ active }) => shown(active, count)],
  ["scheduled", ({ scheduled }) => shown(scheduled, count)],
  ["context tokens", ({ contextTokens }) => shown(contextTokens, count)],
  ["generating", ({ generationRequests }) => shown(generationRequests, count)],
  ["KV cache", ({ kvCacheUsedRatio }) => shown(kvCacheUsedRatio, percent)],
];

/** What every card of an engine or orchestrator has. */
class Card {
  constructor(engine) {
    this.state = element("span", { class: "state" });
    this.simulated = element("span", { class: "simulated" }, "simulated");
    this.why = element("p", { class: "why" });
    this.about = element("p", { class: "about" });
    const title = element("h3", {}, engine.model, " ", element("small", {}, `version ${engine.version}${labelsOf(engine)}`));
    const head = element("header", {}, title, this.state, this.simulated);
    this.verdict = element("div", { class: "verdict" });
    this.node = element("article", {}, head, this.why, this.verdict, this.about);
  }

  show(engine) {
    const [text, kind] = badge(engine);
    setText(this.state, text);
    this.state.className = `state ${kind}`;
    this.simulated.hidden = !engine.simulated;
    const time = Date.now() / 1000;
    const { unansweredSinceTimestampSeconds: since } = engine.lastPoll;
    setText(this.why, since === undefined ? reason(engine) : `${engine.why} (no answer for ${seconds(Math.max(0, Math.round(time - since)))})`);
    this.showVerdict(engine);
    const last = engine.lastRecordTimestampSeconds;
    const parts = [engine.source, engine.backend, engine.engineVersion && `TensorRT-LLM ${engine.engineVersion}`];
    if (engine.orchestrator === undefined) parts.push(last === undefined ? "no record yet" : `last record ${seconds(Math.max(0, time - last))} ago`);
    setText(this.about, parts.filter(Boolean).join(" · "));
  }

  showVerdict({ verdict }) {
    const lines = [];
    if (verdict !== undefined && verdict.severity !== "none") {
      lines.push(evidenceText(verdict.evidence));
      if (verdict.confidence === "low") lines.push("Not certain: another cause would look similar, or a number that would prove it is missing.");
      if (verdict.confidence === "low" && verdict.blind.length) lines.push(`Cannot be seen here: ${verdict.blind.map((spot) => spot.what).join(", ").replaceAll("_", " ")}`);
      if (verdict.cost) lines.push(`Users: ${verdict.cost}`);
      lines.push(`Change: ${verdict.remedy}`);
      if (verdict.tradeOff) lines.push(`Trade-off: ${verdict.tradeOff}`);
      if (verdict.helpedIf) lines.push(`Helped if: ${verdict.helpedIf}`);
      if (verdict.consequences.length) lines.push(`Follows from it: ${verdict.consequences.join(", ").replaceAll("_", " ")}`);
      lines.push(`Since ${clockTime(verdict.since)}`);
    }
    if (lines.join("\n") === this.lines) return;
    this.lines = lines.join("\n");
    this.verdict.replaceChildren(...lines.filter(Boolean).map((line) => element("p", {}, line)));
  }
}

class EngineCard extends Card {
  constructor(engine) {
    super(engine);
    this.numbers = new Numbers(NUMBERS);
    this.charts = engineCharts();
    this.graphs = element("div", { class: "charts" }, ...this.charts.map(({ node }) => node));
    const rows = element("tbody");
    this.ranks = new Items(rows);
    this.rankTable = table(RANK_COLUMNS, "Last iteration of each rank", rows);
    this.node.append(this.numbers.node, this.rankTable, this.graphs);
  }

  show(engine) {
    super.show(engine);
    // Without a record, all totals are 0, so they are hidden.
    this.numbers.node.hidden = this.graphs.hidden = engine.lastRecordTimestampSeconds === undefined;
    const ranks = engine.load?.ranks ?? [];
    this.rankTable.hidden = ranks.length === 0;
    this.ranks.show(ranks, ({ rank }) => rank, () => new TableRow(RANK_COLUMNS));
    this.numbers.show(engine);
    const slots = history.get(nameOf(engine)) ?? [];
    for (const chart of this.charts) chart.draw(slots);
  }
}

const ORCHESTRATOR_NUMBERS = [
  ["Ready", ({ orchestrator }) => shown(orchestrator.ready, (ready) => (ready ? "yes" : "no"))],
  ["Requests", ({ orchestrator }) => shown(orchestrator.window?.requestsPerSecond, perSecond)],
  ["Errors", ({ orchestrator }) => shown(orchestrator.window?.errorRatio, percent)],
];

/** The table has a column for each side: on a telephone, a column for each number would be too wide. */
const SIDE_ROWS = [
  ["workers", ({ readyWorkers: ready, minimalWorkers: needed }) => shown(ready, () => (ready < needed ? `${count(ready)} of ${count(needed)}` : count(ready)))],
  ["requests", (_, window) => shown(window?.requestsPerSecond, perSecond)],
  ["errors", (_, window) => shown(window?.errorRatio, percent)],
  ["retries", (_, window) => shown(window?.retriesPerSecond, perSecond)],
  ["request p50", (_, window) => shown(window?.seconds?.p50, seconds)],
  ["request p95", (_, window) => shown(window?.seconds?.p95, seconds)],
  ["first byte p95", (_, window) => shown(window?.firstByteSeconds?.p95, seconds)],
];

class OrchestratorCard extends Card {
  constructor(engine) {
    super(engine);
    this.numbers = new Numbers(ORCHESTRATOR_NUMBERS);
    this.head = element("thead");
    this.sides = element("tbody");
    this.node.append(this.numbers.node, element("table", {}, element("caption", {}, "Requests to the workers of each side"), this.head, this.sides));
  }

  show(engine) {
    super.show(engine);
    this.numbers.show(engine);
    const { sides, window } = engine.orchestrator;
    const known = ["context", "generation", "encoder"].filter((side) => sides[side] !== undefined);
    this.head.replaceChildren(element("tr", {}, element("td"), ...known.map((side) => element("th", { scope: "col" }, side))));
    const cells = (text) => known.map((side) => element("td", {}, text(sides[side], window?.sides[side]) ?? "–"));
    this.sides.replaceChildren(...SIDE_ROWS.map(([name, text]) => element("tr", {}, element("th", { scope: "row" }, name), ...cells(text))));
  }
}

/** A finding: something worth knowing beside the verdicts. */
class FindingCard {
  constructor(finding) {
    this.severity = element("span");
    this.says = element("h3");
    this.evidence = element("p");
    this.remedy = element("p");
    const subject = element("p", { class: "about" }, `${finding.kind} ${finding.subject} · ${finding.rule}`);
    this.node = element("article", {}, element("header", {}, this.severity, this.says), subject, this.evidence, this.remedy);
  }

  show(finding) {
    setText(this.severity, finding.severity);
    this.severity.className = `state ${finding.severity}`;
    setText(this.says, finding.says);
    setText(this.evidence, evidenceText(finding.evidence));
    setText(this.remedy, `Change: ${finding.remedy}`);
  }
}

const GPU_COLUMNS = [
  ["GPU", ({ index, name, uuid }) => `${index} ${name ?? uuid}`, "name"],
  ["State", ({ state }) => state.replaceAll("_", " "), "badge"],
  ["Utilization", ({ utilizationRatio }) => shown(utilizationRatio, percent)],
  ["SM active", ({ smActiveRatio }) => shown(smActiveRatio, percent), "wide"],
  ["Memory", ({ memoryUsedBytes: used, memoryTotalBytes: total }) => shown(used, () => `${plain.format(used / GIB)} of ${plain.format(total / GIB)} GiB`), "wide"],
  ["Power", ({ powerWatts: power, powerLimitWatts: limit }) => shown(power, () => (limit === undefined ? watts(power) : `${plain.format(power)} of ${watts(limit)}`)), "wide"],
  ["Temperature", ({ temperatureCelsius }) => shown(temperatureCelsius, (celsius) => `${plain.format(celsius)} °C`), "wide"],
  ["Clocks limited by", ({ clocksLimitedBy }) => shown(clocksLimitedBy, (reasons) => reasons.join(", ").replaceAll("_", " ") || "nothing"), "words"],
  ["Last Xid", ({ lastXid }) => shown(lastXid, count), "wide"],
];

class GpuRow extends TableRow {
  constructor() {
    super(GPU_COLUMNS);
    this.state = element("span", { class: "state" });
  }

  show(gpu) {
    super.show(gpu);
    // The state in the row agrees with the findings about the GPU.
    const found = findings.filter(({ kind, subject }) => kind === "GPU" && subject === `${gpu.index} ${gpu.uuid}`);
    const worst = found.find(({ severity }) => severity !== "info");
    setText(this.state, worst && gpu.state === "ok" ? worst.rule.replace("gpu-", "") : gpu.state.replaceAll("_", " "));
    this.state.className = `state ${worst?.severity ?? gpu.state}`;
    this.cells[1].replaceChildren(this.state);
  }
}

const byId = (id) => document.getElementById(id);
const findingCards = new Items(byId("findings"));
const engineRows = new Items(byId("engine-rows"));
const engineCards = new Items(byId("engines"));
const gpuRows = new Items(byId("gpu-rows"));
byId("engine-table").prepend(element("thead", {}, element("tr", {}, ...ENGINE_COLUMNS.map(([title, , kind]) => element("th", { scope: "col", class: kind }, title)))));
byId("gpu-table").prepend(element("thead", {}, element("tr", {}, ...GPU_COLUMNS.map(([title, , kind]) => element("th", { scope: "col", class: kind ?? "" }, title)))));

let engines = [];
let findings = [];
/** Slots of the last minutes by engine. */
let history = new Map();
/** Engines whose details a person has opened or closed. With many engines, also the first engine in trouble. */
const toggled = new Map();

function isOpen(engine) {
  return toggled.get(keyOf(engine)) ?? engines.length <= FEW_ENGINES;
}

function showDetails() {
  engineRows.show(engines, keyOf, (engine) => new EngineRow(engine));
  const card = (engine) => (engine.orchestrator === undefined ? new EngineCard(engine) : new OrchestratorCard(engine));
  engineCards.show(engines.filter(isOpen), keyOf, card);
}

/** Sorts the engines, those in the worst trouble first. */
function orderEngines() {
  engines.sort((one, other) => SEVERITIES.indexOf(severityOf(other)) - SEVERITIES.indexOf(severityOf(one)));
  if (engines.length > FEW_ENGINES && toggled.size === 0 && severityOf(engines[0]) !== "none") toggled.set(keyOf(engines[0]), true);
}

function show(gpus, found) {
  findingCards.show(findings, ({ rule, kind, subject }) => JSON.stringify([rule, kind, subject]), (finding) => new FindingCard(finding));
  byId("findings-section").hidden = findings.length === 0;
  orderEngines();
  showDetails();
  byId("no-engines").hidden = engines.length > 0;
  byId("engine-table").hidden = engines.length === 0;
  gpuRows.show(gpus.gpus, ({ uuid }) => uuid, () => new GpuRow());
  byId("gpu-table").hidden = gpus.gpus.length === 0;
  byId("no-gpus").hidden = gpus.gpus.length > 0;
  setText(byId("no-gpus"), gpus.why ?? "");
  byId("found-section").hidden = found.length === 0;
  byId("found").replaceChildren(...found.map(({ address, finding }) => element("li", {}, element("code", {}, address), ` ${finding}`)));
}

async function get(path) {
  const response = await fetch(`api/v1/${path}`, { cache: "no-store", signal: AbortSignal.timeout(10000) });
  if (!response.ok) {
    const why = await response.json().then(({ error }) => `: ${error}`, () => "");
    throw new Error(`${path} answers ${response.status}${why}`);
  }
  return response.json();
}

async function update() {
  const [all, known, gpus, found] = await Promise.all([get("engines"), get("findings"), get("gpus"), get("discovery")]);
  [engines, findings] = [all, known.findings];
  const open = engines.filter((engine) => isOpen(engine) && engine.orchestrator === undefined).map(nameOf);
  // An engine may disappear between two requests.
  const slots = open.map((name) => get(`history?${new URLSearchParams({ engine: name })}`).then((answer) => answer.engines[0].slots, () => []));
  history = new Map((await Promise.all(slots)).map((slots, index) => [open[index], slots]));
  show(gpus, found);
}

let failedSince;
async function run() {
  if (document.visibilityState === "visible") {
    const time = new Date().toLocaleTimeString();
    try {
      await update();
      setText(byId("updated"), `updated ${time}`);
      failedSince = undefined;
      setText(byId("connection"), "");
    } catch (error) {
      failedSince ??= time;
      setText(byId("connection"), `No answer from the exporter since ${failedSince}; retrying. ${error.message}`);
    }
    document.body.classList.toggle("disconnected", failedSince !== undefined);
  }
  setTimeout(run, EVERY_MS);
}
run();
