"""A capture: a directory that `rpcprobe run` or `rpcprobe attach` wrote."""

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from . import _figure, _filter, _program, _request_ids, _table
from ._error import Error
from ._filter import Filter
from ._sql import Database
from ._table import Table

if TYPE_CHECKING:
    import plotly.graph_objects

# The layout of captures that this version reads.
FORMAT_VERSION = 1
# TABLES are in every attributed capture, each with the columns that identify it. OPTIONAL are in some captures only.
TABLES = {
    "requests": {"request_id", "kind", "start_ns", "latency_ns", "complete"},
    "segments": {"request_id", "seq", "start_ns", "duration_ns", "category"},
}
OPTIONAL = ("threads", "stacks", "symbols")


class Capture:
    """One capture. Its columns are described in docs/schema.md; times are nanoseconds of CLOCK_MONOTONIC.

    Attributes:
        path: its directory.
        manifest: the contents of manifest.json: what was run, where and when, and which losses occurred.
    """

    def __init__(self, path: Path, manifest: Mapping[str, Any]) -> None:
        self.path = path
        self.manifest = manifest

    @functools.cached_property
    def requests(self) -> Table:
        """One row per request: `request_id`, `kind`, `method`, client and server, `complete`, `start_ns`, `latency_ns`,
        and one column per category with the nanoseconds spent in it (int64; they add up to the latency).

        Raises:
            Error: the file is damaged.
        """
        return self._read("requests")

    @functools.cached_property
    def segments(self) -> Table:
        """One row per segment, ordered by request and time: `request_id`, `seq`, `start_ns` and `duration_ns` (int64),
        `category`, `side`, `tid`, `by`, `evidence`. The durations of a complete request add up to its latency exactly.

        Raises:
            Error: the file is damaged.
        """
        return self._read("segments")

    @functools.cached_property
    def threads(self) -> Table:
        """One row per traced thread: its CPU time in nanoseconds (int64), and the part of it spent on requests.

        Raises:
            Error: the file is damaged, or missing (captures of early versions have none).
        """
        return self._read("threads")

    @functools.cached_property
    def stacks(self) -> Table:
        """One row per function of a stack, innermost first. Segments refer to a stack by `stack_id`.

        Raises:
            Error: the file is damaged, or the capture was taken without stacks.
        """
        return self._read("stacks")

    def sql(self, query: str, parameters: Any = None) -> Table:
        """Runs a DuckDB query over the views `requests`, `segments`, `threads`, `stacks` and `symbols`.

        The views have the files' columns under plain names: `_` for `.` (`runqueue_wakeup`), `by_whom` for `by`.
        Sums of integers are 128 bits wide; `sum(latency_ns)::bigint` gives 64 bits.

        Args:
            query: SQL; `?` or `$name` stand for parameters.
            parameters: their values, a list or a dict.

        Raises:
            Error: DuckDB is not installed or refuses the query; a table is damaged.
        """
        return self._database.query(query, parameters)

    def figure(
        self,
        name: str,
        *,
        by: str | None = None,
        band: str | None = None,
        category: str | None = None,
        requests: Any = None,
        **filters: Unpack[Filter],
    ) -> "plotly.graph_objects.Figure":
        """A figure of the complete requests of one kind: the filter `kind`, or by default the report's first kind.

        Args:
            name: `latency`, `breakdown`, `methods`, `requests`, `overtime`, `cpu`, `tree` or `timeline`
                (docs/page.md says what they show).
            by: for `breakdown` only: by `band` (default), `method` or `time`.
            band: only this percentile band of the requests that pass: `p0-50`, `p50-90`, `p90-99` or `top1`.
            category: for `latency` only: show the time in this category instead of the whole latency.
            requests: only these requests, given by number: a list, a column, or rows with `request_id`. For `timeline`,
                the one request to show (default: the slowest).
            **filters: conditions on the requests, as in `Filter`.

        Raises:
            Error: the figure does not exist, no request passes, too few requests for bands, or the capture is damaged.
        """
        name = _figure.name_of(name, by, of_two=False)
        options = _filter.options(filters)
        options += [
            f"--{key}={value}"
            for key, value in (("band", band), ("category", category))
            if value is not None
        ]
        given = None
        if requests is not None:
            options.append("--ids=-")
            given = "\n".join(map(str, _request_ids.numbers(requests)))
        return _figure.drawn(name, str(self.path), *options, given=given, of=category)

    def report(self, *, by: str | None = None, **filters: Unpack[Filter]) -> dict[str, Any]:
        """The report as a dict, as `rpcprobe report --json` gives it (docs/schema.md): counts, latencies in
        nanoseconds, the breakdown of each kind, and its slowest requests beside typical ones.

        Args:
            by: what to group by: `method` (default), `status`, `client`, `server`, `thread` or `label`.
            **filters: conditions on the requests, as in `Filter`.

        Raises:
            Error: the capture is damaged, or a filter has an invalid value.
        """
        options = _filter.options(filters) + ([f"--by={by}"] if by is not None else [])
        told = _program.ask("report", str(self.path), "--json", *options)
        report: dict[str, Any] = _program.from_json(told)
        return report

    def __repr__(self) -> str:
        kinds = self.manifest.get("counts", {}).get("requests_by_kind") or {}
        found = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items())
        return f"Capture({str(self.path)!r}: {found or 'no requests'})"

    @functools.cached_property
    def _database(self) -> Database:
        names = [*TABLES, *(name for name in OPTIONAL if self._file(name).exists())]
        return Database({name: self._file(name) for name in names})

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.parquet"

    def _read(self, name: str) -> Table:
        file = self._file(name)
        if name == "stacks" and not file.exists():
            raise Error(f"{self.path} has no stacks: it was taken without `--stacks`")
        return _table.read(file)


def open_capture(directory: str | os.PathLike[str]) -> Capture:
    """Opens an existing capture.

    Args:
        directory: the directory that `rpcprobe run -o DIRECTORY` wrote.

    Raises:
        Error: the capture is missing, not finished, not attributed, damaged, of another version, or not a capture.
    """
    try:
        path = Path(os.path.abspath(os.fsdecode(directory)))
    except TypeError:
        raise Error(
            f"a capture is given by the path of its directory, not by {directory!r}"
        ) from None
    manifest = _manifest(path)
    for name, needed in TABLES.items():
        file = path / f"{name}.parquet"
        if not os.path.lexists(file):
            raise Error(f"{file} does not exist; `rpcprobe attribute {path}` makes it")
        lacking = needed - set(_table.column_names(file))
        if lacking:
            raise Error(
                f"{file} is no table of {name}: it has no column {', '.join(sorted(lacking))}"
            )
    return Capture(path, manifest)


def _manifest(path: Path) -> dict[str, Any]:
    file = path / "manifest.json"
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Error(_no_manifest(path, error)) from None
    try:
        manifest: dict[str, Any] = json.loads(text)
        version = manifest["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Error(f"{file} is damaged: it is no manifest of a capture") from None
    if version != FORMAT_VERSION:
        raise Error(
            f"{file}: capture format version {version}, this package reads {FORMAT_VERSION}"
        )
    return manifest


def _no_manifest(path: Path, error: Exception) -> str:
    if "\0" in str(path) or isinstance(error, UnicodeDecodeError):
        return f"{path!s} is no capture: {error}"
    if isinstance(error, FileNotFoundError) and not os.path.lexists(path):
        return f"there is no capture {path}: no such directory"
    if isinstance(error, NotADirectoryError):
        return f"{path} is no capture: it is no directory"
    if os.path.exists(path / "ab.json"):
        return f"{path} is what `rpcprobe ab` wrote: rpcprobe.diff({str(path)!r}) reads it"
    if isinstance(error, FileNotFoundError):
        return f"{path} is not a finished capture (it has no manifest.json)"
    return f"cannot read {path / 'manifest.json'}: {getattr(error, 'strerror', None) or error}"
