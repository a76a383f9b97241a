//! A job in SQLite: its record, its request and its answer.
//!
//! A row holds 2 MB at most, so request and answer are kept in rows of 1 MB. Reading an object that was never created
//! writes nothing: the tables come with the job.

use worker::{Result, SqlStorage, SqlStorageValue};

use super::wire;
use crate::job::Record;
use crate::json;

/// The tables of one job.
pub(super) struct JobStorage {
    sql: SqlStorage,
}

impl JobStorage {
    pub(super) const fn new(sql: SqlStorage) -> Self {
        Self { sql }
    }

    /// The record, if the job exists.
    pub(super) fn load(&self) -> Result<Option<Record>> {
        let exists = self.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'record'")?;
        if exists.is_empty() {
            return Ok(None);
        }
        match self.rows("SELECT json FROM record")?.into_iter().next() {
            Some(SqlStorageValue::String(json)) => Ok(Some(wire::parse(&json)?)),
            _ => Ok(None),
        }
    }

    /// Stores a new job.
    pub(super) fn create(&self, record: &Record, request: &[u8]) -> Result<()> {
        for table in [
            "CREATE TABLE IF NOT EXISTS record (id INTEGER PRIMARY KEY CHECK (id = 0), json TEXT NOT NULL)",
            "CREATE TABLE IF NOT EXISTS request (part INTEGER PRIMARY KEY, bytes BLOB NOT NULL)",
            "CREATE TABLE IF NOT EXISTS answer (part INTEGER PRIMARY KEY, bytes BLOB NOT NULL)",
        ] {
            self.sql.exec(table, None)?;
        }
        self.write("INSERT OR REPLACE INTO request (part, bytes) VALUES (?, ?)", request)?;
        self.save(record)
    }

    /// Writes the record.
    pub(super) fn save(&self, record: &Record) -> Result<()> {
        let json = json::write(record);
        self.sql.exec("INSERT OR REPLACE INTO record (id, json) VALUES (0, ?)", vec![json.into()])?;
        Ok(())
    }

    /// Appends the request to `out`.
    pub(super) fn read_request(&self, out: &mut Vec<u8>) -> Result<()> {
        self.read("SELECT bytes FROM request ORDER BY part", out)
    }

    /// Stores the answer.
    pub(super) fn write_answer(&self, answer: &[u8]) -> Result<()> {
        self.write("INSERT OR REPLACE INTO answer (part, bytes) VALUES (?, ?)", answer)
    }

    /// The answer, if there is one.
    pub(super) fn read_answer(&self) -> Result<Option<Vec<u8>>> {
        let mut answer = Vec::new();
        self.read("SELECT bytes FROM answer ORDER BY part", &mut answer)?;
        Ok((!answer.is_empty()).then_some(answer))
    }

    /// Erases request and answer.
    pub(super) fn erase_content(&self) -> Result<()> {
        self.sql.exec("DELETE FROM request", None)?;
        self.sql.exec("DELETE FROM answer", None)?;
        Ok(())
    }

    fn write(&self, insert: &str, bytes: &[u8]) -> Result<()> {
        for (part, chunk) in bytes.chunks(PART_BYTES).enumerate() {
            let part = i64::try_from(part).unwrap_or(i64::MAX);
            self.sql.exec(insert, vec![part.into(), chunk.to_vec().into()])?;
        }
        Ok(())
    }

    fn read(&self, select: &str, out: &mut Vec<u8>) -> Result<()> {
        for value in self.rows(select)? {
            if let SqlStorageValue::Blob(bytes) = value {
                out.extend_from_slice(&bytes);
            }
        }
        Ok(())
    }

    /// The first column of every row.
    fn rows(&self, select: &str) -> Result<Vec<SqlStorageValue>> {
        let mut values = Vec::new();
        for row in self.sql.exec(select, None)?.raw() {
            values.extend(row?.into_iter().next());
        }
        Ok(values)
    }
}

const PART_BYTES: usize = 1_000_000;
