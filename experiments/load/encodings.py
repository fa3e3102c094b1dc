"""How large the columns of times in segments.parquet are, by encoding and compression.

encodings.py CAPTURE...     bytes a row, for each directory of a capture
"""

import io
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ["start_ns", "duration_ns"]
WAYS = [("DELTA_BINARY_PACKED", "snappy"), ("DELTA_BINARY_PACKED", "zstd"), ("PLAIN", "zstd")]


def bytes_a_row(table, column, encoding, compression):
    """Size of a file with one column, in bytes a row."""
    out = io.BytesIO()
    level = 1 if compression == "zstd" else None
    pq.write_table(
        table.select([column]),
        out,
        use_dictionary=False,
        column_encoding={column: encoding},
        compression=compression,
        compression_level=level,
    )
    return out.tell() / table.num_rows


def main(captures):
    if not captures:
        sys.exit(__doc__)
    ways = "".join(f"{encoding.split('_')[0].lower()}, {by}".rjust(14) for encoding, by in WAYS)
    print(f"{'bytes a row':24} {'rows':>9} {'column':>12}{ways}")
    for capture in map(Path, captures):
        try:
            table = pq.read_table(capture / "segments.parquet", columns=COLUMNS)
        except (OSError, pa.ArrowException) as error:
            sys.exit(f"encodings.py: {capture}: {error}")
        for column in COLUMNS:
            sizes = "".join(f"{bytes_a_row(table, column, *way):14.2f}" for way in WAYS)
            print(f"{capture.name:24} {table.num_rows:9} {column:>12}{sizes}")


if __name__ == "__main__":
    main(sys.argv[1:])
