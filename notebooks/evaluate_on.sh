#!/bin/sh
# evaluate_on.sh tmpfs|ext4 N: evaluates the first N expressions of targets/frpc, each by a process of its own, with its files on a
# file system that only this sees (unshare --mount). Without loop devices the ext4 is the disk of the temporary directory.
d=$(mktemp -d)
trap 'umount $d 2> /dev/null; rm -rf $d $d.image' EXIT
case $1 in
tmpfs) mount -t tmpfs tmpfs $d ;;
ext4) truncate -s 64M $d.image; mkfs.ext4 -q -F $d.image && mount -o loop $d.image $d || : ;;
esac
head -n $2 expressions.txt > $d/expressions
./measure -m 2 -e $d/expressions --dir $d --results /dev/null --errors /dev/null 2> /dev/null
