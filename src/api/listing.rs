//! `GET /v1/jobs?status=&limit=&cursor=`: a client's own jobs, and to the operator everybody's; newest first.
//!
//! 1. [`Asked`]: the parameters, every fault at once.
//! 2. [`Query`]: what each client's index is asked for; it answers one row more than a page holds, so that the last page says
//!    that it is.
//! 3. [`Page`]: the newest rows of all. Those that are open are asked of their jobs, by [`Page::unconfirmed`] and
//!    [`Page::confirm`]: an index knows of a job that is under way no more than that.
//! 4. [`Page::written`]: those that have the status that was asked for.
//!
//! So a page may hold fewer jobs than its limit, or none, and still not be the last: to fill it up, a caller who looks for the
//! one job that is stalled would have all of them asked at once. Only `next_cursor` says whether there is more.
//!
//! A cursor is a place between two rows, and no number of rows: what is submitted meanwhile comes before it, and neither
//! repeats a job on the next page nor pushes one out.

use super::address::Address;
use super::error::ApiError;
use super::status::rfc3339;
use crate::claude::request::Problem;
use crate::job::notice::Unheard;
use crate::job::{JobId, Row, Standing};
use crate::json;
use crate::policy::time::Timestamp;

/// What a caller wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    status: Option<&'static str>,
    limit: usize,
    after: Option<Cursor>,
}

/// A row's place in a list; the later, the further to the front.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// When the job was submitted.
    pub created_at: Timestamp,
    /// Which of those that were submitted then.
    pub id: JobId,
}

json::object!(Cursor { created_at, id });

/// What an index is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Only rows that come after this place.
    pub after: Option<Cursor>,
    /// Only rows of this standing.
    pub standing: Option<Standing>,
    /// So many at most.
    pub rows: u32,
}

json::object!(Query { after, standing, rows });

/// One page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    items: Vec<Item>,
    next: Option<Cursor>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    client: String,
    row: Row,
    /// Whether its status is what it is now.
    is_confirmed: bool,
}

impl Asked {
    /// Reads the query string.
    ///
    /// # Errors
    /// 400 with every fault.
    pub fn parse(address: Address<'_>) -> Result<Self, ApiError> {
        let mut asked = Self { status: None, limit: DEFAULT_LIMIT, after: None };
        let (mut problems, mut seen) = (Vec::new(), Vec::new());
        for (name, value) in address.parameters() {
            let fault = match name {
                _ if seen.contains(&name) => Some("appears twice".to_owned()),
                "status" => {
                    asked.status = STATUSES.into_iter().find(|status| *status == value);
                    asked.status.is_none().then(|| format!("must be one of {}", STATUSES.join(", ")))
                }
                "limit" => match value.parse() {
                    Ok(limit @ 1..=MAX_LIMIT) => {
                        asked.limit = limit;
                        None
                    }
                    _ => Some(format!("must be a whole number from 1 to {MAX_LIMIT}")),
                },
                "cursor" => {
                    asked.after = Cursor::parse(value);
                    asked.after.is_none().then(|| "must be a `next_cursor` as it came".to_owned())
                }
                _ => Some("is not a known parameter; there are status, limit, cursor".to_owned()),
            };
            seen.push(name);
            problems.extend(fault.map(|fault| Problem::new(printable(name), fault)));
        }
        if problems.is_empty() { Ok(asked) } else { Err(ApiError::invalid(problems)) }
    }

    /// So many rows of this standing, from `after` on.
    #[must_use]
    pub const fn of_standing(standing: Standing, limit: usize, after: Option<Cursor>) -> Self {
        Self { status: Some(standing.name()), limit, after }
    }

    /// What to ask each index for.
    #[must_use]
    pub fn query(&self) -> Query {
        Query {
            after: self.after.clone(),
            standing: self.status.map(|status| match status {
                "done" => Standing::Done,
                "failed" => Standing::Failed,
                "cancelled" => Standing::Cancelled,
                _ => Standing::Open,
            }),
            rows: u32::try_from(self.limit + 1).unwrap_or(u32::MAX),
        }
    }
}

impl Cursor {
    /// Of a row.
    #[must_use]
    pub fn of(row: &Row) -> Self {
        Self { created_at: row.created_at, id: row.id.clone() }
    }

    /// Reads one as it was written.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (at, digits) = text.split_once('.')?;
        let at = u64::from_str_radix(at, 16).ok().map(Timestamp::from_millis);
        let cursor = Self { created_at: at?, id: format!("job_{digits}").parse().ok()? };
        // A number can be written in many ways, a cursor in one.
        (cursor.written() == text).then_some(cursor)
    }

    fn written(&self) -> String {
        let id = self.id.to_string();
        format!("{:x}.{}", self.created_at.as_millis(), id.trim_start_matches("job_"))
    }
}

impl Page {
    /// The newest of what the indexes have answered, each for its client.
    #[must_use]
    pub fn of(found: Vec<(String, Vec<Row>)>, asked: &Asked) -> Self {
        let mut items: Vec<Item> = Vec::new();
        for (client, rows) in found {
            for row in rows {
                // Each index is in order already, and gave a page at most: no sorting algorithm earns its size here.
                let at = items.partition_point(|item| Cursor::of(&item.row) > Cursor::of(&row));
                let is_confirmed = row.standing != Standing::Open;
                items.insert(at, Item { client: client.clone(), row, is_confirmed });
            }
        }
        let is_last = items.len() <= asked.limit;
        items.truncate(asked.limit);
        let next = items.last().filter(|_| !is_last).map(|item| Cursor::of(&item.row));
        Self { items, next }
    }

    /// The first jobs whose rows are wanted, `most` of them, and the cursor of what comes after the last that was looked at.
    #[must_use]
    pub fn pick(&self, most: usize, is_wanted: impl Fn(&Row) -> bool) -> (Vec<JobId>, Option<String>) {
        let mut picked = Vec::new();
        let mut rows = self.items.iter().map(|item| &item.row).peekable();
        while let Some(row) = rows.next() {
            if is_wanted(row) {
                picked.push(row.id.clone());
            }
            if picked.len() == most && rows.peek().is_some() {
                return (picked, Some(Cursor::of(row).written()));
            }
        }
        (picked, self.next.as_ref().map(Cursor::written))
    }

    /// The jobs that have to be asked how they stand.
    #[must_use]
    pub fn unconfirmed(&self) -> Vec<JobId> {
        self.items.iter().filter(|item| !item.is_confirmed).map(|item| item.row.id.clone()).collect()
    }

    /// What the job `id` has answered: `None` if it is there no more. One that gives no answer stays as it was told, and is
    /// marked.
    pub fn confirm(&mut self, id: &JobId, answer: Option<Row>) {
        match answer {
            None => self.items.retain(|item| item.row.id != *id),
            Some(row) => {
                for item in self.items.iter_mut().filter(|item| item.row.id == *id) {
                    item.row = row.clone();
                    item.is_confirmed = true;
                }
            }
        }
    }

    /// The page. `origin` is the deployment's own; with `names_clients` it says whose each job is.
    #[must_use]
    pub fn written(&self, asked: &Asked, origin: &str, names_clients: bool) -> String {
        let is_wanted = |item: &&Item| asked.status.is_none_or(|status| status == item.row.status);
        let jobs = self.items.iter().filter(is_wanted).map(|item| item.view(origin, names_clients)).collect();
        json::write(&View { jobs, next_cursor: self.next.as_ref().map(Cursor::written) })
    }
}

struct View<'a> {
    jobs: Vec<ItemView<'a>>,
    next_cursor: Option<String>,
}

json::output!(sparse View<'_> { jobs, next_cursor });

struct ItemView<'a> {
    id: String,
    client: Option<&'a str>,
    status: &'a str,
    unconfirmed: Option<bool>,
    kind: &'a str,
    created_at: String,
    finished_at: Option<String>,
    webhook: Option<&'static str>,
    status_url: String,
}

json::output!(sparse ItemView<'_> { id, client, status, unconfirmed, kind, created_at, finished_at, webhook, status_url });

impl Item {
    fn view(&self, origin: &str, names_client: bool) -> ItemView<'_> {
        let row = &self.row;
        let id = row.id.to_string();
        ItemView {
            client: names_client.then_some(self.client.as_str()),
            status: &row.status,
            unconfirmed: (!self.is_confirmed).then_some(true),
            kind: &row.kind,
            created_at: rfc3339(row.created_at),
            finished_at: (row.standing != Standing::Open).then(|| rfc3339(row.ends_at)),
            webhook: row.unheard.map(Unheard::name),
            status_url: format!("{origin}/v1/jobs/{id}"),
            id,
        }
    }
}

/// A name that a caller made up, fit for a message.
pub(super) fn printable(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(64).collect()
}

/// Every status that a job can have.
const STATUSES: [&str; 10] =
    ["received", "generating", "refining", "retrying", "held", "stalled", "deferred", "done", "failed", "cancelled"];
const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ORIGIN: &str = "https://spillway.example";

    fn asked(query: &str) -> Result<Asked, ApiError> {
        Asked::parse(Address::of(&format!("{ORIGIN}/v1/jobs{query}")))
    }

    fn row(id: u128, at: u64, standing: Standing, status: &str) -> Row {
        let (created_at, ends_at) = (Timestamp::from_millis(at), Timestamp::from_millis(at + 5_000));
        let (id, kind) = (JobId::random(id), "tagging".to_owned());
        Row { id, version: 1, standing, status: status.to_owned(), kind, created_at, ends_at, unheard: None }
    }

    fn done(id: u128, at: u64) -> Row {
        row(id, at, Standing::Done, "done")
    }

    fn view(page: &Page, asked: &Asked) -> Value {
        serde_json::from_str(&page.written(asked, ORIGIN, true)).unwrap()
    }

    /// What an index answers, as `edge/index_object` puts it in SQL.
    fn index(rows: &[Row], query: &Query) -> Vec<Row> {
        let mut rows: Vec<Row> = rows
            .iter()
            .filter(|row| query.after.as_ref().is_none_or(|after| Cursor::of(row) < *after))
            .filter(|row| query.standing.is_none_or(|standing| standing == row.standing))
            .cloned()
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(Cursor::of(row)));
        rows.truncate(query.rows as usize);
        rows
    }

    #[test]
    fn without_parameters_it_is_the_newest_twenty_of_any_status() {
        for query in ["", "?", "?&"] {
            let expected = Query { after: None, standing: None, rows: 21 };
            assert_eq!(asked(query).unwrap().query(), expected, "{query}");
        }
    }

    #[test]
    fn a_limit_is_from_1_to_100() {
        for (limit, rows) in [("1", 2), ("20", 21), ("100", 101)] {
            assert_eq!(asked(&format!("?limit={limit}")).unwrap().query().rows, rows);
        }
        for limit in ["0", "101", "-1", "1.5", "", "all", "99999999999999999999"] {
            let error = asked(&format!("?limit={limit}")).unwrap_err();
            assert_eq!(error.message, "limit: must be a whole number from 1 to 100", "{limit}");
        }
    }

    #[test]
    fn a_status_is_one_that_a_job_can_have_and_what_is_under_way_an_index_knows_as_open() {
        for status in STATUSES {
            let standing = asked(&format!("?status={status}")).unwrap().query().standing.unwrap();
            let expected = if ["done", "failed", "cancelled"].contains(&status) { status } else { "open" };
            assert_eq!(standing.name(), expected);
        }
        for status in ["", "open", "gone", "Done", "done,failed"] {
            let error = asked(&format!("?status={status}")).unwrap_err();
            assert!(error.message.starts_with("status: must be one of received, generating, "), "{status}: {error:?}");
        }
    }

    #[test]
    fn every_fault_is_told_at_once_with_its_place() {
        let error = asked("?limit=0&status=x&cursor=x&stauts=done&limit=1").unwrap_err();
        assert_eq!(error.kind.status(), 400);
        let places: Vec<_> = error.problems.iter().map(|problem| problem.place.as_str()).collect();
        assert_eq!(places, ["limit", "status", "cursor", "stauts", "limit"]);
        assert_eq!(error.problems[3].message, "is not a known parameter; there are status, limit, cursor");
        assert_eq!(error.problems[4].message, "appears twice");
    }

    #[test]
    fn a_cursor_is_the_place_of_a_row_and_nothing_else_is_one() {
        for (id, at) in [(0, 0), (7, 1_700_000_000_000), (u128::MAX, u64::MAX)] {
            let cursor = Cursor { created_at: Timestamp::from_millis(at), id: JobId::random(id) };
            assert_eq!(Cursor::parse(&cursor.written()), Some(cursor.clone()));
            assert_eq!(asked(&format!("?cursor={}", cursor.written())).unwrap().query().after, Some(cursor));
        }
        let digits = "00000000000000000000000000000007";
        for text in ["", ".", "1", "1.7", "job_1", digits] {
            assert_eq!(Cursor::parse(text), None, "{text}");
        }
        for at in ["", "+1", "-1", "01", "A", "fffffffffffffffff"] {
            assert_eq!(Cursor::parse(&format!("{at}.{digits}")), None, "{at}");
        }
    }

    #[test]
    fn the_pages_of_several_clients_are_one_list_newest_first_with_each_job_once() {
        let app: Vec<Row> = (0..9).map(|n| done(n, 1_000 + n as u64 * 10)).collect();
        // Some at the very same moments, told apart by their ids.
        let web: Vec<Row> = (0..5).map(|n| done(100 + n, 1_000 + n as u64 * 20)).collect();
        let mut all: Vec<Cursor> = app.iter().chain(&web).map(Cursor::of).collect();
        all.sort_by(|a, b| b.cmp(a));
        for limit in [1, 2, 3, 5, 13, 14, 15, 100] {
            let mut asking = asked(&format!("?limit={limit}")).unwrap();
            let mut seen = Vec::new();
            loop {
                let query = asking.query();
                let found = vec![("app".to_owned(), index(&app, &query)), ("web".to_owned(), index(&web, &query))];
                let page = Page::of(found, &asking);
                assert!(page.items.len() == limit || page.next.is_none(), "only the last page is short");
                seen.extend(page.items.iter().map(|item| Cursor::of(&item.row)));
                match page.next {
                    Some(next) => asking.after = Some(next),
                    None => break,
                }
            }
            assert_eq!(seen, all, "limit {limit}");
        }
    }

    #[test]
    fn what_is_submitted_between_two_pages_changes_none_that_follow() {
        let mut rows: Vec<Row> = (0..6).map(|n| done(n, 1_000 + n as u64)).collect();
        let mut asking = asked("?limit=3").unwrap();
        let first = Page::of(vec![("app".to_owned(), index(&rows, &asking.query()))], &asking);
        rows.extend((10..20).map(|n| done(n, 2_000)));
        asking.after = first.next;
        let second = Page::of(vec![("app".to_owned(), index(&rows, &asking.query()))], &asking);
        let ids: Vec<_> = second.items.iter().map(|item| item.row.id.clone()).collect();
        assert_eq!(ids, [2, 1, 0].map(JobId::random));
        assert_eq!(second.next, None);
    }

    #[test]
    fn open_jobs_are_asked_and_shown_as_they_answer() {
        let asking = asked("").unwrap();
        let open = |id| row(id, 1_000 + id as u64, Standing::Open, "received");
        let mut page =
            Page::of(vec![("app".to_owned(), vec![open(1), open(2), open(3), open(4), done(5, 1)])], &asking);
        assert_eq!(page.unconfirmed(), [4, 3, 2, 1].map(JobId::random));
        page.confirm(&JobId::random(1), Some(row(1, 1_001, Standing::Open, "held")));
        page.confirm(&JobId::random(2), Some(done(2, 1_002)));
        page.confirm(&JobId::random(3), None);
        let url = |id| format!("{ORIGIN}/v1/jobs/{}", JobId::random(id));
        let job = |id, rest: Value| {
            let mut job =
                json!({"id": JobId::random(id).to_string(), "client": "app", "kind": "tagging", "status_url": url(id)});
            job.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            job
        };
        let expected = [
            job(4, json!({"status": "received", "unconfirmed": true, "created_at": "1970-01-01T00:00:01.004Z"})),
            job(
                2,
                json!({"status": "done", "created_at": "1970-01-01T00:00:01.002Z", "finished_at": "1970-01-01T00:00:06.002Z"}),
            ),
            job(1, json!({"status": "held", "created_at": "1970-01-01T00:00:01.001Z"})),
            job(
                5,
                json!({"status": "done", "created_at": "1970-01-01T00:00:00.001Z", "finished_at": "1970-01-01T00:00:05.001Z"}),
            ),
        ];
        assert_eq!(view(&page, &asking), json!({ "jobs": expected }));
    }

    #[test]
    fn a_page_holds_those_of_the_status_that_was_asked_for_and_may_be_empty_without_being_the_last() {
        let asking = asked("?status=held&limit=2").unwrap();
        let open = |id: u128| row(id, 1_000 + id as u64, Standing::Open, "received");
        let rows = index(&[open(1), open(2), open(3)], &asking.query());
        let mut page = Page::of(vec![("app".to_owned(), rows)], &asking);
        for (id, status) in [(3, "generating"), (2, "done")] {
            page.confirm(&JobId::random(id), Some(row(id, 1_000 + id as u64, Standing::Open, status)));
        }
        let next = Cursor::of(&open(2)).written();
        assert_eq!(view(&page, &asking), json!({"jobs": [], "next_cursor": next}));
        page.confirm(&JobId::random(2), Some(row(2, 1_002, Standing::Open, "held")));
        assert_eq!(view(&page, &asking)["jobs"][0]["id"], JobId::random(2).to_string());
    }

    #[test]
    fn a_client_is_not_told_whose_its_jobs_are() {
        let asking = asked("").unwrap();
        let page = Page::of(vec![("app".to_owned(), vec![done(1, 1)])], &asking);
        let written = page.written(&asking, ORIGIN, false);
        assert!(!written.contains("client") && !written.contains("next_cursor"), "{written}");
        assert!(page.written(&asking, ORIGIN, true).contains(r#""client":"app""#));
    }
}
