//! A program's file, or a library's: where its functions are, and what it has in its memory when it is loaded.

use std::collections::HashMap;
use std::fs::File;

use anyhow::{bail, Context, Result};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind};

use super::entry::{self, Arguments};

/// More than any program has: a file may say what it likes.
const MOST_BYTES: u64 = 1 << 29;
const MOST_RELOCATIONS: usize = 1 << 24;
const MOST_SECTIONS: usize = 256;
const MOST_SYMBOLS: usize = 1 << 19;
/// So much of a function is looked at.
const CODE_BYTES: u64 = 64;

/// Where to hook a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// In bytes from the file's begin.
    pub offset: u64,
    /// A breakpoint there costs as little as it can ([`entry::cheapest`]).
    pub is_cheap: bool,
}

/// What is read of a file.
pub type Cached = ReadCache<File>;

/// A program's file.
pub struct Image<'d> {
    pub file: object::File<'d, &'d Cached>,
}

impl<'d> Image<'d> {
    /// That of a file; `None`: it is no program's.
    ///
    /// # Errors
    /// It is not one to be looked at.
    pub fn of(file: &'d Cached) -> Result<Option<Image<'d>>> {
        let Ok(file) = object::File::parse(file) else { return Ok(None) };
        let sizes = file.sections().filter_map(|of| Some(of.file_range()?.1));
        let count = file.sections().count();
        if count > MOST_SECTIONS || sizes.fold(0, u64::saturating_add) > MOST_BYTES {
            bail!("it has more sections than programs have, or larger ones");
        }
        Ok(Some(Image { file }))
    }

    /// Whether a breakpoint's registers are known.
    ///
    /// # Errors
    /// They are not.
    pub fn check_processor(&self) -> Result<()> {
        let known = [object::Architecture::X86_64, object::Architecture::Aarch64];
        if !known.contains(&self.file.architecture()) {
            bail!("it is for another processor");
        }
        Ok(())
    }

    /// Where the program begins.
    pub fn entry(&self) -> u64 {
        self.file.entry()
    }

    /// Functions and other things that the file defines, by name.
    pub fn symbols(&self) -> impl Iterator<Item = (&'d str, u64)> + '_ {
        defined(self.file.symbols())
    }

    /// The address of one that it has for others.
    pub fn exported(&self, name: &str) -> Option<u64> {
        let mut symbols = defined(self.file.dynamic_symbols());
        symbols.find(|(of, _)| *of == name).map(|(_, address)| address)
    }

    /// Where in the file an address of its code is, and what is there.
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

    /// Where in the file to hook a function: where all arguments are still where they came.
    ///
    /// # Errors
    /// There is no code.
    pub fn place(&self, address: u64, arguments: Arguments) -> Result<Place> {
        let (at, code) = self.code(address).context("the runtime's code is not in its file")?;
        let is_x86 = self.file.architecture() == object::Architecture::X86_64;
        let code = Some(code).filter(|_| is_x86);
        let cheapest = code.and_then(|code| entry::cheapest(code, arguments));
        Ok(Place { offset: at + cheapest.unwrap_or(0), is_cheap: cheapest.is_some() })
    }

    /// Where in the file a function begins: there a hook of its return finds where it returns to.
    ///
    /// # Errors
    /// There is no code.
    pub fn begin(&self, address: u64) -> Result<Place> {
        let (offset, code) = self.code(address).context("the runtime's code is not in its file")?;
        let is_x86 = self.file.architecture() == object::Architecture::X86_64;
        let is_cheap = is_x86 && entry::cheapest(code, Arguments::C) == Some(0);
        Ok(Place { offset, is_cheap })
    }

    /// What it has in its memory.
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

/// What a program has in its memory when it begins.
pub struct Memory<'d> {
    /// Sections: where they are, and what is in them.
    pub data: Vec<(u64, &'d [u8])>,
    /// Words that are known when it is loaded only, by their addresses: what they are unless it is moved.
    pub moved: HashMap<u64, u64>,
}

impl<'d> Memory<'d> {
    /// So many bytes at an address.
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

    /// The addresses of all words that are aligned, and these.
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

    /// Whether that text, and a zero after it, is at an address.
    pub fn is_text(&self, address: u64, text: &str) -> bool {
        let bytes = self.bytes(address, text.len() as u64 + 1);
        bytes.and_then(|bytes| bytes.strip_prefix(text.as_bytes())) == Some(&[0])
    }
}
