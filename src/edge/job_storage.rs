//! A job in SQLite: its record, its request and its answer.
//!
//! A row holds 2 MB at most, so request and answer are kept in rows of 1 MB. Reading an object that was never created
//! writes nothing: the tables come with the job.

use std::cell::Cell;

use worker::{Result, SqlStorage, SqlStorageValue};

use super::wire;
use crate::api::events::Entry;
use crate::job::Record;
use crate::json;

/// The tables of one job.
pub(super) struct JobStorage {
    sql: SqlStorage,
    /// Whether there is a journal, once that is known.
    has_journal: Cell<Option<bool>>,
}

impl JobStorage {
    pub(super) const fn new(sql: SqlStorage) -> Self {
        Self { sql, has_journal: Cell::new(None) }
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

    /// Erases request and answer, and what was ever told of the job.
    pub(super) fn erase_content(&self) -> Result<()> {
        if self.journal_is_open()? {
            self.sql.exec("DELETE FROM journal", None)?;
        }
        self.sql.exec("DELETE FROM request", None)?;
        self.sql.exec("DELETE FROM answer", None)?;
        Ok(())
    }

    /// Whether there is a journal: whether anybody has ever watched.
    pub(super) fn journal_is_open(&self) -> Result<bool> {
        if let Some(known) = self.has_journal.get() {
            return Ok(known);
        }
        let exists = !self.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'journal'")?.is_empty();
        self.has_journal.set(Some(exists));
        Ok(exists)
    }

    /// Everything has been deleted.
    pub(super) fn forget(&self) {
        self.has_journal.set(None);
    }

    /// Begins the journal.
    pub(super) fn open_journal(&self) -> Result<()> {
        if !self.journal_is_open()? {
            // The numbers of entries that are gone are never given again.
            let table = "CREATE TABLE journal (entry INTEGER PRIMARY KEY AUTOINCREMENT, is_status INTEGER, json TEXT)";
            self.sql.exec(table, None)?;
            self.has_journal.set(Some(true));
        }
        Ok(())
    }

    /// Appends to the journal, which forgets what is too old.
    pub(super) fn write_journal(&self, entry: &Entry) -> Result<()> {
        let is_status = i32::from(matches!(entry, Entry::Status { .. }));
        let insert = "INSERT INTO journal (is_status, json) VALUES (?, ?)";
        self.sql.exec(insert, vec![is_status.into(), json::write(entry).into()])?;
        let forget = "DELETE FROM journal WHERE entry <= (SELECT max(entry) FROM journal) - ?";
        self.sql.exec(forget, vec![JOURNAL_ENTRIES.into()])?;
        Ok(())
    }

    /// The newest status in the journal.
    pub(super) fn newest_status(&self) -> Result<Option<(u64, Entry)>> {
        Ok(self
            .journal("SELECT entry, json FROM journal WHERE is_status ORDER BY entry DESC LIMIT 1", Vec::new())?
            .pop())
    }

    /// The journal after this entry, in order.
    pub(super) fn read_journal(&self, after: u64) -> Result<Vec<(u64, Entry)>> {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        self.journal("SELECT entry, json FROM journal WHERE entry > ? ORDER BY entry", vec![after.into()])
    }

    fn journal(&self, select: &str, bindings: Vec<SqlStorageValue>) -> Result<Vec<(u64, Entry)>> {
        let mut entries = Vec::new();
        for row in self.sql.exec(select, bindings)?.raw() {
            let mut row = row?.into_iter();
            if let (Some(SqlStorageValue::Integer(entry)), Some(SqlStorageValue::String(json))) =
                (row.next(), row.next())
            {
                entries.push((u64::try_from(entry).unwrap_or_default(), wire::parse(&json)?));
            }
        }
        Ok(entries)
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
/// A status a second for a while; whoever was away for longer is told where the job stands.
const JOURNAL_ENTRIES: i32 = 200;
