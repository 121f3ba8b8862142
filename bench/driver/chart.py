"""The chart: a panel for each row, a bar for each server from zero to its median, a whisker from min to max."""
from html import escape

PANELS_ACROSS = 3
WIDTH, LABEL, BAR, VALUE, GAP = 1020, 118, 150, 52, 20
LINE, HEAD, FOOT = 21, 38, 14
PANEL = LABEL + BAR + VALUE + GAP
MARGIN = 8
LONGEST = 4.0  # times the floor: what is longer is cut off, so that the others can be told apart
SHORT = {"floor": "C loop", "tokio": "tokio", "tokio-per-core": "tokio per core", "mio": "mio", "gnet": "gnet", "go-net": "Go net",
         "netty": "Netty", "ranch": "ranch", "sockdrawer": "sockdrawer"}
STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 13px; } .note { fill: #57606a; font-size: 11px; }
.ours { font-weight: 600; } .bar { fill: #a8b3bf; } .bar.best { fill: #1f77b4; }
.whisker { stroke: #424a53; stroke-width: 1.2; } .floor { stroke: #57606a; stroke-dasharray: 3 3; }
.cut { stroke: #ffffff; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .note { fill: #9198a1; } .bar { fill: #545d68; } .bar.best { fill: #58a6ff; }
  .whisker { stroke: #c9d1d9; } .floor { stroke: #9198a1; } .cut { stroke: #0d1117; }
}
"""


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1, y1, x2, y2, kind):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def bars(row):
    """Name and spread of what is drawn, the least first; the floor is the line at 1 where there is one."""
    key = "cost" if row["idle"] else "ratio"
    drawn = [(name, figures[key]) for name, figures in row["servers"].items() if name not in ("floor", "again") and figures[key]]
    return sorted(drawn, key=lambda bar: bar[1]["median"])


def cut(x, top):
    """Two strokes across the end of a bar that goes on."""
    return "".join(line(x - shift - 3, top + LINE - 3, x - shift + 3, top + 3, "cut") for shift in (8, 12))


def panel(row, x, y):
    drawn = bars(row)
    longest = max([1.0, *(spread["max"] for _, spread in drawn)])
    if not row["idle"]:
        longest = min(longest, LONGEST)
    left = x + LABEL

    def at(value):
        return left + min(max(0.0, value) / longest, 1.0) * BAR

    parts = [text(x, y + 14, row["title"], "title"),
             text(x, y + 29, "bytes of user memory" if row["idle"] else f"CPU per {row['operation']}, floor = 1", "note")]
    for place, (name, spread) in enumerate(drawn):
        top = y + HEAD + place * LINE
        middle = top + LINE / 2
        ours = name == "sockdrawer"
        parts += [text(left - 8, middle + 4, SHORT.get(name, name), "ours" if ours else "", "end"),
                  f'<rect x="{left}" y="{top + 4}" width="{at(spread["median"]) - left:.1f}" height="{LINE - 8}" rx="2" '
                  f'class="bar{" best" if ours else ""}"/>',
                  line(at(spread["min"]), middle, at(spread["max"]), middle, "whisker"),
                  cut(at(longest), top) if spread["max"] > longest else "",
                  text(at(spread["max"]) + 6, middle + 4,
                       f"{spread['median']:,.0f}" if row["idle"] else f"{spread['median']:.2f}", "ours" if ours else "")]
    if not row["idle"]:
        parts.append(line(at(1), y + HEAD, at(1), y + HEAD + len(drawn) * LINE, "floor"))
    return "\n".join(parts)


def chart(results):
    rows = [row for row in results["rows"] if not row["model"]]
    tall = HEAD + LINE * max([1, *(len(bars(row)) for row in rows)]) + FOOT
    down = -(-len(rows) // PANELS_ACROSS)
    height = down * tall + 24
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-MARGIN} {-MARGIN} {WIDTH + 2 * MARGIN} {height + 2 * MARGIN}" width="{WIDTH + 2 * MARGIN}" '
             f'height="{height + 2 * MARGIN}" role="img">',
             "<title>Server CPU per operation as a multiple of a C loop, and bytes per idle connection: less is better</title>",
             f"<style>{STYLE}</style>"]
    for place, row in enumerate(rows):
        parts.append(panel(row, place % PANELS_ACROSS * PANEL, place // PANELS_ACROSS * tall))
    machine = results["machine"]
    parts += [text(0, height - 8, f"Less is better. Bars: medians of {results['rounds']} rounds, lines: min to max, dashed: the floor. One CPU of "
                   f"{machine['cpu']}, Linux {machine['kernel']}, {results['date']}.", "note"), "</svg>"]
    return "\n".join(parts) + "\n"
