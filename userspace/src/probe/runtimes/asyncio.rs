//! asyncio, in CPython or its library: finds the functions by which its event loop runs steps (`bpf/asyncio.bpf.c`).
//! They are methods, whose names and addresses are in tables that a stripped file has, too.

use anyhow::{Context, Result};

use super::image::{Image, Memory};
use super::{place_in_c, Found, Runtime};

pub const ASYNCIO: Runtime = Runtime {
    name: "asyncio",
    needs: "Python",
    programs: &["on_asyncio_append", "on_asyncio_copied", "on_asyncio_remove", "on_asyncio_step"],
    find,
};

/// Offset of the methods in a type object (Include/cpython/object.h, 3.8 to 3.13, without --disable-gil).
const TYPE_METHODS: u64 = 232;
/// A method (Include/methodobject.h): the address of its name, then of its function.
const METHOD_BYTES: u64 = 32;
const METHOD_FUNCTION: u64 = 8;
const MOST_METHODS: u64 = 64;

/// Finds CPython in a file.
fn find(image: &Image<'_>) -> Result<Option<Found>> {
    let Some(context) = image.exported("PyContext_Type") else { return Ok(None) };
    image.check_processor()?;
    let memory = image.memory();
    let methods = memory
        .word(context.saturating_add(TYPE_METHODS))
        .context("its type of contexts has no methods")?;
    let run = function(&memory, methods, "run").context("its contexts have no method run")?;
    // deque is the type, not exported by the interpreter, whose first two methods are these.
    let is_method = |at: u64, name| memory.word(at).is_some_and(|text| memory.is_text(text, name));
    let first_two = |(at, text): &(u64, u64)| {
        *text != 0
            && memory.is_text(*text, "append")
            && is_method(at.saturating_add(METHOD_BYTES), "appendleft")
    };
    let deque = { memory.words() }.find(first_two).context("its type deque is not found")?.0;
    let append = function(&memory, deque, "append").context("its deque has no method append")?;
    let copy = image.exported("PyContext_CopyCurrent").context("it does not copy contexts")?;
    let remove = function(&memory, deque, "remove").context("its deque has no method remove")?;
    let enter = image.exported("PyContext_Enter").context("it does not enter contexts")?;
    // The hooks that begin steps come last: if a step began before the other hooks are attached, its cause would not
    // be known.
    let hooks = [
        ("on_asyncio_append", "deque.append", append),
        ("on_asyncio_copied", "PyContext_CopyCurrent", copy),
        ("on_asyncio_remove", "deque.remove", remove),
        ("on_asyncio_step", "PyContext_Enter", enter),
        ("on_asyncio_step", "Context.run", run),
    ];
    let hooks = hooks.map(|(program, name, address)| {
        Ok((program, format!("{name}()"), place_in_c(image, program, address)?))
    });
    Ok(Some(Found {
        hooks: hooks.into_iter().collect::<Result<_>>()?,
        waits: Vec::new(),
        event_loop: None,
    }))
}

/// The function of a method in a table of methods.
fn function(memory: &Memory<'_>, table: u64, name: &str) -> Option<u64> {
    let entries = (0..MOST_METHODS).map(|number| table.checked_add(number * METHOD_BYTES));
    let mut entries =
        entries.map_while(|at| Some((at?, memory.word(at?).filter(|text| *text != 0)?)));
    let (at, _) = entries.find(|(_, text)| memory.is_text(*text, name))?;
    memory.word(at.checked_add(METHOD_FUNCTION)?).filter(|function| *function != 0)
}
