//! `segments.parquet`: one row per segment, the segments of a request together and in order.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{ensure, Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowPredicateFn, RowFilter};
use parquet::arrow::ProjectionMask;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;

use super::{
    batches, decode_rows, file_writer, open_with, rows, to_i64, told, Batches, Ints, Texts,
    BATCH_ROWS, SEGMENTS_HELD_BYTES,
};
use crate::number_column::NumberColumn;
use crate::text_column::TextColumn;
use crate::time_column::TimeColumn;
use rpcprobe_model::{
    By, Category, Evidence, Rule, Segment, Segments, Side, StackUse, Taken, Told,
};

/// Maximum number of different phases that a file may name: far more than exist, and a limit on what is kept forever.
const MAX_PHASES: usize = 256;
/// Maximum length of a phase name in bytes.
const MAX_PHASE_BYTES: usize = 64;

/// A row of the file: `request_id`, `seq`, and the segment.
type SegmentRow = (u64, u64, Segment);

/// Returns every segment of a file with its `request_id`, in the file's order.
///
/// # Errors
/// When the file cannot be read, is not a whole Parquet file, or lacks a column.
pub fn stream_segments(path: &Path) -> Result<impl Iterator<Item = Result<(u64, Segment)>>> {
    let rows = rows(path, open_with(path, &required(), &schema())?, decode)?;
    Ok(rows.map(|row| row.map(|(request_id, _, segment)| (request_id, segment))))
}

/// Returns the file's columns, in the order of its rows.
///
/// # Errors
/// As [`stream_segments`].
pub fn segment_batches(path: &Path) -> Result<Batches> {
    batches(path, open_with(path, &required(), &schema())?)
}

/// Returns the segments of one request, by `seq`; empty if the file has no such request.
///
/// Row groups whose statistics exclude the request are not read. In the other groups, rows of other requests are read
/// only in the column `request_id`.
///
/// # Errors
/// As [`stream_segments`], and when the request's `seq` are not 0, 1, 2, ....
pub fn read_segments_of(path: &Path, request_id: u64) -> Result<Vec<Segment>> {
    let Ok(wanted) = i64::try_from(request_id) else { return Ok(Vec::new()) };
    let builder = open_with(path, &required(), &schema())?;
    let groups = builder.metadata().row_groups().iter().enumerate();
    let groups = groups.filter(|(_, group)| may_hold(group, wanted)).map(|(i, _)| i).collect();
    let mask = ProjectionMask::columns(builder.parquet_schema(), ["request_id"]);
    let matches = ArrowPredicateFn::new(mask, move |batch| {
        let ids = batch.column(0).as_primitive_opt::<Int64Type>().ok_or_else(|| {
            ArrowError::SchemaError("column `request_id` is not Int64".to_owned())
        })?;
        Ok(BooleanArray::from_iter(ids.iter().map(|id| Some(id == Some(wanted)))))
    });
    let builder =
        builder.with_row_groups(groups).with_row_filter(RowFilter::new(vec![Box::new(matches)]));
    let mut found = rows(path, builder, decode)?.collect::<Result<Vec<SegmentRow>>>()?;
    found.sort_by_key(|(_, seq, _)| *seq);
    for (i, (_, seq, _)) in found.iter().enumerate() {
        ensure!(
            *seq == i as u64,
            "{}: request {request_id} has no segment {i} (or two of one number)",
            path.display()
        );
    }
    Ok(found.into_iter().map(|(_, _, segment)| segment).collect())
}

fn may_hold(group: &RowGroupMetaData, request_id: i64) -> bool {
    let column =
        group.columns().iter().find(|column| column.column_path().string() == "request_id");
    match column.and_then(|column| column.statistics()) {
        Some(Statistics::Int64(range)) => {
            range.min_opt().is_none_or(|min| *min <= request_id)
                && range.max_opt().is_none_or(|max| request_id <= *max)
        }
        _ => true,
    }
}

/// Columns that are missing in captures that are older than stacks.
const STACK_COLUMNS: [&str; 3] = ["stack_id", "stack_samples", "samples"];
/// Columns that are missing in captures that are older than the names of rules.
const RULE_COLUMNS: [&str; 2] = ["rule", "shared"];

/// The columns that every file of segments must have.
fn required() -> Schema {
    let all = schema();
    let named = |field: &&Arc<Field>| {
        let name = field.name().as_str();
        !STACK_COLUMNS.contains(&name) && !RULE_COLUMNS.contains(&name)
    };
    Schema::new(all.fields().iter().filter(named).cloned().collect::<Vec<_>>())
}

fn schema() -> Schema {
    let int = |name: &str, null| Field::new(name, DataType::Int64, null);
    let text = |name: &str, null| Field::new(name, DataType::Utf8, null);
    Schema::new(vec![
        int("request_id", false),
        int("seq", false),
        int("start_ns", false),
        int("duration_ns", false),
        text("category", false),
        text("side", false),
        int("pid", false),
        int("tid", false),
        text("comm", false),
        int("cpu", true),
        text("detail", true),
        text("cause", true),
        text("by", true),
        text("evidence", false),
        text("phase", true),
        text("rule", true),
        int("shared", false),
        int("stack_id", true),
        int("stack_samples", true),
        int("samples", true),
    ])
}

/// Names of the number columns, some of which may be null, of the columns of times, and of the text columns; each in the
/// order of [`Row`].
const NUMBERS: [&str; 9] =
    ["request_id", "seq", "pid", "tid", "cpu", "shared", "stack_id", "stack_samples", "samples"];
const TIMES: [&str; 2] = ["start_ns", "duration_ns"];
const TEXTS: [&str; 9] =
    ["category", "side", "comm", "detail", "cause", "by", "evidence", "phase", "rule"];

/// Index of a file's column among the columns of its type.
#[derive(Clone, Copy)]
enum Column {
    Number(usize),
    Time(usize),
    Text(usize),
}

pub(super) struct SegmentWriter {
    file: SerializedFileWriter<Box<dyn Write + Send>>,
    /// The columns of the file, in order.
    columns: Vec<Column>,
    numbers: [NumberColumn; NUMBERS.len()],
    times: [TimeColumn; TIMES.len()],
    texts: [TextColumn; TEXTS.len()],
    /// Number of rows in the current row group.
    rows: usize,
}

impl SegmentWriter {
    pub(super) fn new(sink: Box<dyn Write + Send>) -> Result<SegmentWriter> {
        let schema = Arc::new(schema());
        let (file, _) =
            file_writer(sink, schema.clone())?.into_serialized_writer().map_err(told)?;
        let place = |names: &[&str], name: &str| names.iter().position(|other| *other == name);
        let columns = schema.fields().iter().map(|field| {
            let name = field.name().as_str();
            let number = place(&NUMBERS, name).map(Column::Number);
            let time = || place(&TIMES, name).map(Column::Time);
            let text = || place(&TEXTS, name).map(Column::Text);
            let column = number.or_else(time).or_else(text);
            column.with_context(|| format!("column `{name}` is not written"))
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let nullable = |name: &str| schema.field_with_name(name).is_ok_and(|f| f.is_nullable());
        let texts = TEXTS.map(|name| TextColumn::new(nullable(name)));
        let numbers = NUMBERS.map(|name| NumberColumn::new(nullable(name)));
        let times = [TimeColumn::new()?, TimeColumn::new()?];
        Ok(SegmentWriter { file, columns, numbers, times, texts, rows: 0 })
    }

    pub(super) fn push(&mut self, request_id: u64, segments: &Segments) -> Result<()> {
        let request_id = to_i64("request_id", request_id)?;
        let (mut seq, mut left) = (0, &segments.list[..]);
        while !left.is_empty() {
            let room = BATCH_ROWS - self.rows % BATCH_ROWS;
            let (now, later) = left.split_at(room.min(left.len()));
            self.push_numbers(request_id, seq, now)?;
            self.push_texts(now, &segments.texts)?;
            self.rows += now.len();
            (seq, left) = (seq + now.len(), later);
            if self.rows.is_multiple_of(BATCH_ROWS) && self.memory_size() > SEGMENTS_HELD_BYTES {
                self.end_group()?;
            }
        }
        Ok(())
    }

    fn push_numbers(&mut self, request_id: i64, seq: usize, segments: &[Told]) -> Result<()> {
        let [request, seqs, pids, tids, cpus, shared, stacks, same, all] = &mut self.numbers;
        let [starts, durations] = &mut self.times;
        // Checks only the largest time: if it fits the format, all do.
        let last_ns = segments.iter().map(|s| s.start_ns.max(s.duration_ns)).max().unwrap_or(0);
        to_i64("a time", last_ns)?;
        request.extend(segments.iter().map(|_| request_id))?;
        seqs.extend((seq..seq + segments.len()).map(|seq| seq as i64))?;
        starts.extend(segments.iter().map(|segment| segment.start_ns as i64))?;
        durations.extend(segments.iter().map(|segment| segment.duration_ns as i64))?;
        pids.extend(segments.iter().map(|segment| segment.pid.into()))?;
        tids.extend(segments.iter().map(|segment| segment.tid.into()))?;
        for segment in segments {
            cpus.push_option(segment.cpu.map(i64::from))?;
        }
        shared.extend(segments.iter().map(|segment| segment.shared.into()))?;
        if segments.iter().all(|segment| segment.stack.is_none()) {
            let columns = [stacks, same, all].into_iter();
            return { columns }.try_for_each(|column| column.push_nulls(segments.len()));
        }
        for segment in segments {
            let stack = segment.stack;
            let id = stack.map(|stack| to_i64("stack_id", stack.stack_id)).transpose()?;
            let (same_samples, all_samples) = match stack.map(|stack| stack.taken) {
                Some(Taken::Sampled { same, all }) => (Some(same), Some(all)),
                Some(Taken::AtSleep) | None => (None, None),
            };
            let count = |count: Option<u64>| count.map(|n| to_i64("samples", n)).transpose();
            stacks.push_option(id)?;
            same.push_option(count(same_samples)?)?;
            all.push_option(count(all_samples)?)?;
        }
        Ok(())
    }

    fn push_texts(&mut self, segments: &[Told], texts: &rpcprobe_model::Texts) -> Result<()> {
        let [category, side, comm, detail, cause, by, evidence, phase, rule] = &mut self.texts;
        category.extend_values(
            segments
                .iter()
                .map(|segment| Some((segment.category as usize, segment.category.name()))),
        )?;
        side.extend_values(
            segments.iter().map(|segment| Some((segment.side as usize, segment.side.name()))),
        )?;
        comm.extend(texts, segments.iter().map(|segment| Some(segment.comm)))?;
        detail.extend(texts, segments.iter().map(|segment| segment.detail))?;
        cause.extend(texts, segments.iter().map(|segment| segment.cause))?;
        by.extend(texts, segments.iter().map(|segment| segment.by))?;
        evidence.extend_values(
            segments
                .iter()
                .map(|segment| Some((segment.evidence as usize, segment.evidence.name()))),
        )?;
        for segment in segments {
            phase.push_static(segment.phase)?;
        }
        rule.extend_values(
            segments.iter().map(|segment| segment.rule.map(|rule| (rule as usize, rule.name()))),
        )
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.end_group()?;
        self.file.finish().map_err(told)?;
        Ok(())
    }

    /// Memory size of the current row group's rows in bytes.
    fn memory_size(&self) -> usize {
        let numbers: usize = self.numbers.iter().map(NumberColumn::memory_size).sum();
        let times: usize = self.times.iter().map(TimeColumn::memory_size).sum();
        numbers + times + self.texts.iter().map(TextColumn::memory_size).sum::<usize>()
    }

    fn end_group(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let described = self.file.schema_descr().columns().to_vec();
        let mut group = self.file.next_row_group().map_err(told)?;
        for (column, described) in self.columns.iter().zip(described) {
            let (chunk, close) = match column {
                Column::Number(number) => self.numbers[*number].finish(described)?,
                Column::Time(time) => self.times[*time].finish(described)?,
                Column::Text(text) => self.texts[*text].finish(described)?,
            };
            group.append_column(&Bytes::from(chunk), close).map_err(told)?;
        }
        group.close().map_err(told)?;
        self.rows = 0;
        Ok(())
    }
}

struct Reader {
    request_id: Ints,
    seq: Ints,
    start_ns: Ints,
    duration_ns: Ints,
    category: Texts,
    side: Texts,
    pid: Ints,
    tid: Ints,
    comm: Texts,
    cpu: Ints,
    detail: Texts,
    cause: Texts,
    by: Texts,
    evidence: Texts,
    phase: Texts,
    /// `rule` and `shared`, if the file has them.
    rule: Option<(Texts, Ints)>,
    /// `stack_id`, `stack_samples`, `samples`, if the file has them.
    stack: Option<[Ints; 3]>,
}

impl Reader {
    fn of(batch: &RecordBatch) -> Result<Reader> {
        let int = |name| Ints::of(batch, name);
        let text = |name| Texts::of(batch, name);
        let has_stacks = STACK_COLUMNS.iter().all(|name| batch.column_by_name(name).is_some());
        let has_rules = RULE_COLUMNS.iter().all(|name| batch.column_by_name(name).is_some());
        let [rule, shared] = RULE_COLUMNS;
        let rules = || -> Result<_> { Ok((text(rule)?, int(shared)?)) };
        let [id, same, all] = STACK_COLUMNS;
        let stack = || -> Result<_> { Ok([int(id)?, int(same)?, int(all)?]) };
        Ok(Reader {
            request_id: int("request_id")?,
            seq: int("seq")?,
            start_ns: int("start_ns")?,
            duration_ns: int("duration_ns")?,
            category: text("category")?,
            side: text("side")?,
            pid: int("pid")?,
            tid: int("tid")?,
            comm: text("comm")?,
            cpu: int("cpu")?,
            detail: text("detail")?,
            cause: text("cause")?,
            by: text("by")?,
            evidence: text("evidence")?,
            phase: text("phase")?,
            rule: has_rules.then(rules).transpose()?,
            stack: has_stacks.then(stack).transpose()?,
        })
    }

    fn row(&self, row: usize) -> Result<SegmentRow> {
        let segment = Segment {
            start_ns: self.start_ns.need(row)?,
            duration_ns: self.duration_ns.need(row)?,
            category: self.category.named(row, Category::from_name)?,
            side: self.side.named(row, Side::from_name)?,
            pid: self.pid.need(row)?,
            tid: self.tid.need(row)?,
            comm: self.comm.need(row)?.into(),
            cpu: self.cpu.get(row)?,
            phase: self.phase.get(row).map(phase_name).transpose()?,
            detail: self.detail.owned(row),
            cause: self.cause.owned(row),
            by: self.by.get(row).map(By::from),
            evidence: self.evidence.named(row, Evidence::from_name)?,
            rule: self.rule(row)?,
            shared: self.shared(row)?,
            stack: self.stack(row)?,
        };
        Ok((self.request_id.need(row)?, self.seq.need(row)?, segment))
    }
}

impl Reader {
    fn rule(&self, row: usize) -> Result<Option<Rule>> {
        let Some((rule, _)) = self.rule.as_ref().filter(|(rule, _)| rule.get(row).is_some()) else {
            return Ok(None);
        };
        rule.named(row, Rule::from_name).map(Some)
    }

    fn shared(&self, row: usize) -> Result<u32> {
        self.rule.as_ref().map_or(Ok(1), |(_, shared)| shared.need(row))
    }

    fn stack(&self, row: usize) -> Result<Option<StackUse>> {
        let Some([id, same, all]) = &self.stack else { return Ok(None) };
        let Some(stack_id) = id.get(row)? else { return Ok(None) };
        let taken = match (same.get(row)?, all.get(row)?) {
            (Some(same), Some(all)) => Taken::Sampled { same, all },
            _ => Taken::AtSleep,
        };
        Ok(Some(StackUse { stack_id, taken }))
    }
}

fn decode(batch: &RecordBatch, first_row: u64) -> Result<Vec<SegmentRow>> {
    let reader = Reader::of(batch)?;
    decode_rows(batch, first_row, |row| reader.row(row))
}

/// Returns the name as a string that lives forever, as the model requires. Each different name is kept once.
fn phase_name(text: &str) -> Result<&'static str> {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = names.get(text) {
        return Ok(name);
    }
    ensure!(text.len() <= MAX_PHASE_BYTES, "`phase` is longer than {MAX_PHASE_BYTES} bytes");
    ensure!(names.len() < MAX_PHASES, "`phase` has more than {MAX_PHASES} different values");
    let name: &'static str = Box::leak(text.to_owned().into_boxed_str());
    names.insert(name);
    Ok(name)
}
