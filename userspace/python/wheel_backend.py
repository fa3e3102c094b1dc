"""Builds the wheel with maturin. First reports missing system packages, which the compilers' own errors do not name."""

import subprocess
from pathlib import Path
from typing import Any

import maturin
from maturin import *  # noqa: F403 - the other hooks of a build backend

DEPENDENCIES = Path(__file__).resolve().parents[2] / ".ci/install-deps"


def _check() -> None:
    asked = ["sh", str(DEPENDENCIES), "--missing", "wheel"]
    said = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout
    if missing := said.split():
        raise SystemExit(
            f"rpcprobe is compiled here, and for that the system lacks: {', '.join(missing)}\n"
            f"On Debian: sudo apt-get install --no-install-recommends {' '.join(missing)}\n"
            "(or a Rust of your own, from rustup, instead of cargo-web and rustc-web)"
        )


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """The hook that pip calls first."""
    _check()
    found: list[str] = maturin.get_requires_for_build_wheel(config_settings)
    return found


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    _check()
    found: list[str] = maturin.get_requires_for_build_editable(config_settings)
    return found
