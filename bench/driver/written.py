"""Files that a run leaves."""
import os

from .failure import Failure
from .paths import relative

END = "<!-- to here -->"


def save(path, text):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def publish(path, program, text):
    """Puts the text where the page says that this program writes, in the place of what is there."""
    begin_line = f"<!-- {program} --publish writes from here -->"
    with open(path) as file:
        before, begin, rest = file.read().partition(begin_line)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise Failure(f"{relative(path)} lacks the lines between which results stand: {begin_line} and {END}")
    save(path, f"{before}{begin}\n\n{text}\n{end}{after}")
