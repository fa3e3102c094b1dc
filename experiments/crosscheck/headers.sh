#!/bin/sh
# Kernel headers for bcc, in the directory named: Debian's for its 6.1, of whose two packages bcc wants one tree.
# Nothing is installed. Does nothing where there are any: the running kernel's, or $BCC_KERNEL_SOURCE.
# Says why there are none and ends with 0 otherwise: the check then is skipped.
set -eu
out=$1
[ -z "${BCC_KERNEL_SOURCE:-}" ] || exit 0
[ ! -e "/lib/modules/$(uname -r)/build" ] && [ ! -e "$out/Makefile" ] || exit 0

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cannot() { echo "headers.sh: no kernel headers for bcc: $1" >&2; exit 0; }
command -v apt-cache > /dev/null || cannot "this system has no apt"
# apt downloads as a user of its own where that may write.
chmod 755 "$scratch"
amd64=$(apt-cache depends linux-headers-amd64 | sed -n 's/.*Depends: \(linux-headers-6\.1\..*-amd64\)$/\1/p' | head -n 1)
[ -n "$amd64" ] || cannot "apt knows no linux-headers-amd64 of 6.1 (apt-get update?)"
common=${amd64%-amd64}-common
(cd "$scratch" && apt-get -qq download "$amd64" "$common" > said 2>&1) || cannot "$(tail -n 1 "$scratch/said")"
for package in "$scratch"/*.deb; do dpkg -x "$package" "$scratch/unpacked"; done
mkdir -p "$scratch/tree"
cp -a "$scratch/unpacked/usr/src/$common/." "$scratch/tree"
cp -a "$scratch/unpacked/usr/src/$amd64/." "$scratch/tree"
mkdir -p "$(dirname "$out")"
rm -rf "$out"
mv "$scratch/tree" "$out"
