//! Files that processes have open already.
//!
//! All of it comes from /proc/PID. The files themselves are not asked: their file system may be the program's own
//! (FUSE) and never answer.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use anyhow::Result;
use procfs::process::{FDTarget, Process};
use zerocopy::IntoBytes;

use crate::records::{RecFile, RecHdr, PATH_BYTES, REC_FILE};

/// The records of the named files that a process has open; `Err` if it has ended.
pub fn open(tgid: u32) -> Result<Vec<Vec<u8>>> {
    let process = Process::new(tgid as i32)?;
    let mounts: HashMap<u64, u32> = process
        .mountinfo()?
        .into_iter()
        .filter_map(|mount| Some((u64::try_from(mount.mnt_id).ok()?, device(&mount.majmin)?)))
        .collect();
    let record = |fd: i32, path: &[u8]| {
        let info = fs::read_to_string(format!("/proc/{tgid}/fdinfo/{fd}")).ok()?;
        // The descriptor may refer to another file by now.
        let still_named = fs::read_link(format!("/proc/{tgid}/fd/{fd}")).ok()?;
        if still_named.as_os_str().as_bytes() != path {
            return None;
        }
        let path = &path[..path.len().min(PATH_BYTES)];
        let file = RecFile {
            hdr: RecHdr { ts_ns: 0, tid: tgid, kind: REC_FILE, flags: 0, aux: 0 },
            ino: field(&info, "ino:")?,
            dev: *mounts.get(&field(&info, "mnt_id:")?)?,
            path_bytes: path.len() as u32,
        };
        Some([file.as_bytes(), path].concat())
    };
    let named = |fd: procfs::process::FDInfo| match fd.target {
        FDTarget::Path(path) => record(fd.fd, path.as_os_str().as_bytes()),
        _ => None,
    };
    Ok(process.fd()?.flatten().filter_map(named).collect())
}

/// A field of fdinfo. `ino:` exists since Linux 5.14.
fn field(info: &str, name: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// `254:0` as the kernel keeps it (include/linux/kdev_t.h).
fn device(majmin: &str) -> Option<u32> {
    let (major, minor) = majmin.split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}

#[cfg(test)]
mod tests {
    use std::os::linux::fs::MetadataExt;

    use zerocopy::FromBytes;

    use super::*;

    #[test]
    fn open_files_are_named_and_pipes_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("open");
        let file = fs::File::create(&path).unwrap();
        let (_reader, _writer) = std::io::pipe().unwrap();
        let ino = file.metadata().unwrap().st_ino();
        let records = open(std::process::id()).unwrap();
        let of_file: Vec<_> = records
            .iter()
            .map(|record| RecFile::read_from_prefix(record).unwrap())
            .filter(|(fixed, _)| fixed.ino == ino)
            .collect();
        let [(_, name)] = &of_file[..] else { panic!("{} records", of_file.len()) };
        assert_eq!(*name, path.as_os_str().as_bytes());
        assert!(records.iter().all(|record| record[size_of::<RecFile>()] == b'/'));
        assert!(open(u32::MAX >> 1).is_err());
    }

    #[test]
    fn devices_are_numbered_as_in_the_kernel() {
        assert_eq!(device("254:1"), Some(254 << 20 | 1));
        assert_eq!((device("254"), device("a:1"), field("pos:\t3\n", "ino:")), (None, None, None));
    }
}
