//! The thread that a wait depended on.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The thread that had the CPU, the lock, or the answer; written as `comm/tid` in files and
/// reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct By {
    pub comm: Arc<str>,
    /// `None` for the idle task.
    pub tid: Option<u32>,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.comm)?;
        match self.tid {
            Some(tid) => write!(f, "/{tid}"),
            None => Ok(()),
        }
    }
}

/// Parses the form used in files. The name may itself contain slashes.
impl From<&str> for By {
    fn from(text: &str) -> By {
        let parts = text.rsplit_once('/');
        let digits = parts.filter(|(_, tid)| tid.bytes().all(|byte| byte.is_ascii_digit()));
        match digits.and_then(|(comm, tid)| Some((comm, tid.parse().ok()?))) {
            Some((comm, tid)) => By { comm: comm.into(), tid: Some(tid) },
            None => By { comm: text.into(), tid: None },
        }
    }
}

impl Serialize for By {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_read_back_from_their_texts() {
        for (text, comm, tid) in [
            ("kworker/0:1/33", "kworker/0:1", Some(33)),
            ("sh/9", "sh", Some(9)),
            ("a/b", "a/b", None),
            ("a/", "a/", None),
            ("a/+7", "a/+7", None),
            ("idle", "idle", None),
        ] {
            let by = By { comm: comm.into(), tid };
            assert_eq!(By::from(text), by);
            assert_eq!(by.to_string(), text);
        }
    }
}
