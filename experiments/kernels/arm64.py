"""Programs for guests of the other processor: Debian's for arm64, and ours built for arm64.

They are in one folder, which a guest overlays on this machine's files.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from packages import CACHE, Unusable, unpack, unpack_with_all

TOP = Path(__file__).resolve().parents[2]
TRIPLE = "aarch64-unknown-linux-gnu"
COMPILER = "aarch64-linux-gnu-gcc"
# Packages that the cases need in the guest.
PROGRAMS = ("busybox-static", "coreutils", "dash", "bash", "python3", "util-linux", "mount")
PROGRAMS += ("iproute2", "e2fsprogs", "redis-server")
# Libraries that rpcprobe is linked with.
LIBRARIES = ("libelf-dev", "zlib1g-dev")
# Targets that need only the C library.
TARGETS = ("targets/frpc", "targets/echo", "experiments/ground_truth")

OVER = CACHE / "arm64" / "over"
RPCPROBE = TOP / "userspace" / "target" / TRIPLE / "release" / "rpcprobe"


def missing() -> list[str]:
    """The missing requirements of a build for arm64."""
    absent = [] if shutil.which(COMPILER) else ["gcc-aarch64-linux-gnu"]
    argv = ["rustc", "--print", "target-libdir", "--target", TRIPLE]
    if shutil.which("rustc"):
        libraries = subprocess.run(argv, capture_output=True, text=True).stdout.strip()
        if not any(Path(libraries).glob("libstd-*.rlib")):
            absent.append(f"Rust's standard library for arm64 (rustup target add {TRIPLE})")
    else:
        absent.append("rustc")
    return absent


def built(argv: list[str | Path], environment: dict[str, str] | None = None):
    done = subprocess.run(list(map(str, argv)), env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise Unusable(f"{argv[0]} ended with status {done.returncode} as it built for arm64")


def build_rpcprobe():
    """Links rpcprobe statically with its libraries, so that it runs on any files of the guest."""
    libraries = CACHE / "arm64" / "libraries"
    if not libraries.exists():
        scratch = libraries.with_suffix(".new")
        shutil.rmtree(scratch, ignore_errors=True)
        unpack([*LIBRARIES], "arm64", scratch)
        scratch.rename(libraries)
    headers = f"-idirafter {libraries}/usr/include"
    of_triple, of_cargo = TRIPLE.replace("-", "_"), TRIPLE.upper().replace("-", "_")
    environment = {
        f"CC_{of_triple}": COMPILER,
        f"CFLAGS_{of_triple}": headers,
        "LIBBPF_SYS_EXTRA_CFLAGS": headers,
        f"CARGO_TARGET_{of_cargo}_LINKER": COMPILER,
        f"CARGO_TARGET_{of_cargo}_RUSTFLAGS": "-C target-feature=+crt-static "
        f"-L native={libraries}/usr/lib/aarch64-linux-gnu",
    }
    manifest = TOP / "userspace" / "Cargo.toml"
    options = ["--quiet", "--release", "--locked", "--bin", "rpcprobe", "--target", TRIPLE]
    cargo = os.environ.get("CARGO", "cargo")
    built([cargo, "build", *options, "--manifest-path", manifest], environment)


def refresh(source: Path, copy: Path):
    if not copy.exists() or copy.stat().st_mtime < source.stat().st_mtime:
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, copy)


def build_targets():
    """Builds the targets from copies of their sources, in the folders where the guest expects
    them."""
    copies = OVER / TOP.relative_to("/")
    for name in TARGETS:
        for pattern in ("*.c", "*.h", "Makefile", "../*.mk"):
            for source in (TOP / name).glob(pattern):
                source = source.resolve()
                refresh(source, copies / source.relative_to(TOP))
        built(["make", "--no-print-directory", "-s", "-C", copies / name, f"CC={COMPILER}"])


@cache
def prepare() -> Path:
    """The folder that the guest overlays on this machine's files."""
    if not OVER.exists():
        scratch = OVER.with_suffix(".new")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        unpack_with_all([*PROGRAMS], "arm64", scratch)
        scratch.rename(OVER)
    build_targets()
    build_rpcprobe()
    return OVER
