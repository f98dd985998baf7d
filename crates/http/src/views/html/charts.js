// Small line charts over the last minutes. Each has a caption with its current values; screen readers read the caption.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 72;
/** The shortest time that a chart shows, in seconds. */
const LEAST_SPAN = 60;

function element(name, attributes = {}, ...children) {
  const node = name === "svg" || name === "polyline" || name === "line"
    ? document.createElementNS(SVG, name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A chart of several lines with one unit. */
class Chart {
  /** lines: [{label, value(slot) → number or undefined}]; format(number) → text; top: a fixed upper end, if there is one. */
  constructor(title, lines, format, top) {
    Object.assign(this, { lines, format, top });
    this.values = lines.map(({ label }, index) => {
      const value = element("span", { class: "value" });
      return { value, item: element("span", { class: `key line${index}` }, `${label} `, value) };
    });
    this.peak = element("span", { class: "peak", "aria-hidden": "true" });
    this.plot = lines.map((_, index) => element("polyline", { class: `line${index}`, fill: "none" }));
    const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    svg.append(element("line", { class: "base", x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 }), ...this.plot);
    const keys = element("div", {}, ...this.values.map(({ item }) => item));
    const caption = element("figcaption", {}, element("div", { class: "title" }, element("strong", {}, title), this.peak), keys);
    this.begin = element("span");
    const axis = element("div", { class: "axis", "aria-hidden": "true" }, this.begin, element("span", {}, "now"));
    this.node = element("figure", {}, caption, svg, axis);
  }

  /** slots: oldest first, each ends `ago` seconds before the newest. */
  draw(slots) {
    const lines = this.lines.map(({ value }) => slots.map((slot) => value(slot)));
    const known = lines.flat().filter((value) => value !== undefined);
    this.node.hidden = known.length === 0;
    if (this.node.hidden) return;
    const top = this.top ?? (Math.max(...known) * 1.1 || 1);
    const span = Math.max(LEAST_SPAN, slots[0].ago);
    lines.forEach((values, index) => {
      const points = values.flatMap((value, at) => {
        if (value === undefined) return [];
        const x = WIDTH - (slots[at].ago / span) * WIDTH;
        const y = HEIGHT - 2 - (Math.min(value, top) / top) * (HEIGHT - 4);
        return [`${x.toFixed(1)},${y.toFixed(1)}`];
      });
      this.plot[index].setAttribute("points", points.join(" "));
      const last = values.at(-1);
      setText(this.values[index].value, last === undefined ? "–" : this.format(last));
    });
    setText(this.peak, `0 – ${this.format(top)}`);
    setText(this.begin, `${span >= 120 ? `${Math.round(span / 60)} min` : `${Math.round(span)} s`} ago`);
  }
}
