//! `symbols.parquet`: the names of code, looked up at the end of the capture. `stacks.parquet`: the
//! stacks that segments refer to, one row per function, innermost first.

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{bail, ensure, Context, Result};
use arrow_array::builder::{BooleanBuilder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use serde::Serialize;

use super::{bools, decode_rows, file_writer, open, rows, to_i64, Ints, Texts};
use rpcprobe_engine::event::Module;
use rpcprobe_engine::stacks::{Frame, Stacks};
use rpcprobe_engine::symbols::{Line, Place, Symbols};

/// A function in a stack, or an address without a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownFrame {
    pub kernel: bool,
    /// The function's name. For an address without a name: `[module+0xoffset]` or `[unknown]`. For
    /// frames that were left out: `[deeper]`.
    pub function: String,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// The function is inlined into the next function.
    pub inlined: bool,
    /// Path of the file that contains the code; `None` for the kernel and for unknown code.
    pub module: Option<String>,
    /// Offset in that file, or the address of unknown code. `None` for the kernel, whose location
    /// only root may know.
    pub address: Option<String>,
}

fn text(name: &str, null: bool) -> Field {
    Field::new(name, DataType::Utf8, null)
}

fn int(name: &str, null: bool) -> Field {
    Field::new(name, DataType::Int64, null)
}

fn address_text(address: u64) -> String {
    format!("{address:#x}")
}

fn parse_address(text: &str) -> Result<u64> {
    let digits = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    digits.with_context(|| format!("`address` is {text:?}"))
}

// ---- symbols ----------------------------------------------------------------------------------

fn symbols_schema() -> Schema {
    Schema::new(vec![
        text("module", true),
        text("identity", true),
        text("address", false),
        text("function", false),
        text("file", true),
        int("line", true),
        Field::new("inlined", DataType::Boolean, false),
    ])
}

/// Writes `symbols.parquet`.
///
/// # Errors
/// When it cannot be written.
pub fn write_symbols(sink: impl Write + Send + 'static, symbols: &Symbols) -> Result<()> {
    let (mut module, mut identity) = (StringBuilder::new(), StringBuilder::new());
    let (mut address, mut lines) = (StringBuilder::new(), Lines::default());
    for (place, line) in symbols.iter().flat_map(|(p, l)| l.iter().map(move |line| (p, line))) {
        module.append_option(place.module.map(|module| &module.path));
        identity.append_option(place.module.map(|module| &module.identity));
        address.append_value(address_text(place.address));
        lines.push(&line.function, line.file.as_ref(), line.line, line.inlined);
    }
    let head: [ArrayRef; 3] =
        [Arc::new(module.finish()), Arc::new(identity.finish()), Arc::new(address.finish())];
    write(sink, symbols_schema(), head.into_iter().chain(lines.finish()).collect())
}

/// Reads `symbols.parquet`.
///
/// # Errors
/// When it cannot be read, or is damaged.
pub fn read_symbols(path: &Path) -> Result<Symbols> {
    let mut symbols = Symbols::default();
    for row in rows(path, open(path, &symbols_schema())?, decode_symbols)? {
        let (module, address, line) = row?;
        symbols.insert(Place { module: module.as_ref(), address }, line);
    }
    Ok(symbols)
}

type SymbolRow = (Option<Module>, u64, Line);

fn decode_symbols(batch: &RecordBatch, first_row: u64) -> Result<Vec<SymbolRow>> {
    let (module, identity) = (Texts::of(batch, "module")?, Texts::of(batch, "identity")?);
    let (address, function) = (Texts::of(batch, "address")?, Texts::of(batch, "function")?);
    let (file, line) = (Texts::of(batch, "file")?, Ints::of(batch, "line")?);
    let inlined = bools(batch, "inlined")?;
    decode_rows(batch, first_row, |row| {
        let module = match (module.get(row), identity.get(row)) {
            (None, None) => None,
            (Some(path), Some(id)) => Some(Module { path: path.into(), identity: id.into() }),
            _ => bail!("only one of `module` and `identity` is null"),
        };
        let line = Line {
            function: function.need(row)?.to_owned(),
            file: file.owned(row),
            line: line.get(row)?,
            inlined: inlined.value(row),
        };
        Ok((module, parse_address(address.need(row)?)?, line))
    })
}

// ---- stacks -----------------------------------------------------------------------------------

fn stacks_schema() -> Schema {
    Schema::new(vec![
        int("stack_id", false),
        int("depth", false),
        Field::new("kernel", DataType::Boolean, false),
        text("module", true),
        text("address", true),
        text("function", false),
        text("file", true),
        int("line", true),
        Field::new("inlined", DataType::Boolean, false),
    ])
}

/// Writes `stacks.parquet`: the stacks that segments refer to.
///
/// # Errors
/// When it cannot be written.
pub fn write_stacks(sink: impl Write + Send + 'static, stacks: &Stacks) -> Result<()> {
    let (mut id, mut depth) = (Int64Builder::new(), Int64Builder::new());
    let (mut kernel, mut module) = (BooleanBuilder::new(), StringBuilder::new());
    let (mut address, mut lines) = (StringBuilder::new(), Lines::default());
    for (number, stack) in (1..).zip(stacks.shown()) {
        let frames = stack.iter().flat_map(|frame| shown(stacks, *frame));
        for (level, frame) in (0..).zip(frames) {
            id.append_value(to_i64("stack_id", number)?);
            depth.append_value(level);
            kernel.append_value(frame.kernel);
            module.append_option(frame.module);
            address.append_option(frame.address);
            lines.push(&frame.function, frame.file.as_ref(), frame.line, frame.inlined);
        }
    }
    let head: [ArrayRef; 5] = [
        Arc::new(id.finish()),
        Arc::new(depth.finish()),
        Arc::new(kernel.finish()),
        Arc::new(module.finish()),
        Arc::new(address.finish()),
    ];
    write(sink, stacks_schema(), head.into_iter().chain(lines.finish()).collect())
}

/// Returns the functions of a frame; at least one.
fn shown(stacks: &Stacks, frame: Frame) -> Vec<ShownFrame> {
    let place = stacks.place(frame);
    let nameless = |function: String| ShownFrame {
        kernel: matches!(frame, Frame::Kernel(_)),
        function,
        file: None,
        line: None,
        inlined: false,
        module: place.and_then(|place| Some(place.module?.path.to_string())),
        address: match frame {
            Frame::User { offset: address, .. } | Frame::Unknown(address) => {
                Some(address_text(address))
            }
            Frame::Kernel(_) | Frame::Cut => None,
        },
    };
    let Some(place) = place else {
        let function = if frame == Frame::Cut { "[deeper]" } else { "[unknown]" };
        return vec![nameless(function.into())];
    };
    match stacks.symbols.at(place) {
        Some(lines) => (lines.iter())
            .map(|line| ShownFrame {
                file: line.file.clone(),
                line: line.line,
                inlined: line.inlined,
                ..nameless(line.function.clone())
            })
            .collect(),
        None => vec![nameless(match place.module {
            None => "[unknown]".into(),
            Some(module) => {
                let name = module.path.rsplit('/').next().unwrap_or(&module.path);
                // The kernel's own names for mappings without a file have brackets.
                let name = name.trim_start_matches('[').trim_end_matches(']');
                format!("[{name}+{:#x}]", place.address)
            }
        })],
    }
}

/// Returns the stacks with these numbers from `stacks.parquet`.
///
/// # Errors
/// When it cannot be read, is damaged, or lacks one of the stacks.
pub fn read_stacks(path: &Path, ids: &HashSet<u64>) -> Result<BTreeMap<u64, Vec<ShownFrame>>> {
    let mut stacks: BTreeMap<u64, Vec<ShownFrame>> = BTreeMap::new();
    for row in rows(path, open(path, &stacks_schema())?, decode_stacks)? {
        let (id, depth, frame) = row?;
        if ids.contains(&id) {
            let stack = stacks.entry(id).or_default();
            ensure!(depth == stack.len() as u64, "{}: stack {id} is damaged", path.display());
            stack.push(frame);
        }
    }
    Ok(stacks)
}

fn decode_stacks(batch: &RecordBatch, first_row: u64) -> Result<Vec<(u64, u64, ShownFrame)>> {
    let (id, depth) = (Ints::of(batch, "stack_id")?, Ints::of(batch, "depth")?);
    let (kernel, inlined) = (bools(batch, "kernel")?, bools(batch, "inlined")?);
    let (module, address) = (Texts::of(batch, "module")?, Texts::of(batch, "address")?);
    let (function, file) = (Texts::of(batch, "function")?, Texts::of(batch, "file")?);
    let line = Ints::of(batch, "line")?;
    decode_rows(batch, first_row, |row| {
        let frame = ShownFrame {
            kernel: kernel.value(row),
            function: function.need(row)?.to_owned(),
            file: file.owned(row),
            line: line.get(row)?,
            inlined: inlined.value(row),
            module: module.owned(row),
            address: address.owned(row),
        };
        Ok((id.need(row)?, depth.need(row)?, frame))
    })
}

// ---- both -------------------------------------------------------------------------------------

/// The columns at the end of both files.
#[derive(Default)]
struct Lines {
    function: StringBuilder,
    file: StringBuilder,
    line: Int64Builder,
    inlined: BooleanBuilder,
}

impl Lines {
    fn push(&mut self, function: &str, file: Option<&String>, line: Option<u32>, inlined: bool) {
        self.function.append_value(function);
        self.file.append_option(file);
        self.line.append_option(line.map(i64::from));
        self.inlined.append_value(inlined);
    }

    fn finish(mut self) -> [ArrayRef; 4] {
        [
            Arc::new(self.function.finish()),
            Arc::new(self.file.finish()),
            Arc::new(self.line.finish()),
            Arc::new(self.inlined.finish()),
        ]
    }
}

fn write(sink: impl Write + Send + 'static, schema: Schema, columns: Vec<ArrayRef>) -> Result<()> {
    let schema = Arc::new(schema);
    let mut file = file_writer(Box::new(sink), schema.clone())?;
    file.write(&RecordBatch::try_new(schema, columns)?)?;
    file.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use tempfile::TempDir;

    use super::*;

    fn line(function: &str, file: Option<&str>, inlined: bool) -> Line {
        let (function, file) = (function.to_string(), file.map(str::to_string));
        Line { function, line: file.as_ref().map(|_| 7), file, inlined }
    }

    fn symbols() -> Symbols {
        let mut symbols = Symbols::default();
        let module = Module { path: "/lib/\u{1b}x".into(), identity: "build-id:ab".into() };
        let kernel = Place { module: None, address: u64::MAX };
        let user = Place { module: Some(&module), address: 0 };
        symbols.insert(kernel, line("schedule", None, false));
        symbols.insert(user, line("inner", Some("/src/é.c"), true));
        symbols.insert(user, line("outer", None, false));
        symbols
    }

    #[test]
    fn symbols_are_read_as_written() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("symbols.parquet");
        for symbols in [symbols(), Symbols::default()] {
            write_symbols(File::create(&path).unwrap(), &symbols).unwrap();
            assert_eq!(read_symbols(&path).unwrap(), symbols);
        }
    }

    #[test]
    fn damaged_files_are_errors() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("symbols.parquet");
        write_symbols(File::create(&path).unwrap(), &symbols()).unwrap();
        let whole = fs::read(&path).unwrap();
        for length in [0, 1, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(read_symbols(&path).is_err());
        }
        for at in (0..whole.len()).step_by(7) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            fs::write(&path, &bytes).unwrap();
            let _ = read_symbols(&path);
        }
        // A file of another kind.
        fs::write(&path, &whole).unwrap();
        assert!(read_stacks(&path, &HashSet::new()).is_err());
        assert!(parse_address("0x").is_err() && parse_address("12").is_err());
    }
}
