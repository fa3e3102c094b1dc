//! Which requests a reader wants to see: the filter shared by all commands that read a capture.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::text::escape;
use super::units::{count, format_ns};
use rpcprobe_model::{End, Kind, Request};

/// Conditions on a request. All conditions must hold. A condition with several values holds if any
/// value matches; a condition without values always holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestFilter {
    /// Ids of requests. If the set is empty, no request passes.
    pub ids: Option<BTreeSet<u64>>,
    pub kinds: Vec<Kind>,
    pub methods: Vec<Pattern>,
    pub statuses: Vec<StatusPattern>,
    pub clients: Vec<EndPattern>,
    pub servers: Vec<EndPattern>,
    /// Bounds of the request's start, in nanoseconds since the capture's start: `[from_ns, to_ns)`.
    pub from_ns: Option<u64>,
    pub to_ns: Option<u64>,
    /// Bounds of the latency in nanoseconds, both inclusive.
    pub min_latency_ns: Option<u64>,
    pub max_latency_ns: Option<u64>,
}

/// Whether a request passes a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    No,
    /// The request is incomplete: only a lower bound of its latency is known, and the latency
    /// decides.
    Maybe,
    Yes,
}

impl RequestFilter {
    /// Whether every request passes.
    pub fn is_empty(&self) -> bool {
        *self == RequestFilter::default()
    }

    /// Returns whether the request passes, in a capture that started at `capture_start_ns`.
    pub fn passes(&self, request: &Request, capture_start_ns: u64) -> Passes {
        if self.admits(request, capture_start_ns) {
            self.latency_passes(request)
        } else {
            Passes::No
        }
    }

    /// Checks everything except the latency.
    fn admits(&self, request: &Request, capture_start_ns: u64) -> bool {
        let offset_ns = request.start_ns.checked_sub(capture_start_ns);
        self.ids.as_ref().is_none_or(|ids| ids.contains(&request.request_id))
            && any(&self.kinds, |kind| *kind == request.kind)
            && any(&self.methods, |of| request.method.as_deref().is_some_and(|m| of.matches(m)))
            && any(&self.statuses, |of| of.matches(request))
            && any(&self.clients, |of| request.client.as_ref().is_some_and(|end| of.matches(end)))
            && any(&self.servers, |of| request.server.as_ref().is_some_and(|end| of.matches(end)))
            && self.from_ns.is_none_or(|from_ns| offset_ns.is_some_and(|at_ns| at_ns >= from_ns))
            && self.to_ns.is_none_or(|to_ns| offset_ns.is_none_or(|at_ns| at_ns < to_ns))
    }

    /// Checks the latency. The latency of an incomplete request is a lower bound: the request
    /// certainly passes a minimum that it has already reached, and certainly fails a maximum that
    /// it has already exceeded. Nothing else is known.
    fn latency_passes(&self, request: &Request) -> Passes {
        let known_ns = request.latency_ns;
        let too_short = self.min_latency_ns.is_some_and(|min_ns| known_ns < min_ns);
        let too_long = self.max_latency_ns.is_some_and(|max_ns| known_ns > max_ns);
        match request.complete {
            _ if too_long => Passes::No,
            true if too_short => Passes::No,
            false if too_short || self.max_latency_ns.is_some() => Passes::Maybe,
            _ => Passes::Yes,
        }
    }
}

/// Maximum number of ids that a filter shows; otherwise it shows how many there are.
const IDS_SHOWN: usize = 10;

fn any<T>(values: &[T], holds: impl Fn(&T) -> bool) -> bool {
    values.is_empty() || values.iter().any(holds)
}

impl Display for RequestFilter {
    /// Such as `kind http1, method GET /a*, latency >= 3.00 ms`.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        match &self.ids {
            None => {}
            Some(ids) if ids.is_empty() => parts.push("no request".into()),
            Some(ids) if ids.len() > IDS_SHOWN => {
                parts.push(format!("{} by number", count(ids.len() as u64, "request")))
            }
            Some(ids) => list(&mut parts, "request", &ids.iter().copied().collect::<Vec<_>>()),
        }
        list(&mut parts, "kind", &self.kinds);
        list(&mut parts, "method", &self.methods);
        list(&mut parts, "status", &self.statuses);
        list(&mut parts, "client", &self.clients);
        list(&mut parts, "server", &self.servers);
        parts.extend(self.from_ns.map(|ns| format!("started at {} or later", format_ns(ns))));
        parts.extend(self.to_ns.map(|ns| format!("started before {}", format_ns(ns))));
        parts.extend(self.min_latency_ns.map(|ns| format!("latency >= {}", format_ns(ns))));
        parts.extend(self.max_latency_ns.map(|ns| format!("latency <= {}", format_ns(ns))));
        f.write_str(&parts.join(", "))
    }
}

fn list<T: Display>(parts: &mut Vec<String>, name: &str, values: &[T]) {
    if !values.is_empty() {
        let values: Vec<_> = values.iter().map(|value| escape(&value.to_string())).collect();
        parts.push(format!("{name} {}", values.join(" or ")));
    }
}

/// Text in which `*` stands for any number of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    pub fn new(text: &str) -> Pattern {
        Pattern(text.to_owned())
    }

    /// Whether the pattern matches the whole of `text`.
    pub fn matches(&self, text: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == text };
        let Some(mut text) = text.strip_prefix(first) else { return false };
        // The earliest match of each piece leaves the most text for later pieces. The last piece
        // must match the end.
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        for piece in middle.split('*') {
            let Some(at) = text.find(piece) else { return false };
            text = &text[at + piece.len()..];
        }
        text.ends_with(last)
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        match text {
            "" => Err("must not be empty".into()),
            _ => Ok(Pattern::new(text)),
        }
    }
}

impl Display for Pattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A condition on how a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusPattern {
    /// The protocol's own number.
    Number(i32),
    /// The hundreds of an HTTP status: `5xx`.
    Class(u8),
    /// The exit code of a process.
    Exit(u8),
    /// The signal that ended a process.
    Signal(u8),
}

impl StatusPattern {
    pub fn matches(self, request: &Request) -> bool {
        let Some(status) = request.status else { return false };
        let is_process = matches!(request.kind, Kind::Exec | Kind::Process);
        let is_http = matches!(request.kind, Kind::Http1 | Kind::Http2);
        match self {
            StatusPattern::Number(number) => !is_process && status == number,
            StatusPattern::Class(hundreds) => is_http && status / 100 == i32::from(hundreds),
            StatusPattern::Exit(code) => {
                is_process
                    && libc::WIFEXITED(status)
                    && libc::WEXITSTATUS(status) == i32::from(code)
            }
            StatusPattern::Signal(signal) => {
                is_process
                    && libc::WIFSIGNALED(status)
                    && libc::WTERMSIG(status) == i32::from(signal)
            }
        }
    }
}

impl FromStr for StatusPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<StatusPattern, String> {
        let parsed = if let Some(code) = text.strip_prefix("exit") {
            code.trim().parse().ok().map(StatusPattern::Exit)
        } else if let Some(signal) = text.strip_prefix("signal") {
            signal.trim().parse().ok().map(StatusPattern::Signal)
        } else if let Some(class) = text.strip_suffix("xx") {
            class.parse().ok().filter(|class| (1..=9).contains(class)).map(StatusPattern::Class)
        } else {
            text.parse().ok().map(StatusPattern::Number)
        };
        parsed.ok_or_else(|| {
            "neither a number, nor a class such as 5xx, nor `exit CODE` or `signal NUMBER`".into()
        })
    }
}

impl Display for StatusPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            StatusPattern::Number(number) => write!(f, "{number}"),
            StatusPattern::Class(hundreds) => write!(f, "{hundreds}xx"),
            StatusPattern::Exit(code) => write!(f, "exit {code}"),
            StatusPattern::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// A condition on the thread at one end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndPattern {
    Name(Pattern),
    /// `name/tid`, or a name that contains a `/`.
    NameAndTid(Pattern, u32),
    PidOrTid(u32),
}

impl EndPattern {
    pub fn matches(&self, end: &End) -> bool {
        match self {
            EndPattern::Name(name) => name.matches(&end.comm),
            EndPattern::NameAndTid(name, tid) => {
                (name.matches(&end.comm) && end.tid == *tid)
                    || Pattern(self.to_string()).matches(&end.comm)
            }
            EndPattern::PidOrTid(number) => end.pid == *number || end.tid == *number,
        }
    }
}

impl FromStr for EndPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<EndPattern, String> {
        if let Ok(number) = text.parse() {
            return Ok(EndPattern::PidOrTid(number));
        }
        let with_tid = text.rsplit_once('/').and_then(|(name, tid)| {
            Some(EndPattern::NameAndTid(name.parse().ok()?, tid.parse().ok()?))
        });
        with_tid.map_or_else(|| text.parse().map(EndPattern::Name), Ok)
    }
}

impl Display for EndPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            EndPattern::Name(name) => name.fmt(f),
            EndPattern::NameAndTid(name, tid) => write!(f, "{name}/{tid}"),
            EndPattern::PidOrTid(number) => number.fmt(f),
        }
    }
}

macro_rules! serialized_as_text {
    ($($name:ident),+) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )+};
}

serialized_as_text!(Pattern, StatusPattern, EndPattern);

#[cfg(test)]
mod tests {
    use super::super::fixtures::{request, START_NS};
    use super::*;

    #[test]
    fn wildcards() {
        for (pattern, text, expected) in [
            ("GET /a", "GET /a", true),
            ("GET /a", "GET /ab", false),
            ("GET /a*", "GET /a", true),
            ("*/a", "GET /a", true),
            ("*", "", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("*b*b*", "abb", true),
            ("*b*b*", "ab", false),
            ("a**b", "ab", true),
            ("é*漢", "é1漢", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(text), expected, "{pattern} {text}");
        }
    }

    fn passes(filter: &RequestFilter, request: &Request) -> bool {
        filter.passes(request, START_NS) == Passes::Yes
    }

    #[test]
    fn statuses_are_of_a_kind() {
        let of = |text: &str, kind, status| {
            let mut request = request(1, 5);
            (request.kind, request.status) = (kind, Some(status));
            text.parse::<StatusPattern>().unwrap().matches(&request)
        };
        assert!(of("200", Kind::Http1, 200) && !of("200", Kind::Http1, 201));
        assert!(of("5xx", Kind::Http1, 503) && !of("5xx", Kind::Http2, 14));
        assert!(!of("2xx", Kind::OncRpc, 256));
        assert!(of("exit 3", Kind::Exec, 3 << 8) && !of("exit 0", Kind::Exec, 9));
        assert!(of("signal 9", Kind::Process, 9) && !of("signal 9", Kind::Http1, 9));
        assert!(!of("0", Kind::Exec, 0));
        for wrong in ["", "xx", "0xx", "exit", "exit 256", "signal x", "ok"] {
            assert!(wrong.parse::<StatusPattern>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn ends_by_name_or_number() {
        let end = End { pid: 7, tid: 9, comm: "kworker/0:1".into() };
        for (text, expected) in [
            ("kworker*", true),
            ("kworker/0:1", true),
            ("kworker/0:1/9", true),
            ("kworker/0:1/7", false),
            ("7", true),
            ("9", true),
            ("0", false),
        ] {
            assert_eq!(text.parse::<EndPattern>().unwrap().matches(&end), expected, "{text}");
        }
        let slash = End { pid: 7, tid: 9, comm: "a/12".into() };
        assert!("a/12".parse::<EndPattern>().unwrap().matches(&slash));
        assert!("".parse::<EndPattern>().is_err());
    }

    #[test]
    fn all_conditions_must_hold() {
        let mut request = request(1, 5_000); // starts 1 ms into the capture
        request.method = Some("GET /a".into());
        let methods = vec![Pattern::new("POST *"), Pattern::new("GET *")];
        let filter = RequestFilter { methods, ..RequestFilter::default() };
        assert!(passes(&filter, &request) && !filter.is_empty());
        let other = RequestFilter { kinds: vec![Kind::Tcp], ..filter.clone() };
        assert!(!passes(&other, &request));
        request.method = None;
        assert!(!passes(&filter, &request));
        assert!(passes(&RequestFilter::default(), &request) && RequestFilter::default().is_empty());
    }

    #[test]
    fn a_request_belongs_to_a_window_by_its_start() {
        let between = |from_ns, to_ns| {
            passes(&RequestFilter { from_ns, to_ns, ..Default::default() }, &request(1, 5_000))
        };
        assert!(between(Some(1_000_000), Some(1_000_001)));
        assert!(!between(Some(1_000_001), None) && !between(None, Some(1_000_000)));
        let mut early = request(1, 5_000);
        early.start_ns = START_NS - 1;
        let until = RequestFilter { to_ns: Some(0), ..RequestFilter::default() };
        let from = RequestFilter { from_ns: Some(0), ..RequestFilter::default() };
        assert!(passes(&until, &early) && !passes(&from, &early));
    }

    #[test]
    fn as_text() {
        let filter = RequestFilter {
            kinds: vec![Kind::Http1],
            methods: vec![Pattern::new("GET /a*"), Pattern::new("\x1b")],
            statuses: vec![StatusPattern::Class(5)],
            clients: vec![EndPattern::PidOrTid(7)],
            min_latency_ns: Some(3_000_000),
            ..RequestFilter::default()
        };
        let text = "kind http1, method GET /a* or \\x1b, status 5xx, client 7, latency >= 3.00 ms";
        assert_eq!(filter.to_string(), text);
        let json = serde_json::to_value(&filter).unwrap();
        assert_eq!((&json["statuses"][0], &json["clients"][0]), (&"5xx".into(), &"7".into()));
    }
}
