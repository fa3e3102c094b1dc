//! Go: finds in a program's file the functions of the runtime, and the meanings of its numbers for waits.
//!
//! Two functions of the runtime reveal nearly everything about goroutines (`bpf/goroutines.bpf.c`).

mod pclntab;

use anyhow::{bail, Context, Result};
use object::{Object, ObjectSection};

use super::entry::Arguments;
use super::image::{Image, Memory};
use super::{Found, Runtime, MOST_WAITS};
use crate::records::TaskWait;
use pclntab::Pclntab;

pub const GO: Runtime =
    Runtime { name: "Go", needs: "Go", programs: &["on_go_park", "on_go_status"], find };

/// What the programs hook. The first function tells what a goroutine parks for: without it no parking is recorded.
const FUNCTIONS: [&str; 2] = ["runtime.gopark", "runtime.casgstatus"];

/// First bytes of the section that Go programs have (src/debug/buildinfo/buildinfo.go), and the offset of its flags.
const BUILD_INFO: &[u8] = b"\xff Go buildinf:";
const FLAGS_AT: usize = 15;
/// Since Go 1.18 the section itself contains the version. From that version on, functions take arguments in registers
/// on all processors that we know.
const VERSION_INLINE: u8 = 2;

/// The names of the first waits in all versions, after one with an empty name: they identify the list.
const FIRST_WAITS: [&str; 2] = ["GC assist marking", "IO wait"];
/// Most bytes of a wait's name.
const MOST_LETTERS: u64 = 64;
/// A string in memory: its address and its length.
const STRING_BYTES: u64 = 16;

/// Most places to check that look like the right one.
const MOST_CANDIDATES: usize = 4096;

/// Word indexes in the runtime's `moduledata`: the address of the first function, and of the beginning of the code.
const MODULE_FIRST: u64 = 20;
const MODULE_TEXT: u64 = 22;

/// Finds the runtime in a Go program.
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

/// Finds the functions in a stripped file.
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

/// Finds where the program's code begins, by the runtime's data of its own module (`moduledata`, src/runtime/symtab.go,
/// the same up to there since Go 1.18). `table`: the address of its table of functions. The first function is `first`
/// bytes after the beginning of the code.
fn code_begin(memory: &Memory<'_>, table: u64, first: Option<u64>) -> Option<u64> {
    let first = first?;
    let of_module = |at: u64| {
        let word = |number: u64| memory.word(at.checked_add(8 * number)?);
        let text = word(MODULE_TEXT)?;
        // A word that happens to equal the table's address has no matching code addresses after it.
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

/// Finds the numbers that Go has for waits.
fn waits(memory: &Memory<'_>) -> Vec<(u8, TaskWait)> {
    let lengths = FIRST_WAITS.map(|words| words.len() as u64);
    let is_first = |at: u64| {
        let begin = [(0, ""), (STRING_BYTES, FIRST_WAITS[0]), (2 * STRING_BYTES, FIRST_WAITS[1])];
        begin.iter().all(|(after, words)| text(memory, at.saturating_add(*after)) == Some(words))
    };
    let first = memory.data.iter().find_map(|(from, bytes)| {
        let length = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        // Lengths in the list are aligned to eight bytes.
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
