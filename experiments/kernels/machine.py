"""A stock kernel of Debian's, booted by QEMU in software emulation on this machine's files.

The kernel is taken out of its package, which is not installed. The guest has the host's files as its root:
read-only, with an overlay in the guest's memory; what it shall leave behind it writes to one folder that
both see. A guest of another processor has that one's programs over them. Nothing here needs root.
"""

import gzip
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import arm64
from packages import CACHE, newest, tool, unpack

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Processor:
    """What differs from one emulated processor to another."""

    debian: str
    emulator: str
    emulator_package: str
    machine: tuple[str, ...]
    console: str
    arguments: str = ""


# Without tsc=reliable a 6.1 kernel reads hpet, about 1 us a look at the clock.
AMD64 = Processor(
    debian="amd64",
    emulator="qemu-system-x86_64",
    emulator_package="qemu-system-x86",
    machine=("-cpu", "max"),
    console="ttyS0",
    arguments=" tsc=reliable",
)
# Signed return addresses by an algorithm of QEMU's own: that of the architecture takes most of the time of a boot.
ARM64 = Processor(
    debian="arm64",
    emulator="qemu-system-aarch64",
    emulator_package="qemu-system-arm",
    machine=("-machine", "virt", "-cpu", "max,pauth-impdef=on"),
    console="ttyAMA0",
)


@dataclass(frozen=True)
class Stock:
    """A series of Debian's kernels: the package that depends on its newest one, and the processor."""

    package: str
    processor: Processor = AMD64


SERIES = {
    "6.1": Stock("linux-image-amd64"),
    "6.12": Stock("linux-image-6.12-amd64"),
    "6.1-arm64": Stock("linux-image-arm64", ARM64),
    "6.12-arm64": Stock("linux-image-6.12-arm64", ARM64),
}

OLDEST = "6.1"

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


def is_foreign(series: str) -> bool:
    """Whether it is for another processor than this machine's."""
    return series in SERIES and SERIES[series].processor is not AMD64


@dataclass(frozen=True)
class Kernel:
    processor: Processor
    image: Path
    initramfs: Path
    # A folder with files of the guest that are over the host's.
    over: Path | None


def missing_tools(series: str) -> list[str]:
    """Packages of the tools that a kernel takes and that are not there."""
    processor = SERIES[series].processor
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    tools = {**TOOLS, processor.emulator: processor.emulator_package}
    absent = {package for name, package in tools.items() if not shutil.which(name, path=path)}
    return sorted(absent) + (arm64.missing() if is_foreign(series) else [])


def kernel_files(series: str) -> Path:
    """The folder with a kernel's files; downloads its package the first time."""
    folder = CACHE / series
    if (folder / "unpacked").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    processor = SERIES[series].processor.debian
    unpack([newest(SERIES[series].package, processor)], processor, folder)
    (folder / "unpacked").touch()
    return folder


def release_of(folder: Path) -> str:
    (modules,) = (folder / "lib" / "modules").iterdir()
    return modules.name


def module_files(folder: Path, release: str) -> list[Path]:
    """In the order in which they must be loaded."""
    if not (folder / "lib" / "modules" / release / "modules.dep").exists():
        tool("/usr/sbin/depmod", "-b", folder, release)
    argv = ("/usr/sbin/modprobe", "-d", folder, "-S", release, "--show-depends", "-a", *MODULES)
    lines = tool(*argv).decode().splitlines()
    files = [Path(line.split()[1]) for line in lines if line.startswith("insmod ")]
    return list(dict.fromkeys(files))


def headers(series: str) -> Path:
    """The kernel's headers, in one tree, for what compiles in the guest; downloads their packages the first time."""
    release = release_of(kernel_files(series))
    tree = CACHE / series / "headers"
    if tree.exists():
        return tree
    common = f"linux-headers-{release.removesuffix('-amd64')}-common"
    packages = [common, f"linux-headers-{release}"]
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        folder = Path(scratch)
        unpack(packages, AMD64.debian, folder)
        merged = folder / "merged"
        merged.mkdir()
        # What is made for the processor goes over what all have.
        for package in packages:
            tool("cp", "-a", f"{folder}/usr/src/{package}/.", merged)
        merged.rename(tree)
    return tree


def make_initramfs(folder: Path, release: str, busybox: Path) -> Path:
    """busybox, the modules and `init`; made anew if these are younger."""
    archive = folder / "initramfs.gz"
    sources = (HERE / "init", Path(__file__), folder / "unpacked")
    if archive.exists() and all(archive.stat().st_mtime > s.stat().st_mtime for s in sources):
        return archive
    tree = folder / "initramfs"
    shutil.rmtree(tree, ignore_errors=True)
    for name in ("bin", "proc", "sys", "dev", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copy2(busybox, tree / "bin" / "busybox")
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
    processor = SERIES[series].processor
    folder = kernel_files(series)
    release = release_of(folder)
    over = arm64.prepare() if is_foreign(series) else None
    busybox = over / "bin/busybox" if over else Path(shutil.which("busybox") or "/bin/busybox")
    image = folder / "boot" / f"vmlinuz-{release}"
    return Kernel(processor, image, make_initramfs(folder, release, busybox), over)


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
    (results / "layers").write_text("/over:/host" if kernel.over else "/host")
    share = "security_model=none,multidevs=remap"
    processor = kernel.processor
    argv = [processor.emulator, *processor.machine, "-accel", "tcg,thread=multi", "-smp", "2"]
    argv += ["-m", "2G", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    argv += ["-monitor", "none", "-serial", "stdio", "-nic", "none"]
    argv += ["-kernel", str(kernel.image), "-initrd", str(kernel.initramfs)]
    arguments = f"console={processor.console} quiet loglevel=4 panic=-1{processor.arguments}"
    argv += ["-append", arguments]
    argv += ["-virtfs", f"local,path=/,mount_tag=host,readonly=on,{share}"]
    if kernel.over:
        argv += ["-virtfs", f"local,path={kernel.over},mount_tag=over,readonly=on,{share}"]
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
