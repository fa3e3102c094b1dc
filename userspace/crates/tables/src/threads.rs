//! `threads.parquet`: the ledger, one row per traced thread.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::{
    decode_rows, file_writer, open, rows, to_i64, told, write_batch, FileWriter, Ints, Texts,
    REQUESTS_HELD_BYTES,
};
use rpcprobe_engine::ownership::ledger::Account;

const NUMBERS: [&str; 8] =
    ["pid", "tid", "start_ns", "duration_ns", "cpu_ns", "own_ns", "shared_ns", "none_ns"];

fn schema() -> Schema {
    let mut fields = vec![Field::new("comm", DataType::Utf8, false)];
    fields.extend(NUMBERS.map(|name| Field::new(name, DataType::Int64, false)));
    Schema::new(fields)
}

/// Writes accounts as they come in, with bounded memory.
pub struct ThreadWriter {
    file: FileWriter,
    schema: Arc<Schema>,
}

impl ThreadWriter {
    /// Starts the file.
    ///
    /// # Errors
    /// When the file's first bytes cannot be written.
    pub fn new(sink: impl Write + Send + 'static) -> Result<ThreadWriter> {
        let schema = Arc::new(schema());
        Ok(ThreadWriter { file: file_writer(Box::new(sink), schema.clone())?, schema })
    }

    /// Adds accounts.
    ///
    /// # Errors
    /// When a number does not fit in INT64, or the file cannot be written.
    pub fn push(&mut self, accounts: &[Account]) -> Result<()> {
        if accounts.is_empty() {
            return Ok(());
        }
        let mut comm = StringBuilder::new();
        let mut numbers = NUMBERS.map(|_| Int64Builder::new());
        for account in accounts {
            comm.append_value(&account.comm);
            let values = [
                u64::from(account.pid),
                u64::from(account.tid),
                account.since_ns,
                account.until_ns - account.since_ns,
                account.cpu_ns,
                account.own_ns,
                account.shared_ns,
                account.none_ns(),
            ];
            for ((name, column), value) in NUMBERS.iter().zip(&mut numbers).zip(values) {
                column.append_value(to_i64(name, value)?);
            }
        }
        let columns = numbers.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef);
        let columns = [Arc::new(comm.finish()) as ArrayRef].into_iter().chain(columns).collect();
        let batch = RecordBatch::try_new(self.schema.clone(), columns)?;
        write_batch(&mut self.file, &batch, REQUESTS_HELD_BYTES)
    }

    /// Writes what is left, and the footer.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(self) -> Result<()> {
        self.file.close().map_err(told)?;
        Ok(())
    }
}

/// Reads the whole file, ordered by thread number.
///
/// # Errors
/// When it cannot be read, is not a whole Parquet file, or lacks a column.
pub fn read_threads(path: &Path) -> Result<Vec<Account>> {
    let rows = rows(path, open(path, &schema())?, decode)?;
    let mut accounts = rows.collect::<Result<Vec<Account>>>()?;
    accounts.sort_by_key(Account::number);
    Ok(accounts)
}

fn decode(batch: &RecordBatch, first_row: u64) -> Result<Vec<Account>> {
    let comm = Texts::of(batch, "comm")?;
    let [pid, tid, start, duration, cpu, own, shared, _] = NUMBERS.map(|n| Ints::of(batch, n));
    let (pid, tid, start, duration) = (pid?, tid?, start?, duration?);
    let (cpu, own, shared) = (cpu?, own?, shared?);
    decode_rows(batch, first_row, |row| {
        let since_ns: u64 = start.need(row)?;
        let duration_ns: u64 = duration.need(row)?;
        Ok(Account {
            pid: pid.need(row)?,
            tid: tid.need(row)?,
            comm: comm.need(row)?.to_string(),
            since_ns,
            until_ns: since_ns.saturating_add(duration_ns),
            cpu_ns: cpu.need(row)?,
            own_ns: own.need(row)?,
            shared_ns: shared.need(row)?,
        })
    })
}
