"""The chart and the tables of a run."""
import statistics

from driver import lines

from .connections import CONNECTIONS, LOOPS, LOOPS_CONNECTIONS, SIZES


def us(point):
    return statistics.median(point["us"])


def by_size_panels(points):
    for size, words in SIZES.items():
        mine = [(point["connections"], us(point)) for point in points if point["size"] == size]
        yield {"title": f"Echo of {words}", "unit": "server CPU, µs", "across": "connections", "x": CONNECTIONS,
               "series": {f"{mine[-1][1]:.1f}": mine}}


def loops_panels(points):
    series = {f"{loops} loop{'s' * (loops > 1)}": [(point["connections"], us(point)) for point in points if point["loops"] == loops]
              for loops in LOOPS}
    yield {"title": "Loops, echo of 4 bytes", "unit": "server CPU, µs", "across": "connections", "x": LOOPS_CONNECTIONS, "series": series}


def generations_panels(points):
    mine = [(point["generations"], point["echo_us"]) for point in points]
    yield {"title": "Generations, echo of 4 bytes", "unit": "CPU of the loop, µs", "across": "generations with live connections",
           "x": [x for x, _ in mine], "series": {f"{mine[-1][1]:.1f}": mine}}


def timers_panels(points):
    series = {name: [(point["timers"], point[f"{name}_ns"]) for point in points] for name in ("set", "move", "clear", "fire")}
    yield {"title": "A timer among many", "unit": "time, ns", "across": "armed timers", "x": [x for x, _ in series["set"]],
           "series": series}


PANELS = {"connections": by_size_panels, "loops": loops_panels, "generations": generations_panels, "timers": timers_panels}


def chart(results):
    panels = [panel for part, make in PANELS.items() if part in results for panel in make(results[part])]
    machine = results["machine"]
    return lines.chart("What an operation costs the server as connections, sizes, loops, generations and timers grow", panels,
                       f"Less is better. {machine['cores']} CPUs, {machine['cpu']}, Linux {machine['kernel']}, {results['date']}.")


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def cell(points, **wanted):
    found = [us(point) for point in points if all(point[key] == value for key, value in wanted.items())]
    return f"{found[0]:.2f}" if found else "-"


def origins(results):
    """Of when and of what the parts are, which need not be one run."""
    parts = [part for part in PANELS if part in results]
    those = {part: results.get("origins", {}).get(part, "of an earlier run") for part in parts}
    if len(set(those.values())) == 1:
        return those[parts[0]]
    return "; ".join(f"{part}: {origin}" for part, origin in those.items())


def markdown(results):
    parts = []
    if points := results.get("connections"):
        head = ["server CPU for an echo, µs", *(f"{count:,}" for count in CONNECTIONS)]
        parts += table(head, [[words, *(cell(points, size=size, connections=count) for count in CONNECTIONS)] for size, words in SIZES.items()])
    if points := results.get("loops"):
        head = ["not pinned, µs", *(f"{count:,}" for count in LOOPS_CONNECTIONS)]
        parts += table(head, [[f"{loops} loop{'s' * (loops > 1)}", *(cell(points, loops=loops, connections=count) for count in LOOPS_CONNECTIONS)]
                              for loops in LOOPS])
    if points := results.get("generations"):
        parts += table(["generations", *(f"{point['generations']:.0f}" for point in points)],
                       [[f"{words}, µs", *(f"{point[key]:.{digits}f}" if point[key] else "-" for point in points)]
                        for words, key, digits in (("an echo", "echo_us", 2), ("a change", "change_us", 0))])
    if points := results.get("timers"):
        parts += table(["armed timers", *(f"{point['timers']:,.0f}" for point in points)],
                       [[f"{name}, ns", *(f"{point[f'{name}_ns']:.0f}" for point in points)] for name in ("set", "move", "clear", "fire")])
    machine = results["machine"]
    parts.append(f"{machine['cores']} CPUs of {machine['cpu']}, Linux {machine['kernel']}, {origins(results)}.\n")
    return "\n".join(parts)
