"""Draws dashboards as pictures from the answers of a Prometheus, so that the documentation can show them without a Grafana server.
The places, titles, units, thresholds and value mappings are those of the dashboard; the look is only similar to Grafana's."""

import datetime
import io
import os
import textwrap

import matplotlib

matplotlib.use("Agg")
import matplotlib.dates as dates
import matplotlib.pyplot as plt
import panels
from PIL import Image

BACKGROUND, CARD, LINE, TEXT, DIM = "#111217", "#181b1f", "#2a2d33", "#d8d9da", "#9fa3a8"
COLORS = {"green": "#73bf69", "yellow": "#fade2a", "orange": "#ff9830", "red": "#f2495c", "blue": "#5794f2", "text": TEXT}
PALETTE = [
    "#73bf69",
    "#f2cc0c",
    "#5794f2",
    "#ff9830",
    "#f2495c",
    "#b877d9",
    "#5ce1e6",
    "#c8c8c8",
    "#37872d",
    "#c4162a",
    "#1f60c4",
    "#8f3bb8",
]
COLUMN, LINE_HEIGHT = 0.5, 0.33  # inches of one grid unit
LONGEST_LEGEND = 8
LARGEST = 190 * 1024  # bytes of a picture


def number(value, unit):
    if unit == "percentunit":
        return f"{value * 100:.3g}%"
    if unit == "s":
        for limit, factor, name in ((1e-3, 1e6, "µs"), (1, 1e3, "ms"), (60, 1, "s")):
            if abs(value) < limit:
                return f"{value * factor:.3g} {name}" if value else "0"
        return f"{value / 60:.3g} min"
    if unit == "celsius":
        return f"{value:.3g} °C"
    suffix = {"bytes": "B", "Bps": "B/s", "watt": "W", "hertz": "Hz", "reqps": "req/s", "cps": "/s", "ops": "/s"}.get(
        unit, unit.removeprefix("suffix: ") if unit.startswith("suffix") else ""
    )
    for limit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (limit if limit > 1e4 else 1e3):.3g} {name}{suffix}"
    return f"{value:.4g} {suffix}".rstrip()


def short(legend):
    return legend.replace("GPU-00000000-0000-4000-8000-00000000000", "GPU-…")


def at(seconds):
    return datetime.datetime.fromtimestamp(float(seconds))


def series_of(fleet, panel, start, end):
    """(legend, times, values) of each series of a panel, in the order of its targets. An instant query has one value."""
    for target in panel["targets"]:
        query = panels.concrete(target["expr"])
        answer = fleet.query(query, end) if target.get("instant") else fleet.prometheus.query_range(query, start, end)
        for series in answer:
            points = [
                (float(time), float(value))
                for time, value in series.get("values", [series.get("value")])
                if value not in ("NaN", "+Inf", "-Inf")
            ]
            if points:
                yield panels.legend(target, series["metric"]), [time for time, _ in points], [value for _, value in points]


def color_of(value, thresholds):
    color = "text"
    for step in thresholds["steps"]:
        if step["value"] is None or value >= step["value"]:
            color = step["color"]
    return COLORS[color]


def timeseries(axes, panel, series):
    defaults = panel["fieldConfig"]["defaults"]
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    below = {}
    for index, (legend, times, values) in enumerate(sorted(series)):
        color = PALETTE[index % len(PALETTE)]
        if stacked:
            low = [below.get(round(time), 0) for time in times]
            values = [value + bottom for value, bottom in zip(values, low)]
            below.update({round(time): value for time, value in zip(times, values)})
            axes.fill_between([at(time) for time in times], low, values, color=color, alpha=0.35, linewidth=0)
        # A gap in the data is a gap in the line.
        cuts = [0, *(n for n in range(1, len(times)) if times[n] - times[n - 1] > 1.5), len(times)]
        for first, last in zip(cuts, cuts[1:]):
            axes.plot(
                [at(time) for time in times[first:last]],
                values[first:last],
                color=color,
                linewidth=1.1,
                label=short(legend) if first == 0 and index < LONGEST_LEGEND else None,
            )
    low, high = axes.get_ylim()
    if defaults.get("min") is not None:
        low = defaults["min"]
    if defaults.get("max") is not None:
        high = max(1.02 * defaults["max"], high)
    axes.set_ylim(low, high if high > low else low + 1)
    for step in defaults["thresholds"]["steps"] if defaults["custom"]["thresholdsStyle"]["mode"] != "off" else []:
        if step["value"] is not None and low <= step["value"] <= axes.get_ylim()[1]:
            axes.axhline(step["value"], color=COLORS[step["color"]], linestyle="--", linewidth=0.9, alpha=0.9)
    unit = defaults["unit"]
    axes.yaxis.set_major_locator(plt.MaxNLocator(4))
    axes.yaxis.set_major_formatter(lambda value, _: number(value, unit))
    axes.grid(color=LINE, linewidth=0.6)
    more = f"and {len(series) - LONGEST_LEGEND} more" if len(series) > LONGEST_LEGEND else None
    tall = axes.get_position().height * axes.figure.get_size_inches()[1]
    legend = axes.legend(
        loc="upper left",
        bbox_to_anchor=(-0.06, -0.18 / tall),
        ncol=2,
        fontsize=5.6,
        frameon=False,
        labelcolor=DIM,
        handlelength=1.0,
        columnspacing=1.0,
        labelspacing=0.25,
        borderpad=0,
        title=more,
        title_fontsize=5.6,
        alignment="left",
    )
    legend.get_title().set_color(DIM)


def state_timeline(axes, panel, series):
    mapping = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    series = sorted(series, reverse=True)
    for height, (_, times, values) in enumerate(series):
        begin = 0
        for index in range(1, len(times) + 1):
            if index == len(times) or values[index] != values[begin] or times[index] - times[index - 1] > 1.5:
                state = mapping.get(str(int(values[begin])), {"text": str(values[begin]), "color": "text"})
                width = times[index - 1] + 1 - times[begin]
                axes.barh(
                    height,
                    datetime.timedelta(seconds=width),
                    left=at(times[begin]),
                    height=0.8,
                    color=COLORS[state["color"]],
                    alpha=0.8,
                    linewidth=0,
                )
                if width > 0.06 * (times[-1] - times[0]):
                    axes.text(
                        at(times[begin] + width / 2), height, state["text"], ha="center", va="center", fontsize=6, color="black"
                    )
                begin = index
    axes.set_yticks(range(len(series)), [short(legend) for legend, _, _ in series], fontsize=6)
    axes.set_ylim(-0.6, len(series) - 0.4)


def stat(axes, panel, series):
    axes.axis("off")
    defaults = panel["fieldConfig"]["defaults"]
    count = max(1, len(series))
    side_by_side = panel["gridPos"]["h"] < 6
    for index, (legend, _, values) in enumerate(series):
        x, y = ((index + 0.5) / count, 0.45) if side_by_side else (0.5, 1 - (index + 0.5) / count)
        text = (
            f"{values[-1] * 100:.{defaults['decimals']}f}%"
            if defaults["unit"] == "percentunit" and "decimals" in defaults
            else number(values[-1], defaults["unit"])
        )
        size = min(18, 64 / count / max(4, len(text)) * panel["gridPos"]["w"] / 3 + 6) if side_by_side else 15
        axes.text(
            x,
            y,
            text,
            transform=axes.transAxes,
            ha="center",
            va="center",
            fontsize=size,
            color=color_of(values[-1], defaults["thresholds"]),
            fontweight="bold",
        )
        axes.text(
            x,
            y - (0.3 if side_by_side else 0.3 / count),
            short(legend),
            transform=axes.transAxes,
            ha="center",
            va="center",
            fontsize=6,
            color=DIM,
        )


def table(axes, panel, rows):
    axes.axis("off")
    columns = panel["transformations"][0]["options"]["renameByName"]
    cells = [[short(row.get(label, "")) for label in columns] for row in rows]
    widths = [max(map(len, column)) + 2 for column in zip(columns.values(), *cells)]
    drawn = axes.table(
        cellText=cells or [[""] * len(columns)],
        colLabels=list(columns.values()),
        colLoc="left",
        loc="upper left",
        cellLoc="left",
        edges="horizontal",
        colWidths=[width / sum(widths) for width in widths],
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(6)
    for (line, _), cell in drawn.get_celld().items():
        cell.set_edgecolor(LINE)
        cell.get_text().set_color(DIM if line == 0 else TEXT)


def draw(fleet, dashboard, start, end, path):
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"]) + 2
    size = (24 * COLUMN, height * LINE_HEIGHT)
    figure = plt.figure(figsize=size, facecolor=BACKGROUND)
    figure.text(0.006, 1 - 1 / height, dashboard["title"], color=TEXT, fontsize=13, va="center", fontweight="bold")
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        top = 1 - (place["y"] + 2) / height
        if panel["type"] == "row":
            figure.text(0.006, top - 0.5 / height, f"⌄ {panel['title']}", color=TEXT, fontsize=9, va="center", fontweight="bold")
            continue
        left, bottom, width, tall = place["x"] / 24, top - place["h"] / height, place["w"] / 24, place["h"] / height
        gap_x, gap_y = 0.05 / size[0], 0.05 / size[1]
        figure.add_artist(
            plt.Rectangle(
                (left + gap_x, bottom + gap_y),
                width - 2 * gap_x,
                tall - 2 * gap_y,
                facecolor=CARD,
                edgecolor=LINE,
                linewidth=0.6,
                transform=figure.transFigure,
                zorder=-1,
            )
        )
        title = textwrap.shorten(panel["title"], int(place["w"] * 7), placeholder="…")
        figure.text(
            left + 0.1 / size[0], bottom + tall - 0.17 / size[1], title, color=TEXT, fontsize=7.5, va="center", fontweight="bold"
        )
        if panel["type"] == "table":
            # A table begins below the title and uses the whole width.
            axes = figure.add_axes(
                (left + 0.1 / size[0], bottom + 0.1 / size[1], width - 0.2 / size[0], tall - 0.45 / size[1]), facecolor=CARD
            )
            rows = [
                series["metric"] for target in panel["targets"] for series in fleet.query(panels.concrete(target["expr"]), end)
            ]
            table(axes, panel, sorted(rows, key=lambda row: sorted(row.items())))
            continue
        series = list(series_of(fleet, panel, start, end))
        if panel["type"] == "stat":
            stat(figure.add_axes((left, bottom + 0.08 / size[1], width, tall - 0.33 / size[1]), facecolor=CARD), panel, series)
            continue
        timeline = panel["type"] == "state-timeline"
        lines = 0 if timeline else min(LONGEST_LEGEND // 2, (len(series) + 1) // 2)
        margin = 1.55 if timeline else 0.62
        below = 0.28 + 0.115 * lines + (0.12 if len(series) > LONGEST_LEGEND and not timeline else 0)
        axes = figure.add_axes(
            (
                left + margin / size[0],
                bottom + below / size[1],
                width - (margin + 0.12) / size[0],
                tall - (below + 0.38) / size[1],
            ),
            facecolor=CARD,
        )
        (state_timeline if timeline else timeseries)(axes, panel, series)
        axes.set_xlim(at(start), at(end))
        ticks = max(2, place["w"] // 2 - 1)
        axes.set_xticks([at(start + (end - start) * (index + 0.5) / ticks) for index in range(ticks)])
        axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M:%S"))
        axes.tick_params(colors=DIM, labelsize=5.8, length=0, pad=2)
        for spine in axes.spines.values():
            spine.set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=100, facecolor=BACKGROUND)
    plt.close(figure)
    # A palette makes the file a third as large. Pictures with many lines need a smaller one.
    for colors in (96, 64, 48, 32):
        Image.open(buffer).convert("RGB").quantize(colors, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)
        if os.path.getsize(path) < LARGEST:
            break


def all_dashboards(fleet, folder, start, end):
    os.makedirs(folder, exist_ok=True)
    for name, dashboard in panels.dashboards():
        path = os.path.join(folder, f"{name}.png")
        draw(fleet, dashboard, start, end, path)
        print(f"{path}: {os.path.getsize(path) // 1024} KiB")
