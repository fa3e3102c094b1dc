"""Boots a stock kernel of Debian in QEMU's software emulation, on this machine's files.

The kernel is unpacked from its package, which is not installed. The guest's root is the host's
files, read-only, with an overlay in the guest's memory. The guest writes its results to one folder
that it shares with the host. In a guest of another processor, programs for that processor are
overlaid, too. Nothing here needs root.
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
    """The differences between emulated processors."""

    debian: str
    emulator: str
    emulator_package: str
    machine: tuple[str, ...]
    console: str
    arguments: str = ""


# Without tsc=reliable, a 6.1 kernel reads the HPET, which takes about 1 us per clock reading.
AMD64 = Processor(
    debian="amd64",
    emulator="qemu-system-x86_64",
    emulator_package="qemu-system-x86",
    machine=("-cpu", "max"),
    console="ttyS0",
    arguments=" tsc=reliable",
)
# QEMU's own algorithm signs return addresses: the architecture's would take most of the boot time.
ARM64 = Processor(
    debian="arm64",
    emulator="qemu-system-aarch64",
    emulator_package="qemu-system-arm",
    machine=("-machine", "virt", "-cpu", "max,pauth-impdef=on"),
    console="ttyAMA0",
)


@dataclass(frozen=True)
class Stock:
    """A series of Debian's kernels: the package that depends on the newest one, and the
    processor."""

    package: str
    processor: Processor = AMD64


SERIES = {
    "6.1": Stock("linux-image-amd64"),
    "6.12": Stock("linux-image-6.12-amd64"),
    "6.1-arm64": Stock("linux-image-arm64", ARM64),
    "6.12-arm64": Stock("linux-image-6.12-arm64", ARM64),
}

OLDEST = "6.1"

# Beginnings of a kernel's reports of its own failure (kernel/panic.c, lib/bug.c,
# arch/x86/kernel/dumpstack.c).
DIED = ("Kernel panic", "kernel BUG at", "BUG: ", "Oops: ")
# A breakpoint that is no longer set. The kernel sets breakpoints while it patches its code, and
# waits until all CPUs have seen the code as it was (smp_text_poke_bp_batch(),
# arch/x86/kernel/alternative.c). In about one of ten boots of 6.12, a CPU met a breakpoint too
# late. The presumed cause, not shown, is the emulation of several CPUs by threads.
EMULATOR = ("Oops: int3",)

# Modules that the guest needs for access to the host's files, and modules that the cases need;
# their dependencies are added.
MODULES = (
    *("virtio_pci", "9pnet_virtio", "9p", "overlay"),
    *("virtio_blk", "loop", "crc32c_generic", "ext4", "veth", "sch_netem"),
)

# A scratch disk for the guest. It is slow, so that a thread that waits for it sleeps for
# milliseconds: longer than falling asleep and waking take in a slow guest.
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
    """The guest reset, hung or ended without its command's status, or failed because of the
    emulator."""


class KernelDied(Exception):
    """The guest's kernel reported its own failure on the console, which the guest's programs may
    have caused."""


def is_foreign(series: str) -> bool:
    """Returns whether the series is for another processor than this machine's."""
    return series in SERIES and SERIES[series].processor is not AMD64


@dataclass(frozen=True)
class Kernel:
    processor: Processor
    image: Path
    initramfs: Path
    # A folder of files that the guest overlays on the host's.
    over: Path | None


def missing_tools(series: str) -> list[str]:
    """Packages of the missing tools that a kernel of the series needs."""
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
    """The modules' files, in the order in which they must be loaded."""
    if not (folder / "lib" / "modules" / release / "modules.dep").exists():
        tool("/usr/sbin/depmod", "-b", folder, release)
    argv = ("/usr/sbin/modprobe", "-d", folder, "-S", release, "--show-depends", "-a", *MODULES)
    lines = tool(*argv).decode().splitlines()
    files = [Path(line.split()[1]) for line in lines if line.startswith("insmod ")]
    return list(dict.fromkeys(files))


def headers(series: str) -> Path:
    """The kernel's headers in one tree, for compilation in the guest; downloads their packages the
    first time."""
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
        # The processor's headers overwrite the common headers.
        for package in packages:
            tool("cp", "-a", f"{folder}/usr/src/{package}/.", merged)
        merged.rename(tree)
    return tree


def make_initramfs(folder: Path, release: str, busybox: Path) -> Path:
    """An archive of busybox, the modules and `init`; made again if any of them is newer."""
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
    """The kernel and its initramfs, from the cache or newly made."""
    processor = SERIES[series].processor
    folder = kernel_files(series)
    release = release_of(folder)
    over = arm64.prepare() if is_foreign(series) else None
    busybox = over / "bin/busybox" if over else Path(shutil.which("busybox") or "/bin/busybox")
    image = folder / "boot" / f"vmlinuz-{release}"
    return Kernel(processor, image, make_initramfs(folder, release, busybox), over)


def last_words(console: Path) -> str:
    """The console's first line that reports a failure of the kernel, or an empty string."""
    said = console.read_text(errors="replace").splitlines()
    return next((line for line in said if any(d in line for d in DIED)), "").strip()


def wait_for(guest: subprocess.Popen, console: Path, timeout_s: float):
    """Waits until the guest ends. Ends it at the timeout, or some seconds after its kernel
    failed."""
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
    """Runs a shell command in `folder` on the kernel; the guest writes only to `results`. Returns
    the exit status.

    # Errors
    BootFailed if the guest ends without a status, or takes longer than `timeout_s`; KernelDied if
    its kernel reports a failure.
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
    arguments = f"console={processor.console} quiet loglevel=5 panic=-1{processor.arguments}"
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
