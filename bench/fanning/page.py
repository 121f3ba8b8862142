"""Tables that fit 80 columns, and below them what none has a column for."""
import statistics

HEAD = ("server", "delivered", "lost", "p50 ms", "p99 ms", "ns/msg", "ratio", "late", "after", "MiB")
WIDTHS = (10, 12, 9, 8, 8, 7, 6, 7, 7, 6)
ABOUT = """lost: of all rounds. ms: from publish to delivery. ns/msg: server CPU for a delivered
message, and its ratio to the first row, by round. late: the most, in ms, that a
line was written after it was due. after: ms from the end of pace, or of nothing
in a burst, to the last delivery. MiB: how the server's memory grew. closed:
descriptors that the server no longer has, of those that stalled."""


def median(runs, key):
    values = [run[key] for run in runs if run[key] is not None]
    return statistics.median(values) if values else None


def number(value, digits=0):
    """With no more digits than have a meaning, and than the width of a column has room for."""
    if value is None:
        return "-"
    for power, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= max(power, 10_000):
            return number(value / power, 1) + letter
    return f"{value:,.{0 if value >= 100 else min(digits, 1) if value >= 10 else digits}f}"


def ratio(runs, base, key):
    """The median of what each round says."""
    found = [mine[key] / other[key] for mine, other in zip(runs, base) if mine and other and mine[key] and other[key]]
    return statistics.median(found) if found else None


def row(cells, widths=WIDTHS):
    return cells[0].ljust(widths[0]) + "".join(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))


def main_table(shape, rounds):
    yield shape.title()
    yield row(HEAD)
    base = next(iter(rounds.values()), [])
    for name, all_runs in rounds.items():
        runs = [run for run in all_runs if run]
        if runs:
            yield row([name, f"{median(runs, 'delivered'):,.0f}", number(sum(run["lost"] for run in runs)), number(median(runs, "p50_ms"), 2),
                       number(median(runs, "p99_ms"), 2), number(median(runs, "cpu_ns")), number(ratio(all_runs, base, "cpu_ns"), 2),
                       number(median(runs, "late_ms"), 1), number(median(runs, "after_ms"), 0),
                       number(median(runs, "grown_bytes") / 2**20, 1)])


def stalled_table(without, those):
    """What stalled subscribers do to the others and to the server's memory."""
    widths = (12, 11, 11, 8, 11, 11, 10)
    yield row(("", "p99 ms", "stalled", "ratio", "MiB", "stalled", "closed"), widths)
    for name, runs in those.items():
        before, after = [run for run in without[name] if run], [run for run in runs if run]
        if before and after:
            yield row([name, number(median(before, "p99_ms"), 2), number(median(after, "p99_ms"), 2),
                       number(ratio(runs, without[name], "p99_ms"), 2), number(median(before, "grown_bytes") / 2**20, 1),
                       number(median(after, "grown_bytes") / 2**20, 1), number(median(after, "closed_by_server"))], widths)


def remarks(name, place, run):
    """What is not as it should be."""
    said = [f"{run[key]:,} {words}" for key, words in (
        ("lost", "lost"), ("disorder", "out of order"), ("wrong", "bytes wrong"), ("closed", "subscribers closed"),
        ("unsent", "lines never written"), ("pending", f"still to come after {run['seconds']:.0f} s")) if run[key]]
    said += [words for key, words in (
        ("over_memory", "ended: more memory than --memory-limit"), ("publisher_failed", "the publisher was closed"),
        ("silent", "nothing came for 30 s: what was not delivered counts as lost")) if run[key]]
    if run["client_cpu_seconds"] > 0.9 * run["seconds"] > 0.09:
        said.append(f"the client was busy for {run['client_cpu_seconds'] / run['seconds']:.0%} of the time")
    return [f"{name}, round {place}: {', '.join(said)}"] if said else []


def text(found):
    """`found`: of each shape, the runs of each server, None for one that failed."""
    lines = []
    for shape, rounds in found.items():
        lines += main_table(shape, rounds)
        notes = [line for name, runs in rounds.items() for place, run in enumerate(runs, 1) if run for line in remarks(name, place, run)]
        lines += notes or ["nothing lost, wrong or out of order"]
        without = next((other for key, other in found.items() if shape.stalled and key.mode == shape.mode and not key.stalled), None)
        if without:
            lines += ["", *stalled_table(without, rounds)]
        lines.append("")
    return "\n".join(lines + [ABOUT])
