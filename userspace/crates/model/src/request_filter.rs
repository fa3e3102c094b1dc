//! Which kinds of requests to look for, as given by the user with `--request KIND[:PORT]`.
//!
//! A rule without a port means that only the named kinds are looked for. A rule with a port means that everything on
//! connections with that port is of that kind, whatever it looks like; other connections are treated as without the
//! rule.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Kind;

/// One `--request` option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    pub kind: Kind,
    pub port: Option<u16>,
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        };
        let kind = parse_kind(name)?;
        let port = match port.map(str::parse) {
            None => None,
            Some(Ok(port)) if port > 0 => Some(port),
            Some(_) => return Err("a port is a number from 1 to 65535".into()),
        };
        if port.is_some() && !WITH_PORTS.contains(&kind) {
            return Err(format!("requests of kind {kind} have no ports"));
        }
        Ok(Rule { kind, port })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

impl TryFrom<String> for Rule {
    type Error = String;

    fn try_from(text: String) -> Result<Rule, String> {
        text.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> String {
        rule.to_string()
    }
}

/// The named kinds of which requests can be found.
pub const FOUND: [Kind; 12] = [
    Kind::Exec,
    Kind::Pipe,
    Kind::Shm,
    Kind::Unix,
    Kind::Tcp,
    Kind::Udp,
    Kind::Http1,
    Kind::Http2,
    Kind::OncRpc,
    Kind::Resp,
    Kind::Stdio,
    Kind::Process,
];
/// Kinds of requests over connections or datagrams with ports.
const WITH_PORTS: [Kind; 6] =
    [Kind::Tcp, Kind::Udp, Kind::Http1, Kind::Http2, Kind::OncRpc, Kind::Resp];

/// Returns the kind of this name, if requests of it can be found.
///
/// # Errors
/// There is no such kind; the message lists the kinds that exist.
pub fn parse_kind(name: &str) -> Result<Kind, String> {
    Kind::from_name(name).filter(|kind| FOUND.contains(kind)).ok_or_else(|| {
        let names: Vec<_> = FOUND.iter().map(|kind| kind.name()).collect();
        format!("`{name}` is no kind of request ({})", names.join(", "))
    })
}

/// All `--request` rules. Without any, requests of every kind are looked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted(Vec<Rule>);

impl Wanted {
    pub fn new(rules: &[Rule]) -> Wanted {
        Wanted(rules.to_vec())
    }

    /// Whether requests of the kind are looked for on a connection; `has_port` tells whether the connection has a port.
    pub fn takes(&self, kind: Kind, has_port: impl Fn(u16) -> bool) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let (mut at_port, mut any) = (None, None);
        for rule in &self.0 {
            match rule.port {
                Some(port) if !has_port(port) => {}
                Some(_) => at_port = Some(at_port.unwrap_or(false) || rule.kind == kind),
                None => any = Some(any.unwrap_or(false) || rule.kind == kind),
            }
        }
        at_port.or(any).unwrap_or(true)
    }

    /// Whether the rules name a kind that is otherwise reported only if there are no requests of other kinds.
    pub fn names_fallback(&self) -> bool {
        self.0.iter().any(|rule| rule.kind.is_fallback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(rules: &[&str]) -> Wanted {
        Wanted(rules.iter().map(|text| text.parse().expect("a rule")).collect())
    }

    #[test]
    fn rules_are_kinds_and_ports() {
        for text in ["exec", "tcp:6379", "http2:65535", "shm"] {
            assert_eq!(text.parse::<Rule>().map(|rule| rule.to_string()).as_deref(), Ok(text));
        }
        for wrong in ["", "ftp", "tcp:", "tcp:0", "tcp:65536", "tcp:x", "exec:1", "pipe:7", "span"]
        {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn kinds_without_a_port_narrow_and_those_with_one_override() {
        let redis = |port| [4000, 6379].contains(&port);
        let web = |port| [4000, 80].contains(&port);
        let none = |_| false;
        assert!(wanted(&[]).takes(Kind::Resp, redis));
        let narrow = wanted(&["http1", "exec"]);
        assert!(narrow.takes(Kind::Http1, web) && narrow.takes(Kind::Exec, none));
        assert!(!narrow.takes(Kind::Resp, redis) && !narrow.takes(Kind::Tcp, web));
        let other = wanted(&["tcp:6379"]);
        assert!(other.takes(Kind::Tcp, redis) && !other.takes(Kind::Resp, redis));
        assert!(other.takes(Kind::Http1, web) && other.takes(Kind::Pipe, none));
        let both = wanted(&["tcp:6379", "http1"]);
        assert!(both.takes(Kind::Tcp, redis) && !both.takes(Kind::Tcp, web));
    }
}
