"""Judges whether a row agrees, or differs by no more than its note explains."""

# The share of block requests and commits that bcc may miss, because its programs do not run in an
# interrupt of one another.
MOST_MISSED = 0.5
LEAST_UNMATCHED = 0.01


def verdict(row):
    """The table's text, and whether the row is good. Letters refer to the README's notes."""
    said, good = of_items(row)
    if row.left_out:
        said += f"; {row.left_out} left out: M"
    if row.only_ours + row.only_theirs:
        said += f"; {row.only_ours} only rpcprobe has: {row.note}, {row.only_theirs} only bcc"
        found = len(row.items) + row.only_ours
        good &= row.only_ours <= MOST_MISSED * found and row.only_theirs <= LEAST_UNMATCHED * found
    return said if good else f"NO: {said}", good


def of_items(row):
    apart = [item for item in row.items if item.score > 1]
    if not apart:
        return "same", True
    known = [item for item in apart if abs(item.ours - item.theirs) <= item.explained_ns]
    of_note = f", {len(known)} explained: {row.note}" if known else ""
    good = row.median.score <= 1 or 2 * (len(apart) - len(known)) < len(row.items)
    return f"{'median same, ' if row.median.score <= 1 else ''}{len(apart)} apart{of_note}", good
