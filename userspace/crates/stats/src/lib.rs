//! Statistics for comparisons: pure functions of numbers, without files, clocks or units of our
//! own.
//!
//! The unit of every test is a *run*, never a request. Latencies of requests are strongly
//! autocorrelated, and tests that take them as independent raise false alarms most of the time
//! (docs/comparing.md has the measurement). Each function names its method and source.

pub mod apportion;
pub mod bootstrap;
pub mod mix;
pub mod quantile;
pub mod sign_flips;
