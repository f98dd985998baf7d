"""Draws dashboards as pictures from the answers of a Prometheus, so that the documentation can show them without a
Grafana server. Positions, titles, units, thresholds, mappings, overrides, order and links come from the dashboard.
The pictures only look similar to Grafana."""

import bisect
import datetime
import io
import os
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.dates as dates
import matplotlib.pyplot as plt
import panels
from expressions import concrete
from PIL import Image

BACKGROUND, CARD, LINE, TEXT, DIM, BLUE = "#111217", "#181b1f", "#2a2d33", "#d8d9da", "#9fa3a8", "#5794f2"
COLORS = {"green": "#56a64b", "yellow": "#fade2a", "orange": "#ff9830", "red": "#e02f44", "blue": "#3274d9", "text": "#33363c"}
PALETTE = ["#73bf69", "#f2cc0c", "#8ab8ff", "#ff9830"]  # the first four colours of Grafana's palette; the fifth is red, so panels with more series use SCALE
SCALE = plt.get_cmap("cool")
COLUMN, LINE_HEIGHT = 0.5, 0.33  # inches of one grid unit
WINDOW = "20s"  # the rate interval for one scrape in 5 s
LEGENDS, SMALL = 5, 5.6  # lines of a legend that fit; more lines are cut off, as in Grafana
LARGEST = 190 * 1024  # largest size of a picture in bytes


def number(value, unit, decimals=None):
    if unit == "percentunit":
        return f"{value * 100:.{decimals}f}%" if decimals is not None else f"{value * 100:.3g}%"
    if unit == "s":
        for limit, factor, name in ((1e-3, 1e6, "µs"), (1, 1e3, "ms"), (120, 1, "s")):
            if abs(value) < limit:
                return f"{value * factor:.3g} {name}" if value else "0"
        return f"{value / 60:.3g} min"
    suffix = {"bytes": "B", "Bps": "B/s", "watt": "W", "hertz": "Hz", "reqps": "req/s", "ops": "/s", "celsius": "°C", "joule": "J"}.get(unit, "")
    for limit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (limit if limit > 1e4 else 1e3):.3g} {name}{suffix}"
    return (f"{value:.0f} {suffix}" if decimals == 0 or abs(value) >= 1000 else f"{value:.3g} {suffix}").rstrip()


def shortened(text, length):
    return text if len(text) <= length else text[: max(1, length - 1)] + "…"


def at(seconds):
    return datetime.datetime.fromtimestamp(float(seconds))


class Drawing:
    """One dashboard at one moment, with values for its variables."""

    def __init__(self, fleet, dashboard, start, end, values):
        self.fleet, self.dashboard, self.start, self.end, self.values = fleet, dashboard, start, end, values

    def answers(self, target):
        query = concrete(target["expr"], self.values, WINDOW)
        return self.fleet.query(query, self.end) if target.get("instant") else self.fleet.prometheus.query_range(query, self.start, self.end)

    def series(self, panel):
        """For each series of a panel, in the order of the queries: (legend, times, values). An instant query has one value."""
        for target in panel["targets"]:
            for one in self.answers(target):
                points = [(float(t), float(v)) for t, v in one.get("values", [one.get("value", (0, "NaN"))]) if v not in ("NaN", "+Inf", "-Inf")]
                if points:
                    yield panels.legend(target, one["metric"]), [t for t, _ in points], [v for _, v in points]

    def text(self, axes, x, y, text, **how):
        axes.text(x, y, text, transform=axes.transAxes, va="center", **how)

    def timeseries(self, axes, panel, card):
        defaults = panel["fieldConfig"]["defaults"]
        found = sorted(self.series(panel), key=lambda one: one[2][-1], reverse=True)
        stacked = defaults["custom"]["stacking"]["mode"] == "normal"
        palette = defaults["color"]["mode"] == "palette-classic"
        largest = max((values[-1] for _, _, values in found), default=1) or 1
        dashed = next((one["matcher"]["options"].strip("/") for one in panel["fieldConfig"]["overrides"]), None)
        below, legends = {}, []
        for index, (legend, times, values) in enumerate(found):
            is_limit = dashed is not None and re.search(dashed, legend)
            shade = COLORS["red"] if is_limit else PALETTE[index % 4] if palette else SCALE((index + 0.5) / len(found) if stacked else values[-1] / largest)
            legends.append((legend, shade, number(values[-1], defaults["unit"]), number(max(values), defaults["unit"])))
            if stacked:
                low = [below.get(round(time), 0) for time in times]
                values = [value + bottom for value, bottom in zip(values, low)]
                below.update({round(time): value for time, value in zip(times, values)})
                axes.fill_between([at(time) for time in times], low, values, color=shade, alpha=0.35, linewidth=0)
            # A gap in the data becomes a gap in the line.
            cuts = [0, *(n for n in range(1, len(times)) if times[n] - times[n - 1] > 1.5), len(times)]
            for first, last in zip(cuts, cuts[1:]):
                axes.plot([at(t) for t in times[first:last]], values[first:last], color=shade, linewidth=1.1, linestyle="--" if is_limit else "-")
        low, high = axes.get_ylim()
        low, high = defaults.get("min", low), max(1.02 * defaults.get("max", high), high)
        axes.set_ylim(low, high if high > low else low + 1)
        for step in defaults["thresholds"]["steps"] if defaults["custom"]["thresholdsStyle"]["mode"] != "off" else []:
            if step["value"] is not None and low <= step["value"] <= axes.get_ylim()[1]:
                axes.axhline(step["value"], color=COLORS[step["color"]], linestyle="--", linewidth=0.9)
        axes.yaxis.set_major_locator(plt.MaxNLocator(4))
        axes.yaxis.set_major_formatter(lambda value, _: number(value, defaults["unit"]))
        axes.grid(color=LINE, linewidth=0.6)
        return legends

    def legend(self, card, legends):
        """Draws a table below the chart with the last and the largest value of each series."""
        width = int((card.wide - 1.55) * 19)
        for row, (legend, shade, last, most) in enumerate([("", None, "Last", "Max"), *legends[:LEGENDS]]):
            y = card.bottom + (0.74 - 0.115 * row) * card.inch
            if shade:
                card.figure.add_artist(plt.Line2D([card.left + 0.08 * card.across, card.left + 0.18 * card.across], [y, y], color=shade, linewidth=1.6))
            for x, word, side in ((0.24, shortened(legend, width), "left"), (card.wide - 0.72, last, "right"), (card.wide - 0.1, most, "right")):
                card.figure.text(card.left + x * card.across, y, word, fontsize=SMALL, color=DIM if not shade else TEXT, ha=side, va="center")
        if len(legends) > LEGENDS:
            card.figure.text(card.left + 0.24 * card.across, card.bottom + 0.74 * card.inch, f"{len(legends)} series", fontsize=SMALL, color=DIM, va="center")

    def heatmap(self, axes, panel, card):
        """Draws a heatmap from classic buckets, whose counts are cumulative."""
        rows = sorted((float(one["metric"]["le"]), dict((float(t), float(v)) for t, v in one["values"])) for target in panel["targets"] for one in self.answers(target) if "le" in one["metric"])
        edges = [le for le, _ in rows if le != float("inf")]
        times = sorted({time for _, values in rows for time in values})
        if not edges or len(times) < 2:
            return None
        counts = []
        for (_, lower), (_, upper) in zip([(0, {}), *rows], rows):
            counts.append([max(0, upper.get(time, 0) - lower.get(time, 0)) or float("nan") for time in times])
        used = [index for index, row in enumerate(counts) if any(value == value for value in row)]
        first, last = (max(0, used[0] - 1), min(len(counts) - 1, used[-1] + 1)) if used else (0, 1)  # a single row has no cell to draw
        names = [number(le, "s") for le in edges] + ["more"]
        axes.pcolormesh([at(time) for time in times], range(first, last + 1), [[value**0.5 for value in row] for row in counts[first : last + 1]], cmap="Blues_r", shading="nearest", vmin=0)
        labels = range(first, last + 1, max(1, (last - first) // 6))
        axes.set_yticks(list(labels), [names[index] for index in labels])
        return None

    def state_timeline(self, axes, panel, card):
        mapping = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
        found = sorted(self.series(panel), reverse=True)
        for height, (_, times, values) in enumerate(found):
            begin = 0
            for index in range(1, len(times) + 1):
                if index == len(times) or values[index] != values[begin] or times[index] - times[index - 1] > 1.5:
                    state = mapping.get(str(int(values[begin])), {"text": "", "color": "text"})
                    width = datetime.timedelta(seconds=times[index - 1] + 1 - times[begin])
                    axes.barh(height, width, left=at(times[begin]), height=0.8, color=COLORS[state["color"]], alpha=0.8, linewidth=0)
                    begin = index
        axes.set_yticks(range(len(found)), [legend for legend, _, _ in found], fontsize=6)
        axes.set_ylim(-0.6, max(0.4, len(found) - 0.4))
        for place, state in enumerate(mapping.values()):
            card.figure.text(card.left + (0.3 + place * 0.85) * card.across, card.bottom + 0.1 * card.inch, f"■ {state['text']}", fontsize=SMALL, color=COLORS[state["color"]], va="center")

    def stat(self, axes, panel, card):
        axes.axis("off")
        defaults = panel["fieldConfig"]["defaults"]
        overrides = {one["matcher"]["options"]: {it["id"]: it["value"] for it in one["properties"]} for one in panel["fieldConfig"]["overrides"]}
        mapping = defaults["mappings"][0]["options"] if defaults.get("mappings") else {}
        found, mode = list(self.series(panel)), panel["options"]["textMode"]
        for index, (legend, _, values) in enumerate(found):
            state = mapping.get(f"{values[-1]:g}")
            shade = state["color"] if state else color_of(values[-1], overrides.get(legend, {}).get("thresholds", defaults["thresholds"]))
            front = "black" if shade == "orange" else "white"
            left, width = index / len(found) + 0.01, 1 / len(found) - 0.02
            axes.add_patch(plt.Rectangle((left, 0.04), width, 0.92, facecolor=COLORS[shade], transform=axes.transAxes))
            value = legend if mode == "name" else state["text"] if state else number(values[-1], defaults["unit"], defaults.get("decimals"))
            inches = card.wide / len(found)
            size = min(17, 88 * inches / max(3, len(value)))
            self.text(axes, left + width / 2, 0.58 if mode == "value_and_name" else 0.5, value, ha="center", fontsize=size, color=front, fontweight="bold")
            if mode == "value_and_name":
                self.text(axes, left + width / 2, 0.18, shortened(legend, int(inches * 15)), ha="center", fontsize=6.5, color=front)

    def table(self, axes, panel, card):
        """Draws a table. Rows of different queries with the same labels become one row, as in Grafana's transformation `merge`."""
        axes.axis("off")
        organize = panel["transformations"][-1]["options"]
        shared = None
        answers = [(target, self.answers(target)) for target in panel["targets"]]
        for _, found in answers:
            for one in found[:1]:
                shared = set(one["metric"]) if shared is None else shared & set(one["metric"])
        merged = {}
        for target, found in answers:
            for one in found:
                row = merged.setdefault(tuple(sorted((label, value) for label, value in one["metric"].items() if label in shared)), {})
                row |= one["metric"] | {"Value" if len(answers) == 1 else f"Value #{target['refId']}": float(one["value"][1])}
        overrides = {one["matcher"]["options"]: {it["id"]: it["value"] for it in one["properties"]} for one in panel["fieldConfig"]["overrides"]}
        headings = organize["renameByName"]
        fields = sorted((field for field in headings if not organize["excludeByName"].get(field)), key=lambda field: organize["indexByName"][field])
        rows = list(merged.values())
        for order in panel["options"].get("sortBy", []):
            key = next(field for field in fields if headings[field] == order["displayName"])
            rows.sort(key=lambda row: row.get(key, -1), reverse=order["desc"])
        lines = int((card.tall - 0.5) / 0.155) - 1
        cells, shades = [], []
        for row in rows[:lines]:
            line, shade = [], []
            for field in fields:
                look, value = overrides.get(headings[field], {}), row.get(field, "")
                back = front = None
                if isinstance(value, float) and look.get("mappings"):
                    state = look["mappings"][0]["options"].get(f"{value:g}", {"text": f"{value:g}", "color": "text"})
                    value, back = state["text"], COLORS[state["color"]]
                elif isinstance(value, float):
                    front = color_of(value, look["thresholds"]) if look.get("thresholds") else None
                    front = COLORS[front] if front not in (None, "text") else None
                    value = number(value, look.get("unit", "short"))
                line.append(f"{value}" + (" ↗" if look.get("links") and value else ""))
                shade.append((back, front))
            cells.append(line)
            shades.append(shade)
        widths = [max(len(headings[field]), *(len(line[place]) for line in cells), 3) + 2 if cells else 5 for place, field in enumerate(fields)]
        left = 0
        for place, field in enumerate(fields):
            room = widths[place] / sum(widths)
            for height, word in enumerate([headings[field], *(line[place] for line in cells)]):
                y = 1 - (height + 0.5) * 0.155 / (card.tall - 0.45)
                back, front = shades[height - 1][place] if height else (None, None)
                if back:
                    axes.add_patch(plt.Rectangle((left, y - 0.07 / (card.tall - 0.45)), room - 0.004, 0.14 / (card.tall - 0.45), facecolor=back, transform=axes.transAxes))
                word = shortened(word, int(card.wide * room * 16))
                self.text(axes, left + 0.003, y, word, fontsize=6, color=("black" if back == COLORS["orange"] else "white") if back else front or (TEXT if height else DIM))
            left += room
        if len(rows) > lines:
            card.figure.text(card.left + 0.12 * card.across, card.bottom + 0.1 * card.inch, f"{len(rows)} rows; scroll for more", fontsize=SMALL, color=DIM, va="center")

    def markers(self, axes):
        for annotation, moments in self.marked:
            for moment in moments:
                axes.axvline(at(moment), color=COLORS.get(annotation["iconColor"], DIM), linewidth=0.7, linestyle=":", alpha=0.9)

    def find_markers(self):
        """Draws the annotations: the start of each alert, restart and deploy."""
        for annotation in self.dashboard["annotations"]["list"]:
            moments = set()
            for one in self.fleet.prometheus.query_range(concrete(annotation["expr"], self.values, WINDOW), self.start, self.end):
                times = [float(time) for time, _ in one["values"]]
                moments |= {time for before, time in zip([0, *times], times) if time - before > 1.5}
            yield annotation, sorted(moments)

    def draw(self, path):
        self.marked = list(self.find_markers())
        hidden, shown = 0, []
        for panel in self.dashboard["panels"]:  # Grafana closes the gap that a collapsed row leaves
            shown.append(panel | {"gridPos": panel["gridPos"] | {"y": panel["gridPos"]["y"] - hidden}})
            inside = [one["gridPos"]["y"] + one["gridPos"]["h"] for one in panel.get("panels", [])]
            hidden += max(inside, default=panel["gridPos"]["y"] + 1) - panel["gridPos"]["y"] - 1 if panel["type"] == "row" else 0
        height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in shown) + 2
        size = (24 * COLUMN, height * LINE_HEIGHT)
        figure = plt.figure(figsize=size, facecolor=BACKGROUND)
        chosen = "   ".join(f"{name}: {value}" for name, value in self.values.items())
        figure.text(0.006, 1 - 1 / height, f"{self.dashboard['title']}    {chosen}", color=TEXT, fontsize=13, va="center", fontweight="bold")
        for panel in shown:
            place = panel["gridPos"]
            top = 1 - (place["y"] + 2) / height
            if panel["type"] == "row":
                mark = "›" if panel.get("collapsed") else "⌄"
                figure.text(0.006, top - 0.5 / height, f"{mark} {panel['title']}", color=TEXT, fontsize=9, va="center", fontweight="bold")
                continue
            card = Card(figure, place, top, height, size)
            figure.text(card.left + 0.1 / size[0], card.bottom + card.high - 0.17 / size[1], panel["title"], color=TEXT, fontsize=7.5, va="center", fontweight="bold")
            kind = panel["type"]
            if kind in ("table", "stat"):
                axes = figure.add_axes((card.left + 0.1 / size[0], card.bottom + 0.1 / size[1], card.width - 0.2 / size[0], card.high - 0.42 / size[1]), facecolor=CARD)
                (self.table if kind == "table" else self.stat)(axes, panel, card)
                continue
            margin, below = {"state-timeline": (1.3, 0.42), "heatmap": (0.62, 0.3)}.get(kind, (0.62, 0.95))
            axes = figure.add_axes((card.left + margin / size[0], card.bottom + below / size[1], card.width - (margin + 0.12) / size[0], card.high - (below + 0.38) / size[1]), facecolor=CARD)
            legends = {"timeseries": self.timeseries, "heatmap": self.heatmap, "state-timeline": self.state_timeline}[kind](axes, panel, card)
            if legends is not None:
                self.legend(card, legends)
            self.markers(axes)
            axes.set_xlim(at(self.start), at(self.end))
            ticks = max(2, place["w"] // 2 - 1)
            axes.set_xticks([at(self.start + (self.end - self.start) * (index + 0.5) / ticks) for index in range(ticks)])
            axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M:%S"))
            axes.tick_params(colors=DIM, labelsize=5.8, length=0, pad=2)
            for spine in axes.spines.values():
                spine.set_visible(False)
        save(figure, path)


class Card:
    """The rectangle of a panel: its position and size as shares of the figure, and its size in inches."""

    def __init__(self, figure, place, top, height, size):
        self.figure, self.left, self.width, self.high = figure, place["x"] / 24, place["w"] / 24, place["h"] / height
        self.bottom, self.wide, self.tall = top - self.high, place["w"] * COLUMN, place["h"] * LINE_HEIGHT
        self.across, self.inch = 1 / size[0], 1 / size[1]
        gap_x, gap_y = 0.05 / size[0], 0.05 / size[1]
        figure.add_artist(plt.Rectangle(
            (self.left + gap_x, self.bottom + gap_y), self.width - 2 * gap_x, self.high - 2 * gap_y,
            facecolor=CARD, edgecolor=LINE, linewidth=0.6, transform=figure.transFigure, zorder=-1,
        ))


def color_of(value, thresholds):
    steps = thresholds["steps"]
    return steps[bisect.bisect_right([step["value"] for step in steps[1:]], value)]["color"]


def save(figure, path):
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=100, facecolor=BACKGROUND)
    plt.close(figure)
    # A palette reduces the file to a third of its size. Pictures with many lines need fewer colours to be small enough.
    for colors in (96, 64, 48, 32):
        Image.open(buffer).convert("RGB").quantize(colors, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)
        if os.path.getsize(path) < LARGEST:
            break


def all_dashboards(fleet, folder, start, end, chosen, suffix=""):
    """Draws each dashboard. `chosen` has the values of variables by dashboard."""
    os.makedirs(folder, exist_ok=True)
    for name, dashboard in panels.dashboards():
        path = os.path.join(folder, f"{name}{suffix}.png")
        Drawing(fleet, dashboard, start, end, chosen.get(name, {})).draw(path)
        print(f"{path}: {os.path.getsize(path) // 1024} KiB")
