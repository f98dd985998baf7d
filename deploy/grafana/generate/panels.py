"""Panels, rows, variables and dashboards of Grafana as Python values. Knows no metric."""

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
GREEN, YELLOW, ORANGE, RED, BLUE, TEXT = "green", "yellow", "orange", "red", "blue", "text"


def steps(*pairs, base=GREEN):
    """Thresholds: the base color, then (value, color) from the lowest."""
    return {
        "mode": "absolute",
        "steps": [{"color": base, "value": None}] + [{"color": color, "value": value} for value, color in pairs],
    }


RANGE, NOW, ROWS = {"range": True}, {"instant": True}, {"instant": True, "format": "table"}


def targets(queries, how):
    """Queries (expression, legend) of one panel: over a range of time, now, or now as rows of a table."""
    return [
        {"refId": chr(65 + number), "datasource": SOURCE, "expr": expression, "legendFormat": legend, "editorMode": "code", **how}
        for number, (expression, legend) in enumerate(queries)
    ]


def panel(kind, title, description, unit, queries, width, height, defaults, options, how=RANGE):
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": {"h": height, "w": width},
        "fieldConfig": {"defaults": {"unit": unit, **defaults}, "overrides": []},
        "options": options,
        "targets": targets(queries, how),
    }


def timeseries(title, description, unit, queries, width=8, height=8, thresholds=None, stack=False, low=0, high=None):
    """Lines over time. Thresholds appear as dashed lines."""
    custom = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 40 if stack else 10,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if thresholds else "off"},
    }
    defaults = {"color": {"mode": "palette-classic"}, "custom": custom, "thresholds": thresholds or steps()}
    defaults.update({key: value for key, value in (("min", low), ("max", high)) if value is not None})
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel("timeseries", title, description, unit, queries, width, height, defaults, options)


def stat(title, description, unit, queries, width=4, height=4, thresholds=None, decimals=None):
    """The value of each series now, as a number in the color of its threshold. Series that have ended do not appear."""
    defaults = {"color": {"mode": "thresholds"}, "thresholds": thresholds or steps(base=TEXT)}
    if decimals is not None:
        defaults["decimals"] = decimals
    options = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "value_and_name",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    return panel("stat", title, description, unit, queries, width, height, defaults, options, NOW)


def states(title, description, queries, names, width=24, height=8):
    """Colored bars over time. names: (number, text, color) of each value."""
    mapping = {str(number): {"text": text, "color": color, "index": index} for index, (number, text, color) in enumerate(names)}
    defaults = {
        "color": {"mode": "thresholds"},
        "custom": {"fillOpacity": 80, "lineWidth": 0},
        "mappings": [{"type": "value", "options": mapping}],
        "thresholds": steps(base=TEXT),
    }
    options = {
        "showValue": "auto",
        "mergeValues": True,
        "alignValue": "left",
        "rowHeight": 0.8,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return panel("state-timeline", title, description, "none", queries, width, height, defaults, options)


def table(title, description, query, columns, width=24, height=8):
    """The labels of an info metric, in this order. columns: label -> heading."""
    result = panel(
        "table",
        title,
        description,
        "none",
        [query],
        width,
        height,
        {"color": {"mode": "thresholds"}, "thresholds": steps(base=TEXT)},
        {"showHeader": True, "cellHeight": "sm"},
        ROWS,
    )
    order = {label: index for index, label in enumerate(columns)}
    hidden = {name: True for name in ("Time", "Value", "__name__")}
    result["transformations"] = [
        {"id": "organize", "options": {"indexByName": order, "renameByName": dict(columns), "excludeByName": hidden}}
    ]
    return result


def row(title, *panels):
    return title, panels


def placed(rows):
    """The panels of all rows with ids and places: left to right, a new line where the width of 24 is used up."""
    result, top = [], 0
    for title, panels in rows:
        result.append(
            {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"h": 1, "w": 24, "x": 0, "y": top}}
        )
        top, left, line = top + 1, 0, 0
        for one in panels:
            place = one["gridPos"]
            if left + place["w"] > 24:
                top, left, line = top + line, 0, 0
            result.append({**one, "gridPos": {**place, "x": left, "y": top}})
            left, line = left + place["w"], max(line, place["h"])
        top += line
    return [{"id": number, **one} for number, one in enumerate(result, 1)]


def variable(name, label, query):
    """A variable whose values come from a label. `All` also matches series without the label."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "StandardVariableQuery"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {},
        "options": [],
        "hide": 0,
        "regex": "",
        "skipUrlSync": False,
    }


def dashboard(uid, title, description, variables, rows):
    source = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "options": [],
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
    }
    link = {
        "title": "TensorRT-LLM",
        "type": "dashboards",
        "tags": ["tensorrt-llm"],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "icon": "external link",
        "tooltip": "",
        "url": "",
        "targetBlank": False,
    }
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["tensorrt-llm", "trtllm-exporter"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "fiscalYearStartMonth": 0,
        "links": [link],
        "annotations": {"list": []},
        "templating": {"list": [source, *variables]},
        "panels": placed(rows),
    }
