// Reads the metrics page, so that this page shows the same numbers as Prometheus.
"use strict";

/** Text format 0.0.4 → Map of series name → [{labels, value}]. */
function parseMetrics(text) {
  const series = new Map();
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const [, name, list = "", value] = match;
    const labels = {};
    for (const [, label, text] of list.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[label] = text.replace(/\\(.)/g, (_, escaped) => (escaped === "n" ? "\n" : escaped));
    }
    if (!series.has(name)) series.set(name, []);
    series.get(name).push({ labels, value: number(value) });
  }
  return series;
}

function number(text) {
  return text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : Number(text);
}

/** All series of one engine or GPU: those that have these labels. */
class Scope {
  constructor(series, labels) {
    this.series = series;
    this.wanted = Object.entries(labels);
  }

  all(name, labels = {}) {
    const wanted = [...this.wanted, ...Object.entries(labels)];
    return (this.series.get(name) ?? []).filter(({ labels }) => wanted.every(([key, value]) => labels[key] === value));
  }

  /** undefined if the page has no such series. */
  value(name, labels) {
    return this.all(name, labels)[0]?.value;
  }

  /** Cumulative counts by upper bound. */
  buckets(name, labels) {
    return new Map(this.all(`${name}_bucket`, labels).map(({ labels, value }) => [number(labels.le), value]));
  }
}

/** Like PromQL's increase() without extrapolation; undefined after a restart of the exporter. */
function increase(before, after) {
  return before === undefined || after === undefined || after < before ? undefined : after - before;
}

/** Like PromQL's histogram_quantile() over what was observed between two readings. */
function quantile(q, before, after) {
  const bounds = [...after.keys()].sort((one, other) => one - other);
  const counts = bounds.map((bound) => after.get(bound) - (before.get(bound) ?? 0));
  const total = counts.at(-1);
  if (!(total > 0) || counts.some((count) => count < 0)) return undefined;
  const index = counts.findIndex((count) => count >= q * total);
  if (bounds[index] === Infinity) return bounds[index - 1];
  const [low, below] = index === 0 ? [0, 0] : [bounds[index - 1], counts[index - 1]];
  const inside = counts[index] - below;
  return inside === 0 ? bounds[index] : low + ((bounds[index] - low) * (q * total - below)) / inside;
}
