//! Selects the captures and requests that form one side of a comparison.

use std::str::FromStr;

use crate::capture::manifest::Manifest;
use crate::report::{parse_ns, RequestFilter};
use crate::request_filter::parse_kind;

/// One condition, such as `method=GET /a` or `label.disk=ext4`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    what: What,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    Label { key: String, value: String },
    Requests(Box<RequestFilter>),
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let (key, value) = text.split_once('=').ok_or("a condition looks like method=GET")?;
        let mut filter = RequestFilter::default();
        let time = || parse_ns(value).map(Some).map_err(|error| format!("{error:#}"));
        match key {
            "kind" => filter.kinds.push(parse_kind(value)?),
            "method" => filter.methods.push(value.parse()?),
            "status" => filter.statuses.push(value.parse()?),
            "client" => filter.clients.push(value.parse()?),
            "server" => filter.servers.push(value.parse()?),
            "from" => filter.from_ns = time()?,
            "to" => filter.to_ns = time()?,
            "min" => filter.min_latency_ns = time()?,
            "max" => filter.max_latency_ns = time()?,
            _ => {
                let key = key.strip_prefix("label.").ok_or_else(|| {
                    format!(
                        "{key} is not kind, method, status, client, server, from, to, min, max or \
                         label.NAME"
                    )
                })?;
                let what = What::Label { key: key.to_owned(), value: value.to_owned() };
                return Ok(Condition { text: text.to_owned(), what });
            }
        }
        Ok(Condition { text: text.to_owned(), what: What::Requests(Box::new(filter)) })
    }
}

/// The conditions of a side. All must hold; of several conditions on the same property, any is
/// enough (of `from`, `to`, `min` and `max`, the last one counts).
#[derive(Clone, Debug, Default)]
pub struct Selector {
    labels: Vec<(String, String)>,
    pub filter: RequestFilter,
    text: String,
}

impl Selector {
    /// `filter` holds for both sides.
    pub fn new(conditions: &[Condition], filter: &RequestFilter) -> Selector {
        let mut selector = Selector { filter: filter.clone(), ..Selector::default() };
        let texts: Vec<_> = conditions.iter().map(|condition| condition.text.as_str()).collect();
        selector.text = texts.join(" ");
        let merged = &mut selector.filter;
        for condition in conditions {
            let of = match &condition.what {
                What::Label { key, value } => {
                    selector.labels.push((key.clone(), value.clone()));
                    continue;
                }
                What::Requests(filter) => filter.as_ref().clone(),
            };
            merged.kinds.extend(of.kinds);
            merged.methods.extend(of.methods);
            merged.statuses.extend(of.statuses);
            merged.clients.extend(of.clients);
            merged.servers.extend(of.servers);
            merged.from_ns = of.from_ns.or(merged.from_ns);
            merged.to_ns = of.to_ns.or(merged.to_ns);
            merged.min_latency_ns = of.min_latency_ns.or(merged.min_latency_ns);
            merged.max_latency_ns = of.max_latency_ns.or(merged.max_latency_ns);
        }
        selector
    }

    /// Whether the capture belongs to this side.
    pub fn takes(&self, manifest: &Manifest) -> bool {
        let has = |(key, value): &(String, String)| manifest.labels.get(key) == Some(value);
        let same_key = |key: &String| {
            let mut of_key = self.labels.iter().filter(|(other, _)| other == key);
            of_key.any(has)
        };
        self.labels.iter().all(|(key, _)| same_key(key))
    }

    /// The conditions as given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(texts: &[&str]) -> Selector {
        let conditions: Vec<Condition> = texts.iter().map(|text| text.parse().unwrap()).collect();
        Selector::new(&conditions, &RequestFilter::default())
    }

    #[test]
    fn labels_choose_captures() {
        let mut manifest = Manifest::default();
        manifest.labels.insert("disk".into(), "ext4".into());
        assert!(selector(&["label.disk=ext4"]).takes(&manifest));
        assert!(selector(&["label.disk=tmpfs", "label.disk=ext4"]).takes(&manifest));
        assert!(!selector(&["label.disk=ext4", "label.cpu=1"]).takes(&manifest));
        assert!(selector(&["method=GET"]).takes(&manifest));
    }

    #[test]
    fn conditions_are_those_of_the_options() {
        let of = selector(&["method=GET=1", "from=1s", "to=2.5s", "kind=pipe"]);
        assert_eq!(of.filter.methods.len(), 1);
        assert!(of.filter.methods[0].matches("GET=1"));
        assert_eq!(
            (of.filter.from_ns, of.filter.to_ns),
            (Some(1_000_000_000), Some(2_500_000_000))
        );
        assert_eq!(of.text(), "method=GET=1 from=1s to=2.5s kind=pipe");
        for wrong in ["method", "size=3", "from=soon", "kind=none", "status=x y"] {
            assert!(wrong.parse::<Condition>().is_err(), "{wrong}");
        }
    }
}
