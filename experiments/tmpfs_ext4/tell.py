"""Makes RESULTS.md from the tables."""

import study
import words
from facts import ALONE, BESIDE, DISKS, SCENES, Facts
from pictures import changed, composition, distributions
from study import ns, outliers, percent
from study.machine import told

# The table has calls that differ by at least this, and all calls on the evaluator's own files.
CALL_NS = 300


def tell(results: study.Results) -> study.Document:
    facts = Facts(results)
    document = study.Document("tmpfs instead of ext4: the evaluator on files")
    pairs = facts.total(ALONE, "p50")["pairs"]
    document.say(
        f"""`targets/frpc/measure -m 2`: a process for each expression, which reads a file and writes one, on an ext4 behind a
        loop device or on a tmpfs; alone, or beside a process that writes and calls fsync on that ext4 without a pause.
        {facts.rounds} rounds of runs without the probe, by the driver's own stamps (medians over runs, 95 % bootstrap
        intervals over runs, paired by round), and {pairs} random pairs of `rpcprobe ab` for each of both scenes; on
        {told(results.read("machine")[0])}."""
    )
    document.compared(words.compared(facts))
    document.say("What contradicts the report, or what it says of the causes:")
    document.points(words.contradictions(facts))
    document.head("The median")
    for scene in SCENES:
        document.say(words.verdict(facts, scene))
    document.table(
        ("under the probe", "ext4", "tmpfs", "change", "95 % interval", "p", ""),
        [
            words.statistic(facts, scene, name)
            for scene in SCENES
            for name in facts.statistics(scene)
        ],
    )
    document.show(
        "change",
        changed(facts, "mean"),
        "What tmpfs changes of the mean, with 95 % intervals of ab",
    )
    document.say(words.calls(facts))
    found = {(scene, disk): facts.calls(scene, disk) for scene in SCENES for disk in DISKS}
    names = sorted(found[ALONE, "ext4"], key=lambda name: -found[ALONE, "ext4"][name])
    document.table(
        (
            "CPU time in the file system, us an evaluation",
            *(f"{d}, {s}" for s in SCENES for d in DISKS),
        ),
        [
            (name, *(f"{of.get(name, 0) / 1e3:.1f}" for of in found.values()))
            for name in names
            if "put" in name
            or abs(found[ALONE, "ext4"][name] - found[ALONE, "tmpfs"].get(name, 0)) > CALL_NS
        ]
        + [("all", *(f"{sum(of.values()) / 1e3:.1f}" for of in found.values()))],
    )
    document.show("composition", composition(facts), "An evaluation on either, by category")
    document.say(words.scheduling(facts))
    document.head("The spike")
    document.say(words.spike(facts))
    document.show(
        "distributions",
        distributions(facts),
        f"Without the probe: how many evaluations take longer, {len(facts.values(ALONE, 'ext4')):,} of each",
    )
    document.say(words.waits(facts))
    document.table(
        ("latency", "wait", "in", "for", "cause"),
        [
            (
                ns(row["latency_ns"]),
                ns(row["wait_ns"]),
                row["call"],
                words.waited_for(row),
                row["cause"] or "",
            )
            for row in facts.waited(BESIDE, "ext4")[:5]
        ],
        right=5,
    )
    document.say(words.slowest(facts))
    document.table(
        ("", "on", "latency", "typical", "what it has more than typical evaluations of its run"),
        outliers.table(results.read("outliers"), ("scene", "disk")),
        right=5,
    )
    document.head("What `whatif` foretold")
    document.say(words.whatif(facts))
    document.table(
        ("ext4, median over captures", "as it was", "foretold without", "tmpfs really"),
        [
            (
                f"{name}, {scene}",
                ns(facts.whatif(scene, "ext4", f"was_{name}_ns")),
                ns(facts.whatif(scene, "ext4", f"without_{name}_ns")),
                ns(facts.whatif(scene, "tmpfs", f"was_{name}_ns")),
            )
            for scene in SCENES
            for name in ("p50", "mean", "p99", "max")
        ],
    )
    document.say(
        f"""The probe: medians of `ab` on ext4 alone are {percent(words.probe(facts), sign=True)} against the runs without it."""
    )
    return document
