//! Classifies what a thread was doing at an instant: on a CPU, off it, and what its system calls wait for.
//! Pure functions over time lines; nothing here knows requests.

pub mod off_cpu;
pub mod on_cpu;
pub mod parts;
pub mod runtime_threads;
pub mod syscall;
