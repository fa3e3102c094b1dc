//! Which methods have their own rows.

use std::collections::{HashMap, HashSet};

use super::names::Names;
use rpcprobe_model::Kind;

/// In kinds with at most this many methods, each method has its own row.
const METHODS: usize = 12;
/// In kinds with more methods, a method has its own row if it took at least 1/`LARGE` of the kind's
/// time.
const LARGE: u128 = 50;

/// The method of a request, as a step of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Method {
    /// The number of the method.
    Named(u16),
    None,
    /// A method with little time.
    Other,
}

/// The time that the requests of each method took.
#[derive(Default)]
pub(super) struct MethodTimes {
    names: Names,
    /// Times by kind and method number; `None` for methods without a number.
    of: HashMap<Kind, HashMap<Option<u16>, u128>>,
}

impl MethodTimes {
    pub fn add(&mut self, kind: Kind, method: &str, latency_ns: u64) {
        let number = self.names.number(method);
        *self.of.entry(kind).or_default().entry(number).or_default() += u128::from(latency_ns);
    }

    /// Returns the methods that have their own rows.
    pub fn largest(&self) -> Methods {
        let mut methods = Methods::default();
        for (kind, times) in &self.of {
            let whole_ns: u128 = times.values().sum();
            let is_large = |ns: u128| ns.saturating_mul(LARGE) >= whole_ns;
            for (number, ns) in times {
                let Some(number) = *number else { continue };
                if times.len() <= METHODS || is_large(*ns) {
                    let number = methods.names.number(self.names.name(number));
                    methods.own_rows.extend(number.map(|number| (*kind, number)));
                }
            }
        }
        methods
    }
}

/// The methods that have their own rows; all other methods share one row.
#[derive(Default)]
pub(super) struct Methods {
    names: Names,
    own_rows: HashSet<(Kind, u16)>,
}

impl Methods {
    pub fn of(&self, kind: Kind, method: Option<&str>) -> Method {
        let Some(method) = method else { return Method::None };
        let number = self.names.known(method);
        let number = number.filter(|number| self.own_rows.contains(&(kind, *number)));
        number.map_or(Method::Other, Method::Named)
    }

    pub fn name(&self, number: u16) -> String {
        self.names.name(number).to_owned()
    }
}
