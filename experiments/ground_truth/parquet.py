"""Results as Parquet; the columns are described in README.md."""

from pathlib import Path

from capture import Sample
from cases import Case
from machine import give_up
from truth import UNKNOWN


def need_pyarrow():
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        give_up("--parquet needs pyarrow: `make check` has it, `make venv` installs it")


def rows_of(case: Case, result: dict, samples: list[Sample]) -> list[dict]:
    """The injected and attributed amounts: a row per request and check."""
    rows = []
    for sample in samples:
        for check in case.checks_on(result["transport"]):
            injected_ns = sample.log[check.truth]
            rows.append(
                {
                    "case": result["case"],
                    "transport": result["transport"],
                    "request_id": sample.request["request_id"],
                    "client_pid": sample.log["client_pid"],
                    "seq": sample.log["seq"],
                    "start_ns": sample.request["start_ns"],
                    "latency_ns": sample.latency_ns,
                    "truth": check.truth,
                    "categories": "+".join(check.categories),
                    "injected_ns": None if injected_ns == UNKNOWN else injected_ns,
                    "attributed_ns": sample.attributed(check.categories),
                    "unattributed_ns": sample.attributed(("unattributed",)),
                }
            )
    return rows


def cases_of(results: list[dict]) -> list[dict]:
    rows = []
    for result in results:
        common = {
            "case": result["case"],
            "transport": result["transport"],
            "requests": result["n"],
            "passed": result["passed"],
            "tries": len(result.get("former_failures", [])) + 1,
            "failures": "; ".join(result["failures"]),
            "unattributed_share": result.get("unattributed_share"),
            "law1_broken": result.get("law1_broken"),
            "switches_missed": result.get("switches_missed"),
        }
        for check in result["checks"] or [{}]:
            of_check = {name: check.get(name) for name in CHECK_COLUMNS}
            of_check["categories"] = "+".join(check["categories"]) if check else None
            rows.append(common | of_check)
    return rows


CHECK_COLUMNS = (
    "truth",
    "categories",
    "n",
    "injected_n",
    "injected_p50_ns",
    "injected_max_ns",
    "attributed_p50_ns",
    "bias_p50_ns",
    *(f"error_{q}_{unit}" for q in ("p50", "p90", "p99") for unit in ("ns", "share")),
    "correlation",
)


def write(folder: Path, results: list[dict], requests: list[dict]):
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("cases", cases_of(results)), ("requests", requests)):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"{name}.parquet")
