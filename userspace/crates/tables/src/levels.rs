//! Which rows of a page are present, and the definition levels that encode it.

use crate::pages::put_varint;

/// Runs of rows that are all present or all absent.
#[derive(Default)]
pub struct Presence {
    /// All runs except the last.
    runs: Vec<(bool, usize)>,
    last: (bool, usize),
    pub rows: usize,
    /// Number of absent rows.
    pub absent: usize,
}

impl Presence {
    #[inline]
    pub fn add(&mut self, present: bool, rows: usize) {
        if self.last.0 != present {
            self.runs.push(self.last);
            self.last = (present, 0);
        }
        self.last.1 += rows;
        self.rows += rows;
        self.absent += if present { 0 } else { rows };
    }

    pub fn runs(&self) -> impl Iterator<Item = (bool, usize)> + '_ {
        self.runs.iter().copied().chain([self.last])
    }
}

/// Maximum number of groups of eight levels that are packed in one run.
const MOST_GROUPS: usize = 63;

/// Appends definition levels, 1 for each present row, as runs of eight or more equal levels and packed groups of eight.
/// The output is the same as the Parquet library's.
pub fn put_levels(out: &mut Vec<u8>, runs: impl Iterator<Item = (bool, usize)>) {
    let mut packed: Vec<bool> = Vec::new();
    let mut run = (false, 0);
    for (level, times) in runs {
        let mut left = times;
        while left > 0 {
            if run.1 >= 8 && run.0 == level {
                run.1 += left;
                break;
            }
            left -= 1;
            if run.0 == level {
                run.1 += 1;
            } else {
                if run.1 >= 8 {
                    put_run(out, run);
                    packed.clear();
                }
                run = (level, 1);
            }
            packed.push(level);
            if !packed.len().is_multiple_of(8) {
                continue;
            }
            if run.1 >= 8 {
                packed.truncate(packed.len() - 8);
                put_packed(out, &mut packed);
            } else {
                if packed.len() / 8 == MOST_GROUPS {
                    put_packed(out, &mut packed);
                }
                run.1 = 0;
            }
        }
    }
    let begun = packed.len() % 8;
    if run.1 > 0 && packed.len() == begun && (run.1 == begun || begun == 0) {
        put_run(out, run);
    } else {
        packed.resize(packed.len().next_multiple_of(8), false);
        put_packed(out, &mut packed);
    }
}

fn put_run(out: &mut Vec<u8>, (level, times): (bool, usize)) {
    put_varint(out, (times as u64) << 1);
    out.push(level.into());
}

/// Appends whole groups of levels and clears `levels`.
fn put_packed(out: &mut Vec<u8>, levels: &mut Vec<bool>) {
    if levels.is_empty() {
        return;
    }
    put_varint(out, (levels.len() as u64 / 8) << 1 | 1);
    for group in levels.chunks(8) {
        out.push(group.iter().rev().fold(0, |byte, level| byte << 1 | u8::from(*level)));
    }
    levels.clear();
}
