"""Compares what `rpcprobe report` tells of a capture with SQL over its files: compare.py RPCPROBE DIR."""

import json
import subprocess
import sys
from fractions import Fraction

import duckdb
import statistics_sql as sql


class Differs(Exception):
    """The report and the SQL do not agree."""


def same(what: str, ours, theirs) -> None:
    """Fails unless both are equal; means, the only floats, but for their last digits."""
    if isinstance(ours, float) or isinstance(theirs, float):
        equal = abs(ours - theirs) <= 1e-9 * max(abs(ours), abs(theirs))
    else:
        equal = ours == theirs
    if not equal:
        raise Differs(f"{what}: the report tells {ours}, SQL {theirs}")


def report(rpcprobe: str, directory: str, *options: str) -> str:
    done = subprocess.run(
        [rpcprobe, "report", directory, *options], check=True, capture_output=True, text=True
    )
    return done.stdout


def rows(db, query: str) -> list[dict]:
    result = db.execute(query)
    names = [column[0] for column in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def opened(directory: str):
    db = duckdb.connect()
    for table in ("requests", "segments"):
        db.execute(f"create view {table} as select * from '{directory}/{table}.parquet'")
    columns = [row[0] for row in db.execute("describe requests").fetchall()]
    return db, columns[columns.index("user") :]


FIGURES = ("p50_ns", "p90_ns", "p99_ns", "max_ns", "mean_ns", "total_ns")


def check_kinds(db, told: dict, tids: list[int]) -> None:
    kinds = {kind["kind"]: kind for kind in told["kinds"]}
    found = {row["kind"]: row for row in rows(db, sql.KINDS)}
    same("kinds", sorted(kinds), sorted(found))
    waits = {row["kind"]: row["ns"] for row in rows(db, sql.BEHIND_PROBE.format(tids=tids))}
    for name, row in found.items():
        kind = kinds[name]
        same(f"{name}: requests", kind["requests"], row["requests"])
        same(f"{name}: incomplete", kind["incomplete"], row["incomplete"])
        for figure in FIGURES:
            same(f"{name}: {figure}", kind["latency"][figure], row[figure] or 0)
        ends = kind["ends"]
        same(f"{name}: both ends", ends["both"], row["both_ends"])
        same(f"{name}: client only", ends["client_only"], row["client_only"])
        same(f"{name}: server only", ends["server_only"], row["server_only"])
        same(f"{name}: behind the probe", kind["behind_probe_ns"], waits.get(name, 0))


def check_parts(db, told: dict) -> None:
    parts = {
        (kind["kind"], part["category"], part["side"]): part
        for kind in told["kinds"]
        for part in kind["parts"]
        if part["side"] is not None
    }
    found = {(row["kind"], row["category"], row["side"]): row for row in rows(db, sql.PARTS)}
    same("parts", sorted(parts), sorted(found))
    for key, row in found.items():
        for figure in FIGURES:
            same(f"{key}: {figure}", parts[key][figure], row[figure])


def check_groups(db, told: dict, by: str, window_ns: int) -> None:
    name = sql.GROUP_NAMES[by]
    found, parts = {}, {}
    for row in rows(db, sql.GROUPS.format(name=name)):
        found.setdefault(row["kind"], {})[row["name"]] = row
    for row in rows(db, sql.GROUP_PARTS.format(name=name)):
        of = parts.setdefault((row["kind"], row["name"]), {})
        of[row["category"], row["side"]] = row["total_ns"]
    for kind in told["kinds"]:
        of_kind, groups = found[kind["kind"]], kind["groups"]
        if groups is None:
            # Without a choice: by method, where there are any.
            same(f"{kind['kind']}: methods", [None], list(of_kind))
            continue
        same("grouped by", groups["by"], by)
        listed = {group["name"]: group for group in groups["listed"]}
        totals = [group["latency"]["total_ns"] for group in groups["listed"]]
        same("order of groups", totals, sorted(totals, reverse=True))
        named = sorted((row["total_ns"] for key, row in of_kind.items() if key), reverse=True)
        of_names = [g["latency"]["total_ns"] for g in groups["listed"] if g["name"] is not None]
        same("the largest groups", of_names, named[:100])
        for key, group in listed.items():
            what, row = f"{kind['kind']} by {by} {key}", of_kind[key]
            for figure in ("requests", "incomplete"):
                same(f"{what}: {figure}", group[figure], row[figure])
            for figure in ("p50_ns", "p99_ns", "max_ns", "total_ns"):
                same(f"{what}: {figure}", group["latency"][figure], row[figure] or 0)
            same(f"{what}: rate", group["rate_per_s"], row["requests"] * 1e9 / window_ns)
            of_group = {(p["category"], p["side"]): p["total_ns"] for p in group["parts"]}
            same(f"{what}: parts", of_group, parts.get((kind["kind"], key), {}))
            most = group["largest"]["total_ns"] if group["largest"] else 0
            same(f"{what}: largest", most, max(of_group.values(), default=0))
        others = groups["others"] or {"names": 0, "requests": 0, "latency": {"total_ns": 0}}
        same("other names", others["names"], len(set(of_kind) - set(listed)))
        requests = sum(group["requests"] for group in groups["listed"]) + others["requests"]
        same("requests of all groups", requests, kind["requests"])
        whole = sum(totals) + others["latency"]["total_ns"]
        same("time of all groups", whole, kind["latency"]["total_ns"])


def check_tail(db, told: dict, categories: list[str]) -> None:
    bounds = {row["kind"]: row for row in rows(db, sql.BOUNDS)}
    found = {}
    for row in rows(db, sql.TAIL.format(categories=categories)):
        of = found.setdefault((row["kind"], row["band"]), {"parts": {}})
        of.update(requests=row["requests"], mean_ns=row["mean_ns"])
        of["parts"][row["category"], row["side"]] = row["ns"]
    for kind in told["kinds"]:
        name, tail = kind["kind"], kind["tail"]
        same(f"{name}: has a tail", tail is not None, name in bounds)
        if tail is None:
            continue
        same(f"{name}: typical from", tail["typical"]["from_ns"], bounds[name]["typical_from"])
        same(f"{name}: typical to", tail["typical"]["to_ns"], bounds[name]["typical_to"])
        same(f"{name}: tail from", tail["tail"]["from_ns"], bounds[name]["tail_from"])
        for band in ("typical", "tail"):
            of = found[name, band]
            same(f"{name}: requests, {band}", tail[band]["requests"], of["requests"])
            same(f"{name}: mean, {band}", tail[band]["mean_ns"], of["mean_ns"])
            ours = {(p["category"], p["side"]): p[f"{band}_ns"] for p in tail["parts"]}
            theirs = {key: of["parts"].get(key, 0) for key in ours}
            same(f"{name}: parts, {band}", ours, theirs)
            same(f"{name}: all parts, {band}", set(of["parts"]) - set(ours), set())
        differences = [part["difference_ns"] for part in tail["parts"]]
        same(f"{name}: difference", sum(differences), tail["difference_ns"])
        means = tail["tail"]["mean_ns"] - tail["typical"]["mean_ns"]
        same(f"{name}: difference of means", tail["difference_ns"], means)


def shown_ns(ns: int) -> str:
    """As reports show nanoseconds: three digits in the unit that fits, half rounded up."""
    if ns < 1000:
        return f"{ns} ns"
    for unit, size in (("us", 10**3), ("ms", 10**6), ("s", 10**9)):
        for decimals in (2, 1, 0):
            scaled = int(Fraction(ns * 10**decimals, size) + Fraction(1, 2))
            if scaled < 1000:
                return f"{scaled / 10**decimals:.{decimals}f} {unit}"
    return f"{int(Fraction(ns, 10**9) + Fraction(1, 2))} s"


def shown_share(part: int, whole: int) -> str:
    if whole == 0:
        return "-"
    per_mille = int(Fraction(part * 1000, whole) + Fraction(1, 2))
    return "<0.1 %" if per_mille == 0 and part > 0 else f"{per_mille / 10:.1f} %"


def check_text(text: str, told: dict) -> None:
    """Every figure of the JSON stands in the text, in the line of its part."""
    if "NaN" in text or "inf" in text.split():
        raise Differs("the text has a figure that is none")
    lines = {tuple(line.split()) for line in text.splitlines()}
    for kind in told["kinds"]:
        whole = kind["latency"]["total_ns"]
        if kind["requests"] == kind["incomplete"]:
            continue
        for part in [*kind["parts"], {"category": "total", "side": "", **kind["latency"]}]:
            marks = "~" * (part.get("modelled_ns", 0) > 0) + "*" * (part.get("sampled_ns", 0) > 0)
            side = part["side"] if part["side"] is not None else "-"
            if side == "middle" and part["comm"] is not None:
                side = f"middle: {part['comm']}"
            figures = [shown_ns(part[f]) for f in ("p50_ns", "p90_ns", "p99_ns", "max_ns")]
            cells = [part["category"], marks, side, *figures, shown_share(part["total_ns"], whole)]
            if tuple(" ".join(cells).split()) not in lines:
                raise Differs(f"{kind['kind']}: the text has no line {cells}")


def window(options: list[str], duration_ns: int) -> int:
    """The time in which requests that pass can start."""
    at = {"--from": 0, "--to": duration_ns}
    for name in at:
        if name in options:
            at[name] = int(float(options[options.index(name) + 1].removesuffix("ms")) * 1e6)
    return min(at["--to"], duration_ns) - at["--from"]


def compare(rpcprobe: str, directory: str) -> int:
    """Compares everything, and returns how many reports that took."""
    db, categories = opened(directory)
    with open(f"{directory}/manifest.json") as file:
        manifest = json.load(file)
    tids = manifest.get("probe", {}).get("tids", [])
    start_ns, duration_ns = manifest["start_ns"], manifest["duration_ns"]
    reports = 0
    groupings = list(sql.GROUP_NAMES)
    for i, (options, where) in enumerate(sql.FILTERS):
        where = where.format(start=start_ns)
        db.execute(f"create or replace view chosen as select * from requests where {where}")
        # Every grouping without a filter; with one, the groupings take turns.
        for by in (None, *(groupings if not options else [groupings[i % len(groupings)]])):
            chosen = options if by is None else [*options, "--by", by]
            try:
                told = json.loads(report(rpcprobe, directory, "--json", *chosen))
                (passing,) = db.execute("select count(*) from chosen").fetchone()
                same("passing", told["passing"], passing)
                same("not conserved", told["not_conserved"], 0)
                check_kinds(db, told, tids)
                check_groups(db, told, by or "method", window(options, duration_ns))
                if by is None:
                    check_parts(db, told)
                    check_tail(db, told, categories)
                    if passing > 0:
                        check_text(report(rpcprobe, directory, "--all", *chosen), told)
            except Differs as difference:
                sys.exit(f"report {directory} {' '.join(chosen)}: {difference}")
            reports += 1
    return reports


if __name__ == "__main__":
    for directory in sys.argv[2:]:
        print(f"{directory}: {compare(sys.argv[1], directory)} reports agree with SQL")
