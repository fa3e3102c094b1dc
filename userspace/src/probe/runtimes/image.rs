//! The file of a program or a library: where its functions are, and its memory when it is loaded.

use std::collections::HashMap;
use std::fs::File;

use anyhow::{bail, Context, Result};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind};

use super::entry::{self, Arguments};

/// Limits above what any program has: the file's contents are not trusted.
const MOST_BYTES: u64 = 1 << 29;
const MOST_RELOCATIONS: usize = 1 << 24;
const MOST_SECTIONS: usize = 256;
const MOST_SYMBOLS: usize = 1 << 19;
/// Bytes of a function that are looked at.
const CODE_BYTES: u64 = 64;

/// Where to hook a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// In bytes from the beginning of the file.
    pub offset: u64,
    /// A breakpoint there costs as little as it can ([`entry::cheapest`]).
    pub is_cheap: bool,
}

/// Cached reads of a file.
pub type Cached = ReadCache<File>;

/// A program's file.
pub struct Image<'d> {
    pub file: object::File<'d, &'d Cached>,
}

impl<'d> Image<'d> {
    /// Reads a file; `None`: it is not a program's.
    ///
    /// # Errors
    /// The file exceeds the limits.
    pub fn of(file: &'d Cached) -> Result<Option<Image<'d>>> {
        let Ok(file) = object::File::parse(file) else { return Ok(None) };
        let sizes = file.sections().filter_map(|of| Some(of.file_range()?.1));
        let count = file.sections().count();
        if count > MOST_SECTIONS || sizes.fold(0, u64::saturating_add) > MOST_BYTES {
            bail!("it has more sections than programs have, or larger ones");
        }
        Ok(Some(Image { file }))
    }

    /// Checks that the registers at a breakpoint are known.
    ///
    /// # Errors
    /// They are not known for the file's processor.
    pub fn check_processor(&self) -> Result<()> {
        let known = [object::Architecture::X86_64, object::Architecture::Aarch64];
        if !known.contains(&self.file.architecture()) {
            bail!("it is for another processor");
        }
        Ok(())
    }

    /// The address at which the program begins.
    pub fn entry(&self) -> u64 {
        self.file.entry()
    }

    /// Functions and other things that the file defines, by name.
    pub fn symbols(&self) -> impl Iterator<Item = (&'d str, u64)> + '_ {
        defined(self.file.symbols())
    }

    /// The address of a symbol that the file exports.
    pub fn exported(&self, name: &str) -> Option<u64> {
        let mut symbols = defined(self.file.dynamic_symbols());
        symbols.find(|(of, _)| *of == name).map(|(_, address)| address)
    }

    /// The file offset of a code address, and the code there.
    fn code(&self, address: u64) -> Option<(u64, &'d [u8])> {
        let holds = |from: u64, size: u64| address >= from && address - from < size;
        let mut segments = self.file.segments();
        let segment = segments.find(|segment| holds(segment.address(), segment.size()))?;
        let (at, bytes) = segment.file_range();
        let within = address - segment.address();
        let left = bytes.checked_sub(within).filter(|left| *left > 0)?;
        let code = segment.data_range(address, CODE_BYTES.min(left)).ok().flatten();
        Some((at.checked_add(within)?, code.unwrap_or_default()))
    }

    /// The file offset at which to hook a function: there all arguments are still where they were passed.
    ///
    /// # Errors
    /// There is no code at the address.
    pub fn place(&self, address: u64, arguments: Arguments) -> Result<Place> {
        let (at, code) = self.code(address).context("the runtime's code is not in its file")?;
        let is_x86 = self.file.architecture() == object::Architecture::X86_64;
        let code = Some(code).filter(|_| is_x86);
        let cheapest = code.and_then(|code| entry::cheapest(code, arguments));
        Ok(Place { offset: at + cheapest.unwrap_or(0), is_cheap: cheapest.is_some() })
    }

    /// The file offset at which a function begins: there a hook of its return finds the return address.
    ///
    /// # Errors
    /// There is no code at the address.
    pub fn begin(&self, address: u64) -> Result<Place> {
        let (offset, code) = self.code(address).context("the runtime's code is not in its file")?;
        let is_x86 = self.file.architecture() == object::Architecture::X86_64;
        let is_cheap = is_x86 && entry::cheapest(code, Arguments::C) == Some(0);
        Ok(Place { offset, is_cheap })
    }

    /// The program's memory when it is loaded.
    pub fn memory(&self) -> Memory<'d> {
        let is_data = |kind| matches!(kind, SectionKind::Data | SectionKind::ReadOnlyData);
        let rel_ro = |kind| matches!(kind, SectionKind::ReadOnlyDataWithRel);
        let sections = self.file.sections();
        let sections = sections.filter(|of| is_data(of.kind()) || rel_ro(of.kind()));
        let data = sections.filter_map(|of| Some((of.address(), of.data().ok()?))).collect();
        let moved = self.file.dynamic_relocations().into_iter().flatten().take(MOST_RELOCATIONS);
        let moved = moved.map(|(at, to)| (at, to.addend() as u64)).collect();
        Memory { data, moved }
    }
}

fn defined<'d, S: ObjectSymbol<'d>>(
    symbols: impl Iterator<Item = S>,
) -> impl Iterator<Item = (&'d str, u64)> {
    let defined = symbols.take(MOST_SYMBOLS).filter(|symbol| symbol.is_definition());
    defined.filter_map(|symbol| {
        let address = Some(symbol.address()).filter(|address| *address != 0)?;
        Some((symbol.name().ok()?, address))
    })
}

/// A program's memory when it begins.
pub struct Memory<'d> {
    /// Sections: their addresses and contents.
    pub data: Vec<(u64, &'d [u8])>,
    /// Words that are relocated when the program is loaded, by address: their values if it is not moved.
    pub moved: HashMap<u64, u64>,
}

impl<'d> Memory<'d> {
    /// `length` bytes at an address.
    pub fn bytes(&self, address: u64, length: u64) -> Option<&'d [u8]> {
        self.data.iter().find_map(|(from, bytes)| {
            let at = usize::try_from(address.checked_sub(*from)?).ok()?;
            bytes.get(at..at.checked_add(usize::try_from(length).ok()?)?)
        })
    }

    /// The word at an address.
    pub fn word(&self, address: u64) -> Option<u64> {
        let moved = || self.moved.get(&address).copied();
        let bytes = self.bytes(address, 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes)).filter(|word| *word != 0).or_else(moved).or(Some(0))
    }

    /// All aligned words, with their addresses.
    pub fn words(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.data.iter().flat_map(move |(from, bytes)| {
            let words = bytes.chunks_exact(8).zip(0u64..);
            words.filter_map(move |(word, number)| {
                let at = from.checked_add(8 * number)?;
                let word = u64::from_le_bytes(word.try_into().ok()?);
                Some((at, if word == 0 { self.moved.get(&at).copied().unwrap_or(0) } else { word }))
            })
        })
    }

    /// Whether the text, followed by a zero, is at an address.
    pub fn is_text(&self, address: u64, text: &str) -> bool {
        let bytes = self.bytes(address, text.len() as u64 + 1);
        bytes.and_then(|bytes| bytes.strip_prefix(text.as_bytes())) == Some(&[0])
    }
}
