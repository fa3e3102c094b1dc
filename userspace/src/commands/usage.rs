//! Errors in arguments that are valid each by itself, but not together, or not for this command.

use std::fmt;

use anyhow::Result;

/// What is wrong with the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage(String);

impl Usage {
    /// The exit status, the same as for arguments that cannot be parsed.
    pub const EXIT_CODE: i32 = 2;
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// # Errors
/// Always: [`Usage`].
pub fn usage<T>(what: impl Into<String>) -> Result<T> {
    Err(Usage(what.into()).into())
}
