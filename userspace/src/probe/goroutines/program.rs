//! What a Go program's file tells of the runtime in it: where its functions are, and what its numbers of waits mean.

use std::collections::HashMap;
use std::fs::File;

use anyhow::{bail, Context, Result};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind};

use super::entry;
use super::pclntab::Pclntab;
use crate::records::GoWait;

/// Begin of the section that Go programs have (src/debug/buildinfo/buildinfo.go), and where in it are flags.
const BUILD_INFO: &[u8] = b"\xff Go buildinf:";
const FLAGS_AT: usize = 15;
/// Since Go 1.18 versions are in the section itself. From that version on, functions take arguments in registers
/// on all processors that we know.
const VERSION_INLINE: u8 = 2;

/// The first waits of all versions, after one without words: by them their list is found.
const FIRST_WAITS: [&str; 2] = ["GC assist marking", "IO wait"];
pub const MOST_WAITS: usize = 256; // bpf/goroutines.h
/// No words are longer.
const MOST_LETTERS: u64 = 64;
/// A string in memory: its address and its length.
const STRING_BYTES: u64 = 16;

/// More than any program has: a file may say what it likes.
const MOST_BYTES: u64 = 1 << 29;
const MOST_RELOCATIONS: usize = 1 << 24;
const MOST_SECTIONS: usize = 256;
/// Places that look like what is sought.
const MOST_CANDIDATES: usize = 4096;

/// Words of the runtime's `moduledata`: the address of the first function, and of the code's begin.
const MODULE_FIRST: u64 = 20;
const MODULE_TEXT: u64 = 22;

/// Where to hook a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// In bytes from the file's begin.
    pub offset: u64,
    /// A breakpoint there costs as little as it can ([`entry::cheapest`]).
    pub is_cheap: bool,
}

/// A Go program.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// Where to hook what parks goroutines, and what changes their states.
    pub park: Place,
    pub status: Place,
    /// What its numbers of waits mean.
    pub waits: Vec<(u8, GoWait)>,
}

impl Program {
    /// That of a file, with these functions of the runtime, which park goroutines and change their states; `None`: it
    /// is not a Go program.
    ///
    /// # Errors
    /// It is one in which goroutines cannot be followed: why.
    pub fn of(file: File, functions: [&str; 2]) -> Result<Option<Program>> {
        if file.metadata().context("it cannot be read")?.len() > MOST_BYTES {
            bail!("it is larger than what is looked at");
        }
        let cache = ReadCache::new(file);
        let Ok(file) = object::File::parse(&cache) else { return Ok(None) };
        let Some(info) = file.section_by_name(".go.buildinfo") else { return Ok(None) };
        let sizes = file.sections().filter_map(|of| Some(of.file_range()?.1));
        let count = file.sections().count();
        if count > MOST_SECTIONS || sizes.fold(0, u64::saturating_add) > MOST_BYTES {
            bail!("it has more sections than programs have, or larger ones");
        }
        let known = [object::Architecture::X86_64, object::Architecture::Aarch64];
        if !known.contains(&file.architecture()) {
            bail!("it is for another processor");
        }
        let info = info.data().context("its build information cannot be read")?;
        if !info.starts_with(BUILD_INFO) {
            return Ok(None);
        }
        if info.get(FLAGS_AT).is_none_or(|flags| flags & VERSION_INLINE == 0) {
            bail!("it was built with a Go before 1.18");
        }
        let memory = Memory::of(&file);
        let [park, status] = match functions.map(|function| symbol(&file, function)) {
            [Some(park), Some(status)] => [park, status],
            _ => without_symbols(&file, &memory, functions)?,
        };
        let (park, status) = (place(&file, park)?, place(&file, status)?);
        let waits = memory.waits();
        if waits.is_empty() {
            bail!("the words that its Go has for waits are not found");
        }
        Ok(Some(Program { park, status, waits }))
    }
}

type GoFile<'d> = object::File<'d, &'d ReadCache<File>>;

/// The address of a function.
fn symbol(file: &GoFile<'_>, function: &str) -> Option<u64> {
    let is_there =
        |symbol: &object::Symbol<'_, '_, _>| symbol.is_definition() && symbol.address() != 0;
    let mut named = file.symbols().filter(|symbol| symbol.name() == Ok(function));
    named.find(is_there).map(|symbol| symbol.address())
}

/// The same of functions in a file that is stripped.
fn without_symbols(
    file: &GoFile<'_>,
    memory: &Memory<'_>,
    functions: [&str; 2],
) -> Result<[u64; 2]> {
    let names = [".gopclntab", ".data.rel.ro.gopclntab"];
    let section = names.iter().find_map(|name| file.section_by_name(name));
    let section = section.context("it has neither symbols nor Go's own table of functions")?;
    let table = Pclntab::of(section.data().context("its table of functions cannot be read")?)?;
    let text = memory.code_begin(section.address(), table.first());
    let text = text.context("it is stripped, and where its code begins is not found")?;
    let mut addresses = [0; 2];
    for (address, function) in addresses.iter_mut().zip(functions) {
        let place = text.checked_add(table.function(function)?);
        *address = place.context("its table of functions leads nowhere")?;
    }
    Ok(addresses)
}

/// Where in the file an address of its code is, and what is there.
fn code<'d>(file: &GoFile<'d>, address: u64) -> Option<(u64, &'d [u8])> {
    let holds = |from: u64, size: u64| address >= from && address - from < size;
    let segment = file.segments().find(|segment| holds(segment.address(), segment.size()))?;
    let (at, bytes) = segment.file_range();
    let within = address - segment.address();
    let left = bytes.checked_sub(within).filter(|left| *left > 0)?;
    let code = segment.data_range(address, CODE_BYTES.min(left)).ok().flatten();
    Some((at.checked_add(within)?, code.unwrap_or_default()))
}

/// Where in the file to hook a function: where all arguments are still where they came.
fn place(file: &GoFile<'_>, address: u64) -> Result<Place> {
    let (at, code) = code(file, address).context("the runtime's code is not in its file")?;
    let is_x86 = file.architecture() == object::Architecture::X86_64;
    let cheapest = Some(code).filter(|_| is_x86).and_then(entry::cheapest);
    Ok(Place { offset: at + cheapest.unwrap_or(0), is_cheap: cheapest.is_some() })
}

/// So much of a function is looked at.
const CODE_BYTES: u64 = 64;

/// What a program has in its memory when it begins.
struct Memory<'d> {
    /// Sections: where they are, and what is in them.
    data: Vec<(u64, &'d [u8])>,
    /// Words that are known when it is loaded only, by their addresses: what they are unless it is moved.
    moved: HashMap<u64, u64>,
}

impl<'d> Memory<'d> {
    fn of(file: &GoFile<'d>) -> Memory<'d> {
        let is_data = |kind| matches!(kind, SectionKind::Data | SectionKind::ReadOnlyData);
        let rel_ro = |kind| matches!(kind, SectionKind::ReadOnlyDataWithRel);
        let sections = file.sections().filter(|of| is_data(of.kind()) || rel_ro(of.kind()));
        let data = sections.filter_map(|of| Some((of.address(), of.data().ok()?))).collect();
        let moved = file.dynamic_relocations().into_iter().flatten().take(MOST_RELOCATIONS);
        let moved = moved.map(|(at, to)| (at, to.addend() as u64)).collect();
        Memory { data, moved }
    }

    fn bytes(&self, address: u64, length: u64) -> Option<&'d [u8]> {
        self.data.iter().find_map(|(from, bytes)| {
            let at = usize::try_from(address.checked_sub(*from)?).ok()?;
            bytes.get(at..at.checked_add(usize::try_from(length).ok()?)?)
        })
    }

    fn word(&self, address: u64) -> Option<u64> {
        let moved = || self.moved.get(&address).copied();
        let bytes = self.bytes(address, 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes)).filter(|word| *word != 0).or_else(moved).or(Some(0))
    }

    /// Where the program's code begins, by what the runtime has of its own module (`moduledata`, src/runtime/symtab.go, the
    /// same up to there since Go 1.18). `table`: the address of its table of functions, the first of which is `first` bytes
    /// after that place.
    fn code_begin(&self, table: u64, first: Option<u64>) -> Option<u64> {
        let first = first?;
        let of_module = |at: u64| {
            let word = |number: u64| self.word(at.checked_add(8 * number)?);
            let text = word(MODULE_TEXT)?;
            // Words that happen to be like the table's address have no code around.
            (word(0)? == table && text.checked_add(first)? == word(MODULE_FIRST)?).then_some(text)
        };
        let candidates = self.data.iter().flat_map(|(from, bytes)| {
            let words = bytes.chunks_exact(8).zip(0u64..);
            words.filter_map(move |(word, number)| {
                let word = u64::from_le_bytes(word.try_into().ok()?);
                let at = from.checked_add(8 * number)?;
                let is = word == table || word == 0 && self.moved.get(&at) == Some(&table);
                is.then_some(at)
            })
        });
        { candidates }.take(MOST_CANDIDATES).find_map(of_module)
    }

    /// The text of a string.
    fn text(&self, address: u64) -> Option<&'d str> {
        let length = self.word(address + 8).filter(|length| *length <= MOST_LETTERS)?;
        if length == 0 {
            return Some("");
        }
        std::str::from_utf8(self.bytes(self.word(address)?, length)?).ok()
    }

    /// The numbers that Go has for waits.
    fn waits(&self) -> Vec<(u8, GoWait)> {
        let lengths = FIRST_WAITS.map(|words| words.len() as u64);
        let is_first = |at: u64| {
            let begin =
                [(0, ""), (STRING_BYTES, FIRST_WAITS[0]), (2 * STRING_BYTES, FIRST_WAITS[1])];
            begin.iter().all(|(after, words)| self.text(at + after) == Some(words))
        };
        let first = self.data.iter().find_map(|(from, bytes)| {
            let length = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
            // From where a length of the list is, eight bytes are the least that lies between two.
            let aligned = (0..bytes.len()).step_by(8);
            let places = aligned.filter(|at| {
                length(*at) == Some(lengths[0])
                    && length(*at + STRING_BYTES as usize) == Some(lengths[1])
            });
            let begin = |at: usize| (from + at as u64).checked_sub(STRING_BYTES + 8);
            places.take(MOST_CANDIDATES).find_map(|at| begin(at).filter(|at| is_first(*at)))
        });
        let Some(first) = first else { return Vec::new() };
        let words = (0..MOST_WAITS as u64).map(|number| self.text(first + number * STRING_BYTES));
        let words = words.take_while(Option::is_some).flatten().enumerate();
        words.filter_map(|(number, words)| Some((number as u8, GoWait::named(words)?))).collect()
    }
}
