//! Go: what a program's file tells of the runtime in it: where its functions are, and what its numbers of waits mean.
//!
//! Two functions of the runtime tell nearly all of goroutines (`bpf/goroutines.bpf.c`).

mod pclntab;

use anyhow::{bail, Context, Result};
use object::{Object, ObjectSection};

use super::entry::Arguments;
use super::image::{Image, Memory};
use super::{Found, Runtime, MOST_WAITS};
use crate::records::TaskWait;
use pclntab::Pclntab;

pub const GO: Runtime =
    Runtime { name: "Go", needs: "built with Go", programs: &["on_go_park", "on_go_status"], find };

/// What the programs hook. First what a goroutine parks for: without it nothing is told of its parking.
const FUNCTIONS: [&str; 2] = ["runtime.gopark", "runtime.casgstatus"];

/// Begin of the section that Go programs have (src/debug/buildinfo/buildinfo.go), and where in it are flags.
const BUILD_INFO: &[u8] = b"\xff Go buildinf:";
const FLAGS_AT: usize = 15;
/// Since Go 1.18 versions are in the section itself. From that version on, functions take arguments in registers
/// on all processors that we know.
const VERSION_INLINE: u8 = 2;

/// The first waits of all versions, after one without words: by them their list is found.
const FIRST_WAITS: [&str; 2] = ["GC assist marking", "IO wait"];
/// No words are longer.
const MOST_LETTERS: u64 = 64;
/// A string in memory: its address and its length.
const STRING_BYTES: u64 = 16;

/// Places that look like what is sought.
const MOST_CANDIDATES: usize = 4096;

/// Words of the runtime's `moduledata`: the address of the first function, and of the code's begin.
const MODULE_FIRST: u64 = 20;
const MODULE_TEXT: u64 = 22;

/// The runtime in a Go program.
fn find(image: &Image<'_>) -> Result<Option<Found>> {
    let Some(info) = image.file.section_by_name(".go.buildinfo") else { return Ok(None) };
    image.check_processor()?;
    let info = info.data().context("its build information cannot be read")?;
    if !info.starts_with(BUILD_INFO) {
        return Ok(None);
    }
    if info.get(FLAGS_AT).is_none_or(|flags| flags & VERSION_INLINE == 0) {
        bail!("it was built with a Go before 1.18");
    }
    let memory = image.memory();
    let symbol = |function| image.symbols().find(|(name, _)| *name == function);
    let addresses = match FUNCTIONS.map(symbol) {
        [Some((_, park)), Some((_, status))] => [park, status],
        _ => without_symbols(image, &memory)?,
    };
    let waits = waits(&memory);
    if waits.is_empty() {
        bail!("the words that its Go has for waits are not found");
    }
    let hooks = GO.programs.iter().zip(FUNCTIONS).zip(addresses);
    let hooks = hooks.map(|((program, function), address)| {
        Ok((*program, function.to_owned(), image.place(address, Arguments::Go)?))
    });
    Ok(Some(Found { hooks: hooks.collect::<Result<_>>()?, waits, event_loop: None }))
}

/// Where the functions are in a file that is stripped.
fn without_symbols(image: &Image<'_>, memory: &Memory<'_>) -> Result<[u64; 2]> {
    let names = [".gopclntab", ".data.rel.ro.gopclntab"];
    let section = names.iter().find_map(|name| image.file.section_by_name(name));
    let section = section.context("it has neither symbols nor Go's own table of functions")?;
    let table = Pclntab::of(section.data().context("its table of functions cannot be read")?)?;
    let text = code_begin(memory, section.address(), table.first());
    let text = text.context("it is stripped, and where its code begins is not found")?;
    let mut addresses = [0; 2];
    for (address, function) in addresses.iter_mut().zip(FUNCTIONS) {
        let place = text.checked_add(table.function(function)?);
        *address = place.context("its table of functions leads nowhere")?;
    }
    Ok(addresses)
}

/// Where the program's code begins, by what the runtime has of its own module (`moduledata`, src/runtime/symtab.go, the
/// same up to there since Go 1.18). `table`: the address of its table of functions, the first of which is `first` bytes
/// after that place.
fn code_begin(memory: &Memory<'_>, table: u64, first: Option<u64>) -> Option<u64> {
    let first = first?;
    let of_module = |at: u64| {
        let word = |number: u64| memory.word(at.checked_add(8 * number)?);
        let text = word(MODULE_TEXT)?;
        // Words that happen to be like the table's address have no code around.
        (word(0)? == table && text.checked_add(first)? == word(MODULE_FIRST)?).then_some(text)
    };
    let candidates = memory.words().filter(|(_, word)| *word == table);
    candidates.take(MOST_CANDIDATES).find_map(|(at, _)| of_module(at))
}

/// The text of a string.
fn text<'d>(memory: &Memory<'d>, address: u64) -> Option<&'d str> {
    let length = memory.word(address.saturating_add(8)).filter(|length| *length <= MOST_LETTERS)?;
    if length == 0 {
        return Some("");
    }
    std::str::from_utf8(memory.bytes(memory.word(address)?, length)?).ok()
}

/// The numbers that Go has for waits.
fn waits(memory: &Memory<'_>) -> Vec<(u8, TaskWait)> {
    let lengths = FIRST_WAITS.map(|words| words.len() as u64);
    let is_first = |at: u64| {
        let begin = [(0, ""), (STRING_BYTES, FIRST_WAITS[0]), (2 * STRING_BYTES, FIRST_WAITS[1])];
        begin.iter().all(|(after, words)| text(memory, at.saturating_add(*after)) == Some(words))
    };
    let first = memory.data.iter().find_map(|(from, bytes)| {
        let length = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        // From where a length of the list is, eight bytes are the least that lies between two.
        let aligned = (0..bytes.len()).step_by(8);
        let places = aligned.filter(|at| {
            length(*at) == Some(lengths[0])
                && length(*at + STRING_BYTES as usize) == Some(lengths[1])
        });
        let begin = |at: usize| from.saturating_add(at as u64).checked_sub(STRING_BYTES + 8);
        places.take(MOST_CANDIDATES).find_map(|at| begin(at).filter(|at| is_first(*at)))
    });
    let Some(first) = first else { return Vec::new() };
    let words = (0..MOST_WAITS as u64)
        .map(|number| text(memory, first.saturating_add(number * STRING_BYTES)));
    let words = words.take_while(Option::is_some).flatten().enumerate();
    words.filter_map(|(number, words)| Some((number as u8, TaskWait::named(words)?))).collect()
}
