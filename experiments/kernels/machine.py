"""A stock kernel of Debian's, booted by QEMU in software emulation on this machine's files.

The kernel is taken out of its package, which is not installed. The guest has the host's files as its root:
read-only, with an overlay in the guest's memory; what it shall leave behind it writes to one folder that
both see. Nothing here needs root.
"""

import gzip
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "kernels"

# Packages that depend on the newest kernel of a series.
SERIES = {"6.1": "linux-image-amd64", "6.12": "linux-image-6.12-amd64"}

# What a kernel begins a report of its own failure with (kernel/panic.c, lib/bug.c, arch/x86/kernel/dumpstack.c).
DIED = ("Kernel panic", "kernel BUG at", "BUG: ", "Oops: ")
# A breakpoint that nobody has set. The kernel sets them while it patches its code, and waits until all CPUs have seen the code
# as it was (smp_text_poke_bp_batch(), arch/x86/kernel/alternative.c). Once in about ten boots of 6.12 a CPU met one too late; that
# the emulation of several CPUs by threads is at fault is supposed and not shown.
EMULATOR = ("Oops: int3",)

# What the guest needs to reach the host's files, and what the cases need; with what these depend on.
MODULES = (
    *("virtio_pci", "9pnet_virtio", "9p", "overlay"),
    *("virtio_blk", "loop", "crc32c_generic", "ext4", "veth", "sch_netem"),
)

# A scratch disk for the guest. It is slow, so that who waits for it sleeps for milliseconds, which in a slow guest
# is more than it takes to fall asleep and to wake.
DISK_BYTES = 64 << 20
DISK_REQUESTS_PER_S = 200

TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "modprobe": "kmod",
    "depmod": "kmod",
    "cpio": "cpio",
    "xz": "xz-utils",
    "apt-get": "apt",
    "dpkg": "dpkg",
}


class BootFailed(Exception):
    """The guest ended without a status of its command, a reset or a hang; or by what emulators do."""


class KernelDied(Exception):
    """The guest's kernel says on its console that it has failed: that may be the doing of what ran there."""


class Unusable(Exception):
    """This machine cannot boot the kernel: a tool or a package is missing."""


@dataclass(frozen=True)
class Kernel:
    series: str
    release: str
    image: Path
    initramfs: Path


def tool(*argv: str | Path, cwd: Path | None = None, input: bytes | None = None) -> bytes:
    done = subprocess.run([str(a) for a in argv], capture_output=True, cwd=cwd, input=input)
    if done.returncode != 0:
        raise Unusable(f"{shlex.join(map(str, argv))}: {done.stderr.decode().strip()}")
    return done.stdout


def missing_tools() -> list[str]:
    """Packages of the tools that are not there."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return sorted({package for name, package in TOOLS.items() if not shutil.which(name, path=path)})


def newest_package(series: str) -> str:
    said = tool("apt-cache", "show", "--no-all-versions", SERIES[series]).decode()
    found = re.search(r"^Depends: *(linux-image-[^ ,]+)", said, re.MULTILINE)
    if not found:
        raise Unusable(f"{SERIES[series]} does not say which kernel it is for")
    return found[1]


def unpack(series: str) -> Path:
    """The folder with a kernel's files; downloads its package the first time."""
    folder = CACHE / series
    if (folder / "unpacked").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    package = newest_package(series)
    tool("apt-get", "-qq", "download", package, cwd=folder)
    (archive,) = folder.glob("*.deb")
    tool("dpkg", "-x", archive, folder)
    archive.unlink()
    release = release_of(folder)
    tool("/usr/sbin/depmod", "-b", folder, release)
    (folder / "unpacked").touch()
    return folder


def release_of(folder: Path) -> str:
    (modules,) = (folder / "lib" / "modules").iterdir()
    return modules.name


def module_files(folder: Path, release: str) -> list[Path]:
    """In the order in which they must be loaded."""
    argv = ("/usr/sbin/modprobe", "-d", folder, "-S", release, "--show-depends", "-a", *MODULES)
    lines = tool(*argv).decode().splitlines()
    files = [Path(line.split()[1]) for line in lines if line.startswith("insmod ")]
    return list(dict.fromkeys(files))


def headers(series: str) -> Path:
    """The kernel's headers, in one tree, for what compiles in the guest; downloads their packages the first time."""
    release = release_of(unpack(series))
    tree = CACHE / series / "headers"
    if tree.exists():
        return tree
    common = f"linux-headers-{release.removesuffix('-amd64')}-common"
    packages = [common, f"linux-headers-{release}"]
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        folder = Path(scratch)
        tool("apt-get", "-qq", "download", *packages, cwd=folder)
        for archive in folder.glob("*.deb"):
            tool("dpkg", "-x", archive, folder)
        merged = folder / "merged"
        merged.mkdir()
        # What is made for the processor goes over what all have.
        for package in packages:
            tool("cp", "-a", f"{folder}/usr/src/{package}/.", merged)
        merged.rename(tree)
    return tree


def make_initramfs(folder: Path, release: str) -> Path:
    """busybox, the modules and `init`; made anew if these are younger."""
    archive = folder / "initramfs.gz"
    sources = (HERE / "init", Path(__file__), folder / "unpacked")
    if archive.exists() and all(archive.stat().st_mtime > s.stat().st_mtime for s in sources):
        return archive
    tree = folder / "initramfs"
    shutil.rmtree(tree, ignore_errors=True)
    for name in ("bin", "proc", "sys", "dev", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copy2(shutil.which("busybox") or "/bin/busybox", tree / "bin" / "busybox")
    shutil.copy2(HERE / "init", tree / "init")
    (tree / "init").chmod(0o755)
    order = []
    for file in module_files(folder, release):
        name = file.name.removesuffix(".xz")
        content = tool("xz", "-dc", file) if file.suffix == ".xz" else file.read_bytes()
        (tree / "modules" / name).write_bytes(content)
        order.append(name)
    (tree / "modules" / "order").write_text("".join(f"{name}\n" for name in order))
    names = "\n".join(str(p.relative_to(tree)) for p in sorted(tree.rglob("*"))).encode()
    packed = tool("cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet", cwd=tree, input=names)
    archive.write_bytes(gzip.compress(packed, 1))
    shutil.rmtree(tree)
    return archive


def prepare(series: str) -> Kernel:
    """The kernel and its initramfs, from the cache or made now."""
    folder = unpack(series)
    release = release_of(folder)
    image = folder / "boot" / f"vmlinuz-{release}"
    return Kernel(series, release, image, make_initramfs(folder, release))


def last_words(console: Path) -> str:
    """The first line with which the kernel reports a failure of its own; empty: none."""
    said = console.read_text(errors="replace").splitlines()
    return next((line for line in said if any(d in line for d in DIED)), "").strip()


def wait_for(guest: subprocess.Popen, console: Path, timeout_s: float):
    """Until the guest has ended; ends it when its time is over, or some seconds after its kernel has failed."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            guest.wait(5)
            return
        except subprocess.TimeoutExpired:
            if last_words(console):
                deadline = min(deadline, time.monotonic() + 10)
    guest.kill()
    guest.wait()


def boot(kernel: Kernel, command: str, folder: Path, results: Path, timeout_s: float) -> int:
    """Runs a shell command in `folder` on the kernel; the guest writes to `results` only. Its exit status.

    # Errors
    BootFailed if the guest ends without one, or takes longer than `timeout_s`; KernelDied if its kernel says why.
    """
    results.mkdir(parents=True, exist_ok=True)
    (results / "status").unlink(missing_ok=True)
    (results / "command").write_text(command + "\n")
    (results / "folder").write_text(str(folder))
    (results / "place").write_text(str(results))
    share = "security_model=none,multidevs=remap"
    argv = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]
    argv += ["-m", "2G", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    argv += ["-monitor", "none", "-serial", "stdio", "-nic", "none"]
    argv += ["-kernel", str(kernel.image), "-initrd", str(kernel.initramfs)]
    # Without tsc=reliable a 6.1 kernel reads hpet, about 1 us a look at the clock.
    argv += ["-append", "console=ttyS0 quiet loglevel=4 panic=-1 tsc=reliable"]
    argv += ["-virtfs", f"local,path=/,mount_tag=host,readonly=on,{share}"]
    argv += ["-virtfs", f"local,path={results},mount_tag=results,{share}"]
    disk = results / "disk"
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    limit = f"throttling.iops-total={DISK_REQUESTS_PER_S}"
    argv += ["-drive", f"file={disk},format=raw,if=none,id=scratch,{limit}"]
    argv += ["-device", "virtio-blk-pci,drive=scratch"]
    console = results / "console"
    begun = time.monotonic()
    with console.open("wb") as out:
        guest = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
        wait_for(guest, console, timeout_s)
    disk.unlink()
    status = results / "status"
    text = status.read_text().strip() if status.exists() else ""
    died = last_words(console)
    if died and not any(words in died for words in EMULATOR):
        raise KernelDied(f"{died}; see {console}")
    if died or not text.isdigit():
        failed = console.rename(console.with_suffix(".failed"))
        took_s = time.monotonic() - begun
        why = died or "no status from the guest"
        raise BootFailed(f"{why} after {took_s:.0f} s; its console: {failed}")
    return int(text)
