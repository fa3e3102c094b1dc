//! How much memory we may use, as far as known.

use std::fs;
use std::path::{Path, PathBuf};

const CGROUPS: &str = "/sys/fs/cgroup";

/// Returns the smallest of: the free memory of the machine, the limits of our control groups, and
/// what this process may map. `None` if none of them is known.
pub fn limit_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    [available_bytes(), of_groups(Path::new(CGROUPS), &groups), mappable_bytes()]
        .into_iter()
        .flatten()
        .min()
}

fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the smallest limit of our groups and the groups above them, in either version. In a
/// container, the path of a group may be the host's and not exist here. Then the group that is
/// mounted counts.
fn of_groups(root: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next().unwrap_or_default();
        let path = fields.next().unwrap_or_default().trim_start_matches('/');
        let (roots, name) = match controllers {
            "" => (vec![root.to_owned(), root.join("unified")], "memory.max"),
            "memory" => (vec![root.join("memory")], "memory.limit_in_bytes"),
            _ => (Vec::new(), ""),
        };
        let of_root = move |root: PathBuf| {
            let path = root.join(path);
            let above = path.ancestors().take_while(|above| above.starts_with(&root));
            let limits = above.filter_map(|group| {
                fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok()
            });
            limits.min()
        };
        roots.into_iter().filter_map(of_root).collect::<Vec<_>>()
    });
    limits.min()
}

fn mappable_bytes() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills the struct it is given.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(root: &Path, path: &str, file: &str, limit: &str) {
        let folder = root.join(path);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), limit).unwrap();
    }

    #[test]
    fn the_least_limit_of_the_groups_above_counts() {
        let root = tempfile::tempdir().unwrap();
        group(root.path(), "a", "memory.max", "1000000\n");
        group(root.path(), "a/b", "memory.max", "max\n");
        group(root.path(), "c", "memory.max", "5\n");
        assert_eq!(of_groups(root.path(), "0::/a/b\n"), Some(1_000_000));
        assert_eq!(of_groups(root.path(), "0::/\n"), None);
        assert_eq!(of_groups(root.path(), ""), None);
    }

    #[test]
    fn groups_of_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let name = "memory.limit_in_bytes";
        group(root.path(), "memory", name, "9223372036854771712\n");
        group(root.path(), "memory/a", name, "4096\n");
        assert_eq!(of_groups(root.path(), "5:cpu:/\n4:memory:/a\n0::/\n"), Some(4096));
        // In a container: the path is the host's, and our own group is mounted at the root.
        assert_eq!(of_groups(&root.path().join("x"), "4:memory:/a\n"), None);
        assert_eq!(of_groups(root.path(), "4:memory:/b/c\n"), Some(9_223_372_036_854_771_712));
    }

    #[test]
    fn this_machine_says_something() {
        assert!(limit_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
