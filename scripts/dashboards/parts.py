"""The elements of the dashboards: panels with unit, description and a text for an empty state; rows, variables, links.

A dashboard is data, `Board`; `board_text` lets the grafana-foundation-sdk create Grafana's JSON from it. The SDK's
release for Grafana 10.4 is used, because later releases of Grafana migrate its schema, and older ones cannot read a
newer schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TypeVar

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    statushistory,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

from scripts.dashboards.scrapes import from_scrapes

TAG = "rljob"
WIDTH = 24
"""Columns of Grafana's grid."""
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
NO_JOB = "No job in this time range"
HEAT_POINTS = 120
"""Columns of a heat map. Grafana refuses to draw more columns than it has pixels for."""

Panel = Builder[models.Panel]
P = TypeVar("P", timeseries.Panel, stat.Panel, statushistory.Panel, statetimeline.Panel, table.Panel)


@dataclass(frozen=True)
class Query:
    """An expression and the name of its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Text:
    """Title, unit and description of a panel."""

    title: str
    unit: str
    """A unit of https://github.com/grafana/grafana/blob/main/packages/grafana-data/src/valueFormats/categories.ts."""
    about: str
    empty: str = NO_JOB


@dataclass(frozen=True)
class DashboardRow:
    """A heading and the panels below it."""

    title: str
    panels: tuple[Panel, ...]
    folded: bool = False


@dataclass(frozen=True)
class Board:
    """One dashboard."""

    name: str
    title: str
    about: str
    rows: tuple[DashboardRow, ...]
    variables: tuple[Builder[models.VariableModel], ...] = ()
    annotations: tuple[Builder[models.AnnotationQuery], ...] = ()
    since: str = "now-6h"


def board_text(board: Board) -> str:
    """Return the JSON that Grafana loads."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(f"rljob-{board.name}")
        .description(board.about)
        .tags([TAG])
        .editable()
        .refresh("30s")
        .time(board.since, "now")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .variables([_data_source(), *board.variables])
        .annotations(list(board.annotations))
        .link(_links())
    )
    for row in board.rows:
        heading = dashboard.Row(row.title).collapsed(row.folded)
        if row.folded:
            for panel in row.panels:
                heading.with_panel(panel)
        made.with_row(heading)
        for panel in () if row.folded else row.panels:
            made.with_panel(panel)
    built = made.build()
    _number(built.panels or [])
    return JSONEncoder(sort_keys=True, indent=1).encode(built) + "\n"


# Panels.


def graph(
    text: Text, *queries: Query, width: int = 12, height: int = 8, stacked: bool = False, top: float | None = None
) -> timeseries.Panel:
    """Return a panel with lines over time, from 0 where that is meaningful; a ratio ends at 1."""
    panel = _dressed(timeseries.Panel(), text, width, height)
    panel = _asking(panel, queries)
    # A step of a large job takes an hour; the last value is drawn until the next.
    panel = panel.show_points(common_models.VisibilityMode.NEVER).line_width(1).fill_opacity(60 if stacked else 8)
    legend = common.VizLegendOptions().show_legend(show_legend=True).placement(common_models.LegendPlacement.BOTTOM)
    panel = panel.legend(legend.display_mode(common_models.LegendDisplayMode.LIST))
    panel = panel.tooltip(
        common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI).sort(common_models.SortOrder.DESCENDING)
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL)).min(0)
    return panel if top is None else panel.min(0).max(top)


def figure(text: Text, query: Query, *, width: int = 4, limits: Sequence[tuple[float, str]] = ()) -> stat.Panel:
    """Return a panel with the last value; `limits` are thresholds of colors."""
    panel = _asking(_dressed(stat.Panel(), text, width, 4), [query])
    steps = [models.Threshold(value=None, color="text" if not limits else "green")]
    steps += [models.Threshold(value=value, color=color) for value, color in limits]
    return (
        panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
        .color_mode(common_models.BigValueColorMode.VALUE)
        .graph_mode(common_models.BigValueGraphMode.AREA)
    )


def heat(
    text: Text, query: Query, *, top: float | None = None, width: int = 24, height: int = 10
) -> statushistory.Panel:
    """Return a heat map with a row for each series, such as a rank, colored by its value."""
    panel = _asking(_dressed(statushistory.Panel(), text, width, height), [query])
    colors = dashboard.FieldColor().mode(models.FieldColorModeId.CONTINUOUS_BL_YL_RD)
    panel = (
        panel.color_scheme(colors).show_value(common_models.VisibilityMode.NEVER).max_data_points(HEAT_POINTS).min(0)
    )
    panel = panel.line_width(1).fill_opacity(70)
    return panel if top is None else panel.max(top)


def timeline(text: Text, query: Query, *, width: int = 24, height: int = 5) -> statetimeline.Panel:
    """Return a timeline with a band for each series while it is 1."""
    panel = _asking(_dressed(statetimeline.Panel(), text, width, height), [query])
    shown = models.ValueMap(
        options={
            "0": models.ValueMappingResult(text=" ", color="transparent"),
            "1": models.ValueMappingResult(text=" ", color="blue"),
        }
    )
    panel = panel.line_width(1).fill_opacity(70)
    return panel.mappings([shown]).merge_values(merge_values=True).show_value(common_models.VisibilityMode.NEVER)


@dataclass(frozen=True)
class Column:
    """A column of a table that has a row for each job."""

    title: str
    expr: str
    unit: str = "short"


def jobs_table(text: Text, columns: Sequence[Column], link: str) -> table.Panel:
    """Return a table with a row for each job, whose name is a link."""
    panel = _dressed(table.Panel(), text, WIDTH, 9).align(common_models.FieldTextAlignment.AUTO).inspect(inspect=False)
    for letter, column in zip(ascii_uppercase, columns, strict=False):
        query = prometheus.Dataquery().expr(from_scrapes(column.expr)).ref_id(letter).instant().datasource(SOURCE)
        panel = panel.with_target(query.format(prometheus_models.PromQueryFormat.TABLE))
    titles = {f"Value #{letter}": column.title for letter, column in zip(ascii_uppercase, columns, strict=False)}
    names = {"rljob": "RLJob", "rljob_namespace": "Namespace"}
    order = {name: place for place, name in enumerate([*names, *titles])}
    panel = panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    panel = panel.with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names | titles},
        )
    )
    for column in columns:
        panel = panel.override_by_name(column.title, [models.DynamicConfigValue(id_val="unit", value=column.unit)])
    target = [{"title": "Open the job", "url": link}]
    return panel.override_by_name("RLJob", [models.DynamicConfigValue(id_val="links", value=target)])


def _dressed(panel: P, text: Text, width: int, height: int) -> P:
    """Set the properties that every panel has."""
    panel = panel.title(text.title).description(text.about).unit(text.unit).no_value(text.empty)
    return panel.datasource(SOURCE).span(width).height(height)


def _asking(panel: P, queries: Sequence[Query]) -> P:
    for letter, query in zip(ascii_uppercase, queries, strict=False):
        asked = prometheus.Dataquery().expr(from_scrapes(query.expr)).legend_format(query.legend).ref_id(letter).range()
        panel = panel.with_target(asked.datasource(SOURCE))
    return panel


def _number(panels: Sequence[models.Panel | models.RowPanel]) -> None:
    """Assign fixed panel numbers, so that links to a panel stay valid."""
    number = 0
    for panel in panels:
        number += 1
        panel.id_val = number
        for folded in panel.panels if isinstance(panel, models.RowPanel) else ():
            number += 1
            folded.id_val = number


# Variables, links, annotations.


def variable(
    name: str, label: str, selector: str, values_of: str, *, several: bool = True
) -> Builder[models.VariableModel]:
    """Return a variable that selects values of a label.

    Several values or all can be selected, or one if the dashboard is about a single job.
    """
    made = (
        dashboard.QueryVariable(name)
        .label(label)
        .query(f"label_values({from_scrapes(selector)}, {values_of})")
        .datasource(SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(several)
        .include_all(several)
    )
    return made.current(models.VariableOption(text="All", value="$__all")) if several else made


def _data_source() -> Builder[models.VariableModel]:
    return dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _links() -> Builder[models.DashboardLink]:
    """Return links to the other dashboards, with the same job and time range."""
    return (
        dashboard.DashboardLink("RLJob")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(as_dropdown=False)
        .include_vars(include_vars=True)
        .keep_time(keep_time=True)
    )


class PrometheusAnnotation(models.AnnotationQuery):
    """An annotation with the fields that Grafana's Prometheus data source adds to the schema.

    They are those of its `AnnotationQueryEditor`.
    """

    title_format: str
    text_format: str
    value_is_time: bool

    def to_json(self) -> dict[str, object]:
        """Return the JSON."""
        added = {"titleFormat": self.title_format, "textFormat": self.text_format, "step": "15s", "tagKeys": "rljob"}
        return {**super().to_json(), **added, "useValueForTime": self.value_is_time}


@dataclass
class Mark(Builder[models.AnnotationQuery]):
    """A vertical line in every panel, where the expression is above 0 or at the time in ms that it returns."""

    name: str
    expr: str
    title: str
    color: str
    text: str = "{{rljob_namespace}}/{{rljob}}"
    value_is_time: bool = False

    def build(self) -> models.AnnotationQuery:
        """Return the annotation."""
        made = PrometheusAnnotation(
            name=self.name, datasource=SOURCE, enable=True, icon_color=self.color, expr=from_scrapes(self.expr)
        )
        made.title_format, made.text_format, made.value_is_time = self.title, self.text, self.value_is_time
        return made
