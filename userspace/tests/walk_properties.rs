//! The attribution engine against hand-made traces, and against a machine that knows the truth.

mod walk;
