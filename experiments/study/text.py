"""RESULTS.md: formats of numbers, tables, and the document itself."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

HEADS = ("", "reported", "ours", "attributed to")


def ns(value: float) -> str:
    """A time with three digits in the unit that fits: `1.23 ms`."""
    sign, size = "-" if value < 0 else "", abs(value)
    for unit, scale in (("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9)):
        scaled = size / scale
        decimals = 0 if unit == "ns" else 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
        if round(scaled, decimals) < 1000 or unit == "s":
            return f"{sign}{scaled:.{decimals}f} {unit}"
    raise AssertionError


def us(value_ns: float, decimals: int = 1) -> str:
    return f"{value_ns / 1e3:,.{decimals}f} us"


def more(value_ns: float, decimals: int = 1) -> str:
    """A difference in words: `1.2 us more`, or `1.2 us less` if it is negative."""
    return f"{us(abs(value_ns), decimals)} {'less' if value_ns < 0 else 'more'}"


def ms(value_ns: float, decimals: int = 3) -> str:
    return f"{value_ns / 1e6:,.{decimals}f} ms"


def percent(share: float, decimals: int = 1, sign: bool = False) -> str:
    return f"{share * 100:{'+' if sign else ''}.{decimals}f} %"


def spread(runs_ns: Sequence[float]) -> str:
    """Median, minimum and maximum of one time per run."""
    return f"{ns(median(runs_ns))} ({ns(min(runs_ns))} to {ns(max(runs_ns))})"


class Document:
    """A Markdown document, paragraph by paragraph, and the figures that it shows."""

    def __init__(self, title: str):
        self.blocks = [f"# {title}"]
        self.figures: dict[str, object] = {}

    def head(self, text: str):
        self.blocks.append(f"## {text}")

    def say(self, text: str):
        """Adds a paragraph; `text` may have several lines with any indentation."""
        self.blocks.append(" ".join(text.split()))

    def points(self, texts: Sequence[str]):
        self.blocks.append("\n".join(f"- {' '.join(text.split())}" for text in texts))

    def code(self, text: str):
        self.blocks.append(f"```\n{text.rstrip()}\n```")

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], right: int = 1):
        """Adds a table; columns from `right` on are right-aligned."""
        rule = ["---" if column < right else "---:" for column in range(len(heads))]
        lines = [heads, rule, *rows]
        self.blocks.append("\n".join("| " + " | ".join(line) + " |" for line in lines))

    def compared(self, rows: Sequence[Sequence[str]]):
        """Adds the table *reported | ours | attributed to*."""
        self.table(HEADS, rows, right=len(HEADS))

    def show(self, name: str, figure, what: str):
        """Adds a plotly figure, written to figures/NAME.svg and figures.html."""
        what = " ".join(what.split())
        self.figures[name] = figure
        self.blocks.append(f"![{what}](figures/{name}.svg)\n\n*{what}*")

    def text(self) -> str:
        return "\n\n".join(self.blocks) + "\n"

    def write(self, path: Path):
        path.write_text(self.text())
