//! Finds functions in a Go program that has no symbols, by the runtime's own table of functions, which stripping
//! leaves.

use anyhow::{bail, Context, Result};

/// First bytes of the table in Go 1.18 and 1.19, and since Go 1.20 (src/internal/abi/symtab.go).
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
/// Word indexes in its header, after eight bytes (src/runtime/symtab.go, pcHeader).
const FUNCTIONS: usize = 0;
const NAMES_AT: usize = 3;
const TABLE_AT: usize = 7;
const POINTER_BYTES_AT: usize = 7;

/// The table of functions.
pub struct Pclntab<'d> {
    bytes: &'d [u8],
}

impl<'d> Pclntab<'d> {
    /// Reads the table in these bytes.
    ///
    /// # Errors
    /// The table is of an unknown version of Go.
    pub fn of(bytes: &'d [u8]) -> Result<Pclntab<'d>> {
        let table = Pclntab { bytes };
        let known = table.half(0).is_some_and(|magic| MAGICS.contains(&magic));
        if !known || bytes.get(POINTER_BYTES_AT) != Some(&8) {
            bail!("its table of functions is of a version of Go that is not known");
        }
        Ok(table)
    }

    /// Offset of the first function from the beginning of the program's code.
    pub fn first(&self) -> Option<u64> {
        self.half(self.header(TABLE_AT)?).map(u64::from)
    }

    /// Offset of a function from the beginning of the program's code.
    ///
    /// # Errors
    /// There is no function of that name.
    pub fn function(&self, name: &str) -> Result<u64> {
        let (names, table) = (self.header(NAMES_AT), self.header(TABLE_AT));
        let (names, table) = names.zip(table).context("its table of functions is cut off")?;
        let count = self.header(FUNCTIONS).unwrap_or(0).min(self.bytes.len() as u64 / 8);
        let found = (0..count).find_map(|number| {
            let entry = table.checked_add(8 * number)?;
            let of = table.checked_add(u64::from(self.half(entry + 4)?))?;
            let name_at = names.checked_add(u64::from(self.half(of.checked_add(4)?)?))?;
            self.is_name(name_at, name).then(|| self.half(entry)).flatten()
        });
        found.map(u64::from).with_context(|| format!("its table of functions has no {name}"))
    }

    fn is_name(&self, at: u64, name: &str) -> bool {
        let rest = usize::try_from(at).ok().and_then(|at| self.bytes.get(at..));
        rest.and_then(|rest| rest.strip_prefix(name.as_bytes()))
            .is_some_and(|rest| rest.first() == Some(&0))
    }

    fn header(&self, word: usize) -> Option<u64> {
        let bytes = self.bytes.get(8 + 8 * word..)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    }

    fn half(&self, at: u64) -> Option<u32> {
        let bytes = self.bytes.get(usize::try_from(at).ok()?..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of functions `a` and `bc`, at 16 and 64.
    fn table() -> Vec<u8> {
        const NAMES: u64 = 72;
        const TABLE: u64 = 80;
        let words = [2, 0, 0, NAMES, 0, 0, 0, TABLE];
        let mut bytes = MAGICS[1].to_le_bytes().to_vec();
        bytes.extend([0, 0, 1, 8]);
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(b"a\0bc\0\0\0\0");
        // The functions' addresses and the offsets of their entries; then the entries.
        let halves = [16u32, 16, 64, 24, 16, 0, 64, 2];
        bytes.extend(halves.iter().flat_map(|half| half.to_le_bytes()));
        bytes
    }

    #[test]
    fn functions_are_found_by_their_names() {
        let bytes = table();
        let table = Pclntab::of(&bytes).expect("a table");
        let place = |name| table.function(name).ok();
        assert_eq!(
            [place("a"), place("bc"), place("b"), place("")],
            [Some(16), Some(64), None, None]
        );
        assert_eq!(table.first(), Some(16));
    }

    #[test]
    fn damaged_tables_are_errors() {
        let whole = table();
        for length in 0..whole.len() {
            let cut = Pclntab::of(&whole[..length]).and_then(|table| table.function("bc"));
            assert!(cut.is_err(), "{length}");
        }
        // Whatever the table contains, nothing outside of it is read.
        for at in 8..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] = 0xff;
            let table = Pclntab::of(&bytes).expect("its begin is whole");
            let _ = (table.function("bc"), table.first());
        }
        assert!(Pclntab::of(b"\x7fELF and more").is_err());
    }
}
