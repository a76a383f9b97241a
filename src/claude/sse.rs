//! Server-sent events out of a stream of byte chunks, however the network cut it.
//!
//! A chunk may end inside a character, a line, or between CR and LF, so bytes are only decoded once their line is whole.
//! Every byte is looked at once: 81,000 tiny chunks cost what one large one does. What is held back between chunks is one
//! unfinished event, and that is bounded: an upstream that never sends a line end is an error, not a full isolate.
//!
//! The rules are those of the HTML standard (9.2.6): lines end with LF, CR or CRLF; a byte-order mark is dropped; comments
//! and unknown fields are ignored; several `data:` lines make one text of several lines; an empty line ends the event; an
//! event without data is none. `id:` and `retry:` serve reconnecting, which this API does not have.
//!
//! Where we differ: the standard throws the last event away if the stream ends without an empty line after it. Some
//! intermediaries eat that line, so [`Decoder::finish`] hands the rest out, and its reader judges whether it is whole.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event:` field, if there was one.
    pub name: Option<String>,
    /// The `data:` fields, joined with line feeds.
    pub data: String,
}

/// An event is larger than the limit. The stream is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream sent an event of more than {limit} bytes")]
pub struct EventTooLarge {
    /// The limit, in bytes.
    pub limit: usize,
}

/// The parser: bytes in, events out.
#[derive(Debug)]
pub struct Decoder {
    /// The line that has not ended yet.
    line: Vec<u8>,
    name: Option<String>,
    data: Option<String>,
    /// The last chunk ended in a CR: a line feed that follows belongs to it.
    after_cr: bool,
    /// The first line has been read: no byte-order mark can come any more.
    started: bool,
    limit: usize,
}

impl Decoder {
    /// A decoder at the start of a stream, for events of up to [`MAX_EVENT_BYTES`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(MAX_EVENT_BYTES)
    }

    /// A decoder for events of up to `limit` bytes.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self { line: Vec::new(), name: None, data: None, after_cr: false, started: false, limit }
    }

    /// The events that `chunk` completes, in order.
    ///
    /// # Errors
    /// [`EventTooLarge`] as soon as an unfinished event outgrows the limit.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Vec<Event>, EventTooLarge> {
        let mut events = Vec::new();
        let mut rest = chunk;
        if self.after_cr && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.after_cr = false;
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (head, tail) = rest.split_at(end);
            events.extend(self.end_line(head)?);
            rest = match tail {
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [b'\r', b'\n', after @ ..] | [_, after @ ..] => after,
                [] => &[],
            };
        }
        self.check_room(rest.len())?;
        self.line.extend_from_slice(rest);
        Ok(events)
    }

    /// The event that was under way when the stream ended, if any: whole but for its empty line, or cut anywhere.
    #[must_use]
    pub fn finish(mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        self.take_line(&line).or_else(|| self.dispatch())
    }

    fn end_line(&mut self, tail: &[u8]) -> Result<Option<Event>, EventTooLarge> {
        self.check_room(tail.len())?;
        if self.line.is_empty() {
            return Ok(self.take_line(tail));
        }
        let mut line = std::mem::take(&mut self.line);
        line.extend_from_slice(tail);
        let event = self.take_line(&line);
        line.clear();
        self.line = line;
        Ok(event)
    }

    fn take_line(&mut self, line: &[u8]) -> Option<Event> {
        let bom = if self.started { &[][..] } else { b"\xef\xbb\xbf" };
        self.started = true;
        let line = line.strip_prefix(bom).unwrap_or(line);
        if line.is_empty() {
            return self.dispatch();
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match (field, &mut self.data) {
            (b"data", Some(data)) => {
                data.push('\n');
                data.push_str(&value);
            }
            (b"data", none) => *none = Some(value.into_owned()),
            (b"event", _) => self.name = Some(value.into_owned()),
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<Event> {
        let name = self.name.take();
        self.data.take().map(|data| Event { name, data })
    }

    fn check_room(&self, more: usize) -> Result<(), EventTooLarge> {
        let held =
            self.line.len() + self.name.as_ref().map_or(0, String::len) + self.data.as_ref().map_or(0, String::len);
        if held + more > self.limit { Err(EventTooLarge { limit: self.limit }) } else { Ok(()) }
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

/// The largest event: far above any delta, and above the largest block that comes in one piece (a tool's result).
pub const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All events of a stream that arrives as `chunks`, the unfinished one last.
    fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
        let mut decoder = Decoder::new();
        let mut events: Vec<Event> = chunks.into_iter().flat_map(|chunk| decoder.push(chunk).unwrap()).collect();
        events.extend(decoder.finish());
        events
    }

    #[test]
    fn a_stream_is_read_by_the_rules_of_the_standard() {
        type Expected = &'static [(Option<&'static str>, &'static str)];
        let cases: &[(&str, Expected)] = &[
            ("event: ping\ndata: {}\n\n", &[(Some("ping"), "{}")]),
            ("data: a\n\ndata: b\n\n", &[(None, "a"), (None, "b")]),
            ("event: a\r\ndata: 1\r\n\r\nevent: b\r\ndata: 2\r\n\r\n", &[(Some("a"), "1"), (Some("b"), "2")]),
            ("event: a\rdata: 1\r\revent: b\rdata: 2\r\r", &[(Some("a"), "1"), (Some("b"), "2")]),
            ("data: 1\n\r\ndata: 2\r\n\n", &[(None, "1"), (None, "2")]),
            ("data: a\ndata: b\ndata\ndata:c\n\n", &[(None, "a\nb\n\nc")]),
            (": comment\n:\nid: 7\nretry: 10\nunknown: x\nDATA: y\ndata: 1\n\n", &[(None, "1")]),
            ("\u{feff}data: 1\n\n", &[(None, "1")]),
            ("\u{feff}\u{feff}data: 1\n\n", &[]),
            ("data: 1\n\n\u{feff}data: 2\n\n", &[(None, "1")]),
            ("data:  two spaces\n\n", &[(None, " two spaces")]),
            ("data: a: b\n\n", &[(None, "a: b")]),
            ("data:\n\n", &[(None, "")]),
            ("event: nothing\n\n\n\ndata: 1\n\n", &[(None, "1")]),
            ("event: a\nevent: b\ndata: 1\n\n", &[(Some("b"), "1")]),
            ("data: 1\n\ndata: 2\n", &[(None, "1"), (None, "2")]),
            ("data: 1\n\ndata: 2", &[(None, "1"), (None, "2")]),
            ("data: 1\n\nevent: x", &[(None, "1")]),
            ("", &[]),
            ("<html>\n<body>\n\n</html>\n", &[]),
        ];
        for (stream, expected) in cases {
            let expected: Vec<Event> = expected
                .iter()
                .map(|(name, data)| Event { name: name.map(str::to_owned), data: (*data).to_owned() })
                .collect();
            assert_eq!(decode([stream.as_bytes()]), expected, "{stream:?}");
            assert_eq!(decode(stream.as_bytes().chunks(1)), expected, "byte by byte: {stream:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_utf8_become_replacement_characters() {
        assert_eq!(decode([&b"data: a\xffb\n\n"[..]])[0].data, "a\u{fffd}b");
    }

    #[test]
    fn an_event_comes_out_with_the_chunk_that_ends_it() {
        let mut decoder = Decoder::new();
        assert_eq!(decoder.push(b"data: 1\n").unwrap(), []);
        assert_eq!(decoder.push(b"\r").unwrap().len(), 1);
        assert_eq!(decoder.push(b"\n").unwrap(), []);
        assert_eq!(decoder.push(b"").unwrap(), []);
        assert_eq!(decoder.push(b"\n").unwrap(), []);
        assert_eq!(decoder.finish(), None);
    }

    #[test]
    fn an_event_above_the_limit_is_an_error_whatever_it_consists_of() {
        let error = Err(EventTooLarge { limit: 32 });
        let (long, short) = ("x".repeat(30), "x".repeat(10));
        for (fits, too_large) in [
            ("x".repeat(32), "x".repeat(33)),
            (format!(":{long}\n"), format!(":{long}xx\n")),
            (format!("event: {short}\ndata: {short}\n"), format!("event: {short}\ndata: {short}{short}\n")),
            (format!("data: {short}\ndata: {short}\n"), format!("data: {short}\ndata: {short}\ndata: {short}\n")),
        ] {
            for size in [1, 7, 100] {
                let run = |text: &str| {
                    let mut decoder = Decoder::with_limit(32);
                    text.as_bytes().chunks(size).try_for_each(|chunk| decoder.push(chunk).map(drop))
                };
                assert_eq!(run(&fits), Ok(()), "{fits:?} in chunks of {size}");
                assert_eq!(run(&too_large), error, "{too_large:?} in chunks of {size}");
            }
        }
        let mut decoder = Decoder::with_limit(32);
        let many = format!("data: {short}\n\n").repeat(1000);
        assert_eq!(decoder.push(many.as_bytes()).map(|events| events.len()), Ok(1000), "the limit is for one event");
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a bound on the real time is what is tested")]
    fn tiny_chunks_cost_linear_time_within_one_long_line_too() {
        let line = format!("data: {}\n\n", "x".repeat(10_000_000));
        let events = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\"}\n\n".repeat(81_000);
        let start = std::time::Instant::now();
        assert_eq!(decode(line.as_bytes().chunks(10))[0].data.len(), 10_000_000);
        assert_eq!(decode(events.as_bytes().chunks(5)).len(), 81_000);
        // Looking at the held bytes again with every chunk would be 5·10¹² steps.
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
    }

    proptest! {
        #[test]
        fn however_the_bytes_are_split_the_events_are_the_same(
            lines in prop::collection::vec("(data|event|id|:)?:? ?[a-zé🦀\u{feff}]{0,4}(\n|\r|\r\n){0,3}", 0..12),
            bom in any::<bool>(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let stream = format!("{}{}", if bom { "\u{feff}" } else { "" }, lines.concat());
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]);
            prop_assert_eq!(decode(pieces), decode([bytes]));
        }
    }
}
