"""On what was measured."""
import os
import platform
import subprocess

from .paths import ROOT


def first(path, key):
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(key):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "?"


def commit():
    """What of this repository was measured."""
    def git(*arguments):
        try:
            done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return ""
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "--short=12", "HEAD") or "?") + (" with changes" if changed else "")


def virtual():
    return " (virtual)" if " hypervisor" in first("/proc/cpuinfo", "flags") else ""


def machine():
    return {
        "cpu": first("/proc/cpuinfo", "model name") + virtual(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "commit": commit(),
    }
