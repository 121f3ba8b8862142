"""Line charts, a panel for each: x by powers of ten, y from zero."""
import math

from .chart import STYLE, line, text

WIDTH, PANEL, TALL, ACROSS = 1020, 340, 250, 3
LEFT, RIGHT, TOP, BOTTOM = 44, 66, 46, 40
LINES = STYLE + """
.axis { stroke: #57606a; stroke-width: 1; } .grid { stroke: #d0d7de; stroke-width: 0.6; }
.s0 { stroke: #1f77b4; } .s1 { stroke: #c2410c; } .s2 { stroke: #2e7d32; } .s3 { stroke: #7b3fa0; }
.curve { fill: none; stroke-width: 2; } .dot { fill: #ffffff; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  .axis { stroke: #9198a1; } .grid { stroke: #3d444d; } .dot { fill: #0d1117; }
  .s0 { stroke: #58a6ff; } .s1 { stroke: #f0883e; } .s2 { stroke: #56d364; } .s3 { stroke: #bc8cff; }
}
"""


def short(value):
    """1000 as 1k."""
    for power, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= power and value % power == 0:
            return f"{value // power:.0f}{letter}"
    return f"{value:g}"


def steps(most):
    """Round numbers from zero to at least the most, four or five of them."""
    raw = most / 4
    unit = 10 ** math.floor(math.log10(raw))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= raw)
    return [step * place for place in range(math.ceil(most / step) + 1)]


def apart(wanted, least=12):
    """Heights as near as can be to those wanted, and none nearer to another than a line of text."""
    placed = {}
    for name, height in sorted(wanted.items(), key=lambda item: item[1]):
        placed[name] = max(height, max(placed.values(), default=-math.inf) + least)
    return placed


def axes(panel, across, up, ticks):
    right, bottom = across(panel["x"][-1]), up(0)
    parts = []
    for tick in ticks:
        parts += [line(across(panel["x"][0]), up(tick), right, up(tick), "grid" if tick else "axis"),
                  text(across(panel["x"][0]) - 8, up(tick) + 4, f"{tick:g}", "note", "end")]
    for x in panel["x"]:
        parts += [line(across(x), bottom, across(x), bottom + 4, "axis"), text(across(x), bottom + 17, short(x), "note", "middle")]
    middle = (across(panel["x"][0]) + right) / 2
    return [*parts, text(middle, bottom + 32, panel["across"], "note", "middle")]


def curve(place, points, across, up):
    path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
    dots = [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" class="dot s{place}"/>' for x, y in points]
    return [f'<polyline points="{path}" class="curve s{place}"/>', *dots]


def drawn(panel, x, y):
    """A panel: title, unit, what stands across, x in order, series by name as pairs of x and y."""
    least, most = math.log10(panel["x"][0]), math.log10(panel["x"][-1])
    ticks = steps(max(value for points in panel["series"].values() for _, value in points))

    def across(value):
        return x + LEFT + (math.log10(value) - least) / (most - least) * (PANEL - LEFT - RIGHT)

    def up(value):
        return y + TOP + (1 - value / ticks[-1]) * (TALL - TOP - BOTTOM)

    parts = [text(x, y + 14, panel["title"], "title"), text(x, y + 30, panel["unit"], "note"), *axes(panel, across, up, ticks)]
    ends = apart({name: up(points[-1][1]) + 4 for name, points in panel["series"].items()})
    for place, (name, points) in enumerate(panel["series"].items()):
        parts += [*curve(place, points, across, up), text(across(points[-1][0]) + 9, ends[name], name)]
    return "\n".join(parts)


def chart(title, panels, foot):
    height = -(-len(panels) // ACROSS) * TALL + 24
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
             f"<title>{title}</title>", f"<style>{LINES}</style>"]
    for place, panel in enumerate(panels):
        parts.append(drawn(panel, place % ACROSS * PANEL, place // ACROSS * TALL))
    return "\n".join([*parts, text(0, height - 8, foot, "note"), "</svg>"]) + "\n"
