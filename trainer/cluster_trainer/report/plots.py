"""Draws SVG inside a page, with the page's colours of text and axes."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cluster_trainer.report.timeline import (
    DONE,
    FAILED,
    KILLED,
    RESTARTING,
    RESUMED,
    SILENT,
    STARTING,
    STOPPED,
    WAITING,
    WorkerTime,
)

INK = "#010203"  # becomes the page's colour of text
# Readable on white and on black.
COLOURS = (
    *("#2f7fd1", "#e07b26", "#38a169", "#d1495b", "#8f6fd1", "#a8793f", "#d166a8", "#7d8794"),
    *("#17a2b8", "#b8a617"),
)
STATES = {
    WAITING: ("waiting at the gate", "#d9a400"),
    STARTING: ("starting", "#8a929c"),
    "running": ("the script, outside of fit", "#a8793f"),
    "training": ("training", "#2f7fd1"),
    "evaluating": ("evaluating", "#38a3a5"),
    "saving": ("saving the model", "#8f6fd1"),
    RESTARTING: ("pause before a restart", "#d1495b"),
    "stopping": ("stopping", "#b07d62"),
}
CHECKPOINT = "checkpoint"
MARKS = {
    KILLED: ("killed: no end recorded", "X", "#d1495b"),
    RESTARTING: ("crashed or lost a peer", "x", "#d1495b"),
    FAILED: ("failed", "s", "#d1495b"),
    STOPPED: ("stopped", "s", "#d9a400"),
    RESUMED: ("resumed", "^", "#38a169"),
    DONE: ("done", "o", "#38a169"),
    SILENT: ("no word since", ">", "#8a929c"),
    CHECKPOINT: ("checkpoint", "|", "#e07b26"),
}
SMALL, WIDE = (3.6, 2.3), (6.6, 1.0)  # inches of 72 units, which are pixels at the least
MINUTE, HOUR, FEW = 60.0, 3600.0, 3.0
MAX_NUMBERED = 12
WHOLE_NUMBERS = ("epoch", "step", "fit")
MAX_LEGEND = 8
MAX_POINTS = 400
"""The number of points of a curve, as many as a small drawing can show."""
HALF = 0.5
SETTINGS: Mapping[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cluster-trainer",
    "font.size": 9,
    "font.family": "sans-serif",
    "text.parse_math": False,  # names are the user's, and may have dollars
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
}
Series = tuple[str, Sequence[float], Sequence[float | None], bool]


def lines(series: Sequence[Series], along: str, *, from_zero: bool = False) -> str:
    """Draw curves over `along`; a series has a name, places, values, and whether it is dashed."""
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=SMALL)
        axes = figure.subplots()
        for index, (name, places, values, is_dashed) in enumerate(series):
            shown = [*range(0, len(values) - 1, -(-len(values) // MAX_POINTS)), len(values) - 1]
            heights = np.array(values, float)[shown]  # None becomes NaN, at which a curve breaks
            few = len(heights) <= MAX_NUMBERED
            style = {"linestyle": "--" if is_dashed else "-", "marker": "." if few else None}
            colour = COLOURS[index % len(COLOURS)]
            along_axis = np.array(places)[shown]
            axes.plot(along_axis, heights, color=colour, label=_shown(name), **style)
        axes.set_xlabel(along)
        if along in WHOLE_NUMBERS:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        if from_zero:
            axes.set_ylim(bottom=0)
        if 1 < len(series) <= MAX_LEGEND:
            axes.legend()
        return _svg(figure)


def timeline(named: Sequence[tuple[str, WorkerTime, Sequence[float]]]) -> str:
    """Draw each worker's timeline, from its name, its time, and the times of its checkpoints."""
    began = min(span.begin for _, line, _ in named for span in line.spans)
    ended = max(span.end for _, line, _ in named for span in line.spans)
    size, unit = unit_of(ended - began)
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDE[0], WIDE[1] + 0.42 * len(named)))
        axes = figure.subplots()
        shown: dict[str, Any] = {}
        for row, (_, line, checkpoints) in enumerate(named):
            others = {span.state: (span.state, COLOURS[-1]) for span in line.spans}
            for state, (label, colour) in (others | STATES).items():
                bars = [
                    ((span.begin - began) / size, span.seconds / size)
                    for span in line.spans
                    if span.state == state
                ]
                if bars:
                    drawn = axes.broken_barh(bars, (row - 0.3, 0.6), facecolor=colour)
                    shown.setdefault(label, drawn)
            marks = [(mark.kind, mark.time) for mark in line.marks]
            marks += [(CHECKPOINT, time) for time in checkpoints]
            for kind, (label, shape, colour) in MARKS.items():
                times = [(time - began) / size for one, time in marks if one == kind]
                height = row + 0.42 if kind == CHECKPOINT else row
                edge = {} if shape in "x|" else {"markeredgecolor": "white", "markeredgewidth": 0.6}
                if times:
                    (drawn,) = axes.plot(
                        times,
                        [height] * len(times),
                        linestyle="",
                        marker=shape,
                        markersize=4 if kind == CHECKPOINT else 8,
                        color=colour,
                        **edge,
                    )
                    shown.setdefault(label, drawn)
        axes.set_yticks(range(len(named)), [_shown(name) for name, _, _ in named])
        axes.set_ylim(len(named) - 0.4, -0.6)
        axes.set_xlabel(f"{unit} since the start")
        axes.grid(visible=False, axis="y")
        figure.legend(shown.values(), shown.keys(), loc="outside upper left", ncols=4)
        return _svg(figure)


def bars(named: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Draw the parts of each worker's time, in seconds, beside each other."""
    parts = list(dict.fromkeys(part for _, seconds in named for part in seconds))
    size, unit = unit_of(max((sum(seconds.values()) for _, seconds in named), default=0.0))
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDE[0], WIDE[1] + 0.42 * len(named)))
        axes = figure.subplots()
        left = np.zeros(len(named))
        for index, part in enumerate(parts):
            widths = np.array([seconds.get(part, 0.0) for _, seconds in named]) / size
            colour = COLOURS[index % len(COLOURS)]
            axes.barh(range(len(named)), widths, 0.6, left, color=colour, label=_shown(part))
            left += widths
        axes.set_yticks(range(len(named)), [_shown(name) for name, _ in named])
        axes.set_ylim(len(named) - 0.4, -0.6)
        axes.set_xlabel(unit)
        axes.grid(visible=False, axis="y")
        figure.legend(loc="outside upper left", ncols=4)
        return _svg(figure)


def matrix(counts: Sequence[Sequence[int]], names: Sequence[str]) -> str:
    """Draw a confusion matrix; each row is shaded by the share of its class."""
    table = np.asarray(counts, float)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    shades = np.zeros((*shares.shape, 4))
    shades[..., :3] = mpl.colors.to_rgb(COLOURS[0])
    shades[..., 3] = shares
    with mpl.rc_context({**SETTINGS, "axes.grid": False}):
        figure = Figure(figsize=(SMALL[0], SMALL[0] - 0.2))
        axes = figure.subplots()
        axes.imshow(shades, interpolation="nearest")
        if len(names) <= MAX_NUMBERED:
            for row, column in np.argwhere(table > 0):
                colour = "white" if shares[row, column] > HALF else INK
                text = f"{table[row, column]:.0f}"
                axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=7)
        if len(names) <= 2 * MAX_NUMBERED:
            labels = [_shown(name) for name in names]
            is_long = max(map(len, labels)) > FEW
            axes.set_xticks(range(len(names)), labels, rotation=90 if is_long else 0)
            axes.set_yticks(range(len(names)), labels)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
        return _svg(figure)


def unit_of(seconds: float) -> tuple[float, str]:
    """Return a unit for a duration: the unit's length in seconds, and its name."""
    if seconds > FEW * HOUR:
        return HOUR, "hours"
    return (MINUTE, "minutes") if seconds > FEW * MINUTE else (1.0, "seconds")


def _shown(name: str) -> str:
    """Return a printable name; matplotlib would hide a name that begins with `_`."""
    clean = "".join(letter if letter.isprintable() else "?" for letter in name)
    return f" {clean}" if clean.startswith("_") else clean


def _svg(figure: Figure) -> str:
    figure.set_layout_engine("constrained")
    FigureCanvasSVG(figure)
    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    text = file.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    return re.sub(r"font: ([0-9.]+px) 'sans-serif'[^;\"]*", r"font: \1 sans-serif", text)
