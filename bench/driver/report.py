"""What is written: a table, JSON, a chart."""
import json
import os

from . import written
from .chart import chart
from .paths import PUBLISHED, PUBLISHED_CHART, PUBLISHED_JSON
from .written import save


def whole(value):
    return f"{round(value):,}"


def number(value):
    """Three digits that count, with thousands apart."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def three(spread, scale=1, form=number):
    if spread is None:
        return "-"
    return " / ".join(form(spread[key] * scale) for key in ("min", "median", "max"))


def ratio(figures, reference):
    """The median of the ratios of each round to that server."""
    found = figures["ratios"].get(reference)
    return f"{found['median']:.2f}" if found else "-"


def ordered(row):
    """The floor, ours, then the others, the nearest to the floor first."""
    servers = row["servers"]
    fixed = [name for name in ("floor", "again", "sockdrawer") if name in servers]
    rest = [name for name in servers if name not in fixed]
    return fixed + sorted(rest, key=lambda name: servers[name]["cost"]["median"])


def overview(results, titles):
    """What all have, in one table, by the medians."""
    rows = [row for row in results["rows"] if not row["model"]]
    lines = ["| | " + " | ".join(row["title"] for row in rows) + " |", "| --- |" + " ---: |" * len(rows)]
    for peer in results["peers"]:
        cells = []
        for row in rows:
            figures = row["servers"].get(peer["name"])
            if figures is None:
                cells.append("-")
            elif row["idle"]:
                cells.append(f"{whole(figures['cost']['median'])} B")
            else:
                cells.append(f"{figures['ratio']['median']:.2f}")
        lines.append(f"| {emphasis(peer['name'], titles)} | " + " | ".join(cells) + " |")
    return lines


def emphasis(name, titles):
    return f"**{titles[name]}**" if name == "sockdrawer" else titles[name]


def table(row, titles):
    lines = [f"### {row['title']}", ""]
    if row["idle"]:
        lines += ["| | bytes of user memory per connection |", "| --- | ---: |"]
        lines += [f"| {emphasis(name, titles)} | {three(row['servers'][name]['cost'], form=whole)} |" for name in ordered(row)]
        return lines + [""]
    scale, unit = (1000, "ns") if row["operation"] == "message" else (1, "µs")
    lines += [f"| | CPU per {row['operation']}, {unit} | × floor | {row['operation']}s/s | p99, µs |",
              "| --- | ---: | ---: | ---: | ---: |"]
    for name in ordered(row):
        figures = row["servers"][name]
        ratio = " / ".join(f"{figures['ratio'][key]:.3f}" for key in ("min", "median", "max"))
        lines.append(f"| {emphasis(name, titles)} | {three(figures['cost'], scale)} | {ratio} | {three(figures['rate'])} | "
                     f"{three(figures['p99_us'])} |")
    return lines + [""]


def markdown(results):
    titles = {peer["name"]: peer["title"] for peer in results["peers"]}
    machine = results["machine"]
    lines = [f"{results['date']}, {machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
             f"Linux {machine['kernel']}, commit {machine['commit']}; {results['rounds']} rounds of {results['seconds']:g} s.", ""]
    if any(not row["model"] for row in results["rows"]):
        lines += ["Server CPU per operation as a multiple of the floor's, and bytes per idle connection:", "",
                  *overview(results, titles), ""]
    lines += ["All figures are min / median / max of the rounds.", ""]
    for row in results["rows"]:
        lines += table(row, titles)
    lines += ["### Versions", "", "| | what is measured | version |", "| --- | --- | --- |"]
    lines += [f"| {peer['title']} | {peer['about']} | {peer['version']} |" for peer in results["peers"]]
    lines += [""]
    lines += [f"Skipped: {skipped['peer']}, {skipped['why']}." for skipped in results["skipped"]]
    lines += [f"Failed: {failure['row']}, {failure['why']}." for failure in results["failures"]]
    return "\n".join(lines).rstrip() + "\n"


def write(folder, results):
    save(os.path.join(folder, "results.md"), markdown(results))
    save(os.path.join(folder, "results.json"), json.dumps(results, indent=1) + "\n")
    save(os.path.join(folder, "chart.svg"), chart(results))


def publish(results):
    written.publish(PUBLISHED, "bench/run", markdown(results))
    save(PUBLISHED_JSON, json.dumps(results, indent=1) + "\n")
    save(PUBLISHED_CHART, chart(results))
