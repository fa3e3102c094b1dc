#!/usr/bin/env python3
"""Runs the examples of README.md and docs/tutorial.md, and puts what they print into the pages.

An example is a fenced block after a line `<!-- example -->`. Its lines that begin with `$ ` are
commands. One shell runs the commands of a page in order, beginning in the repository's folder, with
this tree's rpcprobe first on the PATH. Their output replaces the block's other lines, except the
line that names the machine, with `~/rpcprobe` for this folder. `<!-- example: first=20 -->` keeps
the first 20 lines of each command's output. Captures in the examples' folders are removed before
and after.

With --check nothing is run. It is an error if a block with a command of rpcprobe is not an example
(Markdown lists of commands without output do not count), or if an example names a subcommand that
does not exist.

Usage: run.py [--check] [PAGE ...]. Needs root, redis-server with redis-tools, mkfs.ext4; RPCPROBE names the program.
Exit status: 0 if all commands succeeded (or all blocks are examples), else 1.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/tutorial.md")
RPCPROBE = Path(os.environ.get("RPCPROBE") or ROOT / "userspace/target/release/rpcprobe").resolve()
BLOCK = re.compile(
    r"(?:<!-- example(?P<options>[^\n]*) -->\n)?^```(?P<language>[^\n]*)\n(?P<body>.*?)^```$",
    re.M | re.S,
)
FIRST = re.compile(r"first=(\d+)")
COMMAND = re.compile(r"(?:^|[\s/])rpcprobe ([a-z]+)")
HOST = re.compile(r" x86_64 · \d+ CPUs · ")
CAPTURES = [
    f"{folder}/rpcprobe.{what}*"
    for folder in ("targets/frpc", "targets/echo", "experiments/examples")
    for what in ("out", "ab")
]
DONE = "-- the command has ended with"


class Shell:
    """Runs the commands of a page, one after the other."""

    def __init__(self):
        path = os.pathsep.join([str(RPCPROBE.parent), os.environ["PATH"]])
        environment = os.environ | {"PATH": path, "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=environment,
            text=True,
        )
        # sudo sets its own PATH.
        self.run(
            'sudo() { if [ "$(id -u)" = 0 ]; then "$@"; else command sudo env PATH="$PATH" "$@"; fi; }'
        )

    def run(self, command):
        """Runs a command; returns its output and exit status."""
        self.process.stdin.write(f"{command}\necho; echo '{DONE}' $?\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.startswith(DONE):
                break
            if not HOST.search(line):
                lines.append(line.rstrip().replace(str(ROOT), "~/rpcprobe"))
        else:
            raise RuntimeError(f"the shell ended in: {command}")
        while lines and not lines[-1]:
            lines.pop()
        return lines, int(line.split()[-1])

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


def commands(body):
    """The commands of an example; after a backslash, a command continues in the next line."""
    found, more = [], False
    for line in body.splitlines():
        if more:
            found[-1] += "\n" + line
        elif line.startswith("$ "):
            found.append(line[2:])
        else:
            continue
        more = line.endswith("\\")
    return found


def shown(block, shell, failed):
    """The block with the present output of its commands."""
    options = block["options"]
    if options is None:
        return block[0]
    first = FIRST.search(options)
    lines = []
    for command in commands(block["body"]):
        print(f"$ {command}", flush=True)
        printed, status = shell.run(command)
        if status != 0:
            failed.append(f"exit status {status}: {command}\n" + "\n".join(printed[-5:]))
        if first and len(printed) > int(first[1]):
            printed = [*printed[: int(first[1])], "..."]
        lines += [f"$ {command}", *printed]
    body = "\n".join(lines)
    return f"<!-- example{options} -->\n```{block['language']}\n{body}\n```"


def remove_captures():
    for capture in (path for captures in CAPTURES for path in ROOT.glob(captures)):
        shutil.rmtree(capture)


def regenerate(page):
    remove_captures()
    text, shell, failed = (ROOT / page).read_text(), Shell(), []
    try:
        new = BLOCK.sub(lambda block: shown(block, shell, failed), text)
    finally:
        shell.end()
        remove_captures()
    if not failed:
        (ROOT / page).write_text(new)
    return failed


def check(page):
    """The errors in a page's blocks."""
    subcommands = set(
        re.findall(r"^  ([a-z]+) ", subprocess.check_output([RPCPROBE, "--help"], text=True), re.M)
    )
    wrong = []
    for block in BLOCK.finditer((ROOT / page).read_text()):
        if block["options"] is None and re.search(r"^\s*\$ .*rpcprobe", block["body"], re.M):
            wrong.append(f"{page}: no example: {block['body'].splitlines()[0]}")
        for command in commands(block["body"]):
            for named in COMMAND.findall(command):
                if named not in subcommands:
                    wrong.append(f"{page}: rpcprobe has no {named}: {command}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    options = parser.parse_args()
    failed = []
    for page in options.pages or PAGES:
        failed += check(page) if options.check else regenerate(page)
    for failure in failed:
        print(f"run.py: {failure}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
