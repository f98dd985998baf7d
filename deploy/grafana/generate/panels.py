"""How the panels look. Uses Grafana's own builder (grafana-foundation-sdk). Contains no metric names."""

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heat
from grafana_foundation_sdk.models import prometheus as promql

# Red is only for problems that users notice now, orange for those that they will notice.
GREEN, BLUE, ORANGE, RED, TEXT = "green", "blue", "orange", "red", "text"
SOURCE = model.DataSourceRef("prometheus", "${datasource}")
TIME = promql.PromQueryFormat.TIME_SERIES
Panel = timeseries.Panel | stat.Panel | table.Panel | heatmap.Panel | statetimeline.Panel
Query = tuple[str, str]
Names = list[tuple[float, str, str]]


def steps(*pairs: tuple[float, str], base: str = GREEN) -> dashboard.ThresholdsConfig:
    """Thresholds: the base color, then (value, color) in ascending order."""
    colors = [model.Threshold(None, base), *(model.Threshold(value, color) for value, color in pairs)]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(colors)


def named(names: Names) -> list[model.ValueMapping]:
    """Texts and colors for the numbers of a state."""
    texts = {f"{number:g}": model.ValueMappingResult(text=text, color=color, index=place) for place, (number, text, color) in enumerate(names)}
    return [model.ValueMap(texts)]


def color(mode: model.FieldColorModeId, fixed: str = "") -> dashboard.FieldColor:
    return dashboard.FieldColor().mode(mode).fixed_color(fixed) if fixed else dashboard.FieldColor().mode(mode)


def link(title: str, uid: str, **variables: str) -> dashboard.DashboardLink:
    """A link to a dashboard. It passes on the time range, the variables of both dashboards, and `variables`, whose
    values are labels or columns."""
    kept = "&".join(f"${{{name}:queryparam}}" for name in ("datasource", "cluster", "job", "namespace"))
    own = "".join(f"&var-{name}={value}" for name, value in variables.items())
    return dashboard.DashboardLink(title).url(f"/d/{uid}?{kept}{own}&${{__url_time_range}}")


def runbook(section: str) -> dashboard.DashboardLink:
    """A link to a section of the runbooks, such as limits.md#trtllmenginelimited."""
    return dashboard.DashboardLink("Runbook").url(f"https://github.com/trtllm-exporter/trtllm-exporter/blob/main/docs/runbooks/{section}")


def by_label(title: str, uid: str, *labels: str) -> dashboard.DashboardLink:
    """A link from a line of a graph. The labels of the line become the variables of the dashboard."""
    return link(title, uid, **{("gpu" if label == "gpu_uuid" else label): f"${{__field.labels.{label}}}" for label in labels})


def put(panel: Panel, title: str, text: str, unit: str, queries: list[Query], width: int, height: int, now: bool = False, form: promql.PromQueryFormat = TIME) -> None:
    panel.title(title).description(text).datasource(SOURCE).unit(unit).span(width).height(height)
    for number, (expression, legend) in enumerate(queries):
        one = prometheus.Dataquery().datasource(SOURCE).ref_id(chr(65 + number)).expr(expression).legend_format(legend).format(form)
        panel.with_target(one.instant() if now else one.range())


def lines(
    title: str,
    text: str,
    unit: str,
    queries: list[Query],
    width: int = 8,
    limits: dashboard.ThresholdsConfig | None = None,
    stack: bool = False,
    high: float | None = None,
    many: bool = False,
    links: list[dashboard.DashboardLink] | None = None,
) -> Panel:
    """Lines over time, with their values in the legend. The limits are dashed lines, and so is a series named
    "objective". With `many` lines, the color of a line shows its value, because a palette would make one of them
    red."""
    panel = timeseries.Panel()
    put(panel, title, text, unit, queries, width, 8)
    mode = model.FieldColorModeId.CONTINUOUS_BL_PU if many else model.FieldColorModeId.PALETTE_CLASSIC
    panel.color_scheme(color(mode)).line_width(1).fill_opacity(40 if stack else 8).show_points(kinds.VisibilityMode.NEVER).min(0)
    panel.stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL if stack else kinds.StackingMode.NONE))
    style = kinds.GraphThresholdsStyleMode.DASHED if limits else kinds.GraphThresholdsStyleMode.OFF
    panel.thresholds(limits or steps()).thresholds_style(common.GraphThresholdsStyleConfig().mode(style))
    legend = common.VizLegendOptions().display_mode(kinds.LegendDisplayMode.TABLE).placement(kinds.LegendPlacement.BOTTOM)
    panel.legend(legend.show_legend(True).calcs(["lastNotNull", "max"]).sort_by("Last *").sort_desc(True))
    panel.tooltip(common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING))
    if high is not None:
        panel.max(high)
    if "objective" in (legend for _, legend in queries):
        look = {"custom.lineStyle": {"fill": "dash", "dash": [8, 6]}, "custom.fillOpacity": 0, "color": color(model.FieldColorModeId.FIXED, RED).build()}
        panel.override_by_regexp("/^objective$/", [model.DynamicConfigValue(name, value) for name, value in look.items()])
    return panel.data_links([*links]) if links else panel


def numbers(title: str, text: str, unit: str, queries: list[Query], width: int, limits: dashboard.ThresholdsConfig | dict[str, dashboard.ThresholdsConfig], decimals: int | None = None, names: Names | None = None, show: kinds.BigValueTextMode = kinds.BigValueTextMode.VALUE_AND_NAME) -> Panel:
    """Current values. `limits` sets their colors: the same limits for all values, or separate ones for each legend."""
    panel = stat.Panel()
    put(panel, title, text, unit, queries, width, 4, now=True)
    panel.graph_mode(kinds.BigValueGraphMode.NONE).color_mode(kinds.BigValueColorMode.BACKGROUND_SOLID).text_mode(show)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).color_scheme(color(model.FieldColorModeId.THRESHOLDS))
    panel.thresholds(steps(base=TEXT) if isinstance(limits, dict) else limits)
    for name, one in limits.items() if isinstance(limits, dict) else ():
        panel.override_by_name(name, [model.DynamicConfigValue("thresholds", one.build())])
    if decimals is not None:
        panel.decimals(decimals)
    return panel.mappings(named(names)) if names else panel


class Column:
    """A column of a table: a label of the first query, or the value of its own query."""

    def __init__(self, heading: str, of: str, unit: str = "", limits: dashboard.ThresholdsConfig | None = None, names: Names | None = None, label: str = "", to: dashboard.DashboardLink | None = None):
        self.heading, self.of, self.unit, self.limits, self.names, self.label, self.to = heading, of, unit, limits, names, label, to

    def properties(self) -> list[model.DynamicConfigValue]:
        found: dict[str, object] = {}
        if self.unit:
            found["unit"] = self.unit
        if self.names:
            found["mappings"] = named(self.names)
        if self.limits:
            found["thresholds"] = self.limits.build()
        if self.names or self.limits:
            found["custom.cellOptions"] = kinds.TableColoredBackgroundCellOptions() if self.names else kinds.TableColorTextCellOptions()
        if self.to:
            found["links"] = [self.to.build()]
        return [model.DynamicConfigValue(name, value) for name, value in found.items()]


def rows(title: str, text: str, keys: list[Column], columns: list[Column], height: int, sort: str = "", width: int = 24) -> Panel:
    """A table with a row for each combination of the keys, which are labels. Rows with the highest value of the
    column `sort` come first."""
    panel = table.Panel()
    put(panel, title, text, "short", [(one.of, one.heading or title) for one in columns], width, height, now=True, form=promql.PromQueryFormat.TABLE)
    panel.color_scheme(color(model.FieldColorModeId.THRESHOLDS)).thresholds(steps(base=TEXT)).filterable(True)
    panel.cell_height(kinds.TableCellHeight.SM).show_header(True)
    if sort:
        panel.sort_by([common.TableSortByFieldState().display_name(sort).desc(True)])
    value = "Value" if len(columns) == 1 else "Value #{}"
    fields = {value.format(chr(65 + number)): one for number, one in enumerate(columns)}
    shown = {one.of: one for one in keys} | {one.label or field: one for field, one in fields.items()}
    hidden = {"Time": True, "__name__": True} | {field: True for field, one in fields.items() if one.label or not one.heading}
    first = [field for field, one in fields.items() if one.heading == sort] + [one.label for one in columns if one.label]
    order = {field: place for place, field in enumerate(dict.fromkeys([*first, *shown]))}
    names = {field: one.heading for field, one in shown.items()}
    if len(columns) > 1:
        panel.with_transformation(model.DataTransformerConfig("merge", options={}))
    panel.with_transformation(model.DataTransformerConfig("organize", options={"excludeByName": hidden, "indexByName": order, "renameByName": names}))
    for one in shown.values():
        if found := one.properties():
            panel.override_by_name(one.heading, found)
    return panel


def heat_map(title: str, text: str, queries: list[Query], width: int = 8) -> Panel:
    """A heatmap of request times: how many requests took how long, over time."""
    panel = heatmap.Panel()
    put(panel, title, text, "s", queries, width, 8, form=promql.PromQueryFormat.HEATMAP)
    colors = heatmap.HeatmapColorOptions().mode(heat.HeatmapColorMode.SCHEME).scheme("Blues").steps(64)
    panel.color(colors.exponent(0.5).reverse(False)).show_legend().cell_gap(1)
    return panel.y_axis(heatmap.YAxisConfig().unit("s").axis_placement(kinds.AxisPlacement.LEFT)).mode(kinds.TooltipDisplayMode.SINGLE)


def bars(title: str, text: str, queries: list[Query], names: Names, width: int = 12) -> Panel:
    """Colored bars over time, for something that has few states."""
    panel = statetimeline.Panel()
    put(panel, title, text, "none", queries, width, 5)
    panel.mappings(named(names)).color_scheme(color(model.FieldColorModeId.THRESHOLDS)).thresholds(steps(base=TEXT)).show_value(kinds.VisibilityMode.NEVER)
    legend = common.VizLegendOptions().display_mode(kinds.LegendDisplayMode.LIST).placement(kinds.LegendPlacement.BOTTOM).show_legend(True)
    return panel.merge_values(True).row_height(0.8).fill_opacity(80).line_width(0).legend(legend.calcs([]))


class Titled(model.AnnotationQuery):
    """The builder's schema lacks the title of an annotation, so it is added here."""

    title = ""

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {"titleFormat": self.title, "step": "60s"}


class Marker(Builder[model.AnnotationQuery]):
    """An annotation: a vertical line in all panels when a query has results."""

    def __init__(self, name: str, shade: str, expression: str, title: str):
        self.found = Titled(name=name, datasource=SOURCE, enable=True, icon_color=shade, expr=expression)
        self.found.title = title

    def build(self) -> model.AnnotationQuery:
        return self.found


class Variable(dashboard.QueryVariable):
    """A variable with the values of a label. `All` also matches series without the label."""

    def __init__(self, name: str, heading: str, query: str, single: bool = False):
        super().__init__(name)
        self.label(heading).datasource(SOURCE).query({"query": query, "refId": "StandardVariableQuery"})
        self.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.ALPHABETICAL_ASC)
        self.multi(not single).include_all(not single)
        if not single:
            self.all_value(".*")


def needs_full(name: str) -> str:
    """The name of a collapsed row whose panels read families that are not on the default page."""
    return f"+{name} (needs --metrics.profile full)"


def page(uid: str, title: str, text: str, variables: list[Variable], markers: list[Marker], content: dict[str, list[Panel]]) -> model.Dashboard:
    """A dashboard. `content` has the panels of each row. A row whose name begins with "+" is collapsed at first."""
    links = dashboard.DashboardLink("TensorRT-LLM").type(model.DashboardLinkType.DASHBOARDS).tags(["tensorrt-llm"])
    result = dashboard.Dashboard(title).uid(uid).description(text).tags(["tensorrt-llm", "trtllm-exporter"]).editable()
    result.tooltip(model.DashboardCursorSync.CROSSHAIR).refresh("30s").timezone("browser").time("now-1h", "now")
    result.link(links.as_dropdown(True).include_vars(True).keep_time(True).icon("external link"))
    result.variables([dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"), *variables])
    for marker in markers:
        result.annotation(marker)
    number = 0
    for name, panels in content.items():
        one = dashboard.Row(name.lstrip("+")).id(number := number + 1).collapsed(name.startswith("+"))
        for panel in panels:
            panel.id(number := number + 1)
        if name.startswith("+"):
            for panel in panels:
                one.with_panel(panel)
        result.with_row(one)
        if not name.startswith("+"):
            for panel in panels:
                result.with_panel(panel)
    return result.build()
