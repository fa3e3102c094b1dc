"""Debian's packages, for this machine's processor or another, unpacked without being installed."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "kernels"

# Links that a Debian file system begins with. Without them, packages' files in /lib would create a
# folder in place of the link.
MERGED = ("bin", "lib", "sbin")
NOT_READ = ("doc", "info", "locale", "man")


class Unusable(Exception):
    """This machine cannot boot the kernel: a tool or a package is missing."""


def tool(*argv: str | Path, cwd: Path | None = None, input: bytes | None = None, **more) -> bytes:
    done = subprocess.run([str(a) for a in argv], capture_output=True, cwd=cwd, input=input, **more)
    if done.returncode != 0:
        raise Unusable(f"{shlex.join(map(str, argv))}: {done.stderr.decode().strip()}")
    return done.stdout


def own() -> str:
    """Debian's name of this machine's processor."""
    return tool("dpkg", "--print-architecture").decode().strip()


def apt(processor: str) -> dict[str, str]:
    """The environment in which apt works for that processor: with separate lists, as if nothing
    were installed."""
    if processor == own():
        return dict(os.environ)
    folder = CACHE / processor / "apt"
    settings = folder / "settings"
    environment = {**os.environ, "APT_CONFIG": str(settings)}
    if not settings.exists():
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        made = folder / "settings.new"
        made.write_text(
            f'APT::Architecture "{processor}";\nAPT::Architectures {{ "{processor}"; }};\n'
            f'Dir::State "{folder}/state";\nDir::State::status "{folder}/status";\n'
            f'Dir::Cache "{folder}/cache";\n'
        )
        tool("apt-get", "-qq", "update", env={**environment, "APT_CONFIG": str(made)})
        made.rename(settings)
    return environment


def newest(package: str, processor: str) -> str:
    """The kernel package that `package`, a package for the newest kernel, depends on."""
    said = tool("apt-cache", "show", "--no-all-versions", package, env=apt(processor)).decode()
    found = re.search(r"^Depends: *(linux-image-[^ ,]+)", said, re.MULTILINE)
    if not found:
        raise Unusable(f"{package} does not say which kernel it is for")
    return found[1]


def unpack(names: list[str], processor: str, folder: Path):
    """Unpacks these packages below `folder`."""
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        tool("apt-get", "-qq", "download", *names, cwd=Path(scratch), env=apt(processor))
        for archive in Path(scratch).glob("*.deb"):
            tool("dpkg", "-x", archive, folder)


def unpack_with_all(names: list[str], processor: str, folder: Path):
    """Unpacks these packages and their dependencies, as a file system in which programs run."""
    environment = apt(processor)
    options = ("-qq", "--yes", "--download-only", "--no-install-recommends")
    # Without locks: no other process uses these folders.
    tool("apt-get", *options, "-o", "Debug::NoLocking=1", "install", *names, env=environment)
    for name in MERGED:
        (folder / "usr" / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(f"usr/{name}")
    archives = CACHE / processor / "apt" / "cache" / "archives"
    out = ("tar", "-x", "--keep-directory-symlink", "-C", folder)
    out += tuple(f"--exclude=./usr/share/{name}" for name in NOT_READ)
    for archive in archives.glob("*.deb"):
        tool(*out, input=tool("dpkg-deb", "--fsys-tarfile", archive))
    shutil.rmtree(archives)
