//! What is kept of each complete request to know which were made for which.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;

use super::{sums, Tree};
use rpcprobe_model::{Certainty, Kind, Request};

/// Names that are told apart; of more, the others share one.
const NAMES: usize = 1 << 16;
/// Kinds with no more methods have a row for each.
const METHODS: usize = 12;
/// Of more, those have one that have one in so many of the kind's time at least.
const LARGE: u128 = 50;

/// A request.
pub(super) struct Link {
    pub id: u64,
    pub parent: Option<NonZeroU64>,
    pub start_ns: u64,
    pub latency_ns: u64,
    pub client_pid: Option<u32>,
    /// By number.
    pub server: Option<u32>,
    pub method: Method,
    pub kind: Kind,
    pub certainty: Option<Certainty>,
    pub detached: bool,
    /// Whether it passes the filter: the others are there for those that do.
    pub passes: bool,
}

impl Link {
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.latency_ns)
    }
}

/// The requests of one capture.
#[derive(Default)]
pub(super) struct Linked {
    /// In order of their numbers, once all are there.
    pub links: Vec<Link>,
    /// Processes that serve requests.
    pub servers: HashSet<u32>,
}

impl Linked {
    /// The place of a request by its number.
    pub fn place(&self, id: u64) -> Option<usize> {
        self.links.binary_search_by_key(&id, |link| link.id).ok()
    }
}

/// Names by number.
#[derive(Default)]
struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    /// `None`: there are too many.
    fn number(&mut self, name: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let number = u32::try_from(self.names.len()).ok().filter(|_| self.names.len() < NAMES)?;
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        Some(number)
    }
}

/// The name that all of several have.
enum Same {
    One(String),
    Several,
}

/// What a request asked for, as a step of its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Method {
    /// By number.
    Named(u32),
    None,
    /// One of those with little time.
    Other,
}

/// Complete requests, of each capture.
#[derive(Default)]
pub struct Links {
    captures: Vec<Linked>,
    servers: Names,
    /// The thread's name at the servers with an address, by number.
    comms: HashMap<u32, Same>,
    methods: Names,
    /// The time of each kind's methods; `None`: of those without a number.
    methods_ns: HashMap<Kind, HashMap<Option<u32>, u128>>,
}

/// Whether requests of this kind are whole lives of programs.
pub(super) fn is_a_program(kind: Kind) -> bool {
    matches!(kind, Kind::Exec) || kind.is_fallback()
}

impl Link {
    /// Whether it is the whole life of a program.
    pub fn is_a_program(&self) -> bool {
        is_a_program(self.kind)
    }
}

impl Links {
    /// What is added from here on is of another capture.
    pub fn next_capture(&mut self) {
        self.captures.push(Linked::default());
    }

    /// `passes`: whether the request is one of those asked about. Incomplete ones are left out.
    pub fn add(&mut self, request: &Request, passes: bool) {
        if !request.complete {
            return;
        }
        let method = request.method.as_deref().map(|method| {
            let number = self.methods.number(method);
            *self.methods_ns.entry(request.kind).or_default().entry(number).or_default() +=
                u128::from(request.latency_ns);
            number.map_or(Method::Other, Method::Named)
        });
        let link = Link {
            id: request.request_id,
            parent: request.parent_request_id.and_then(NonZeroU64::new),
            start_ns: request.start_ns,
            latency_ns: request.latency_ns,
            client_pid: request.client.as_ref().map(|end| end.pid),
            server: self.server(request),
            method: method.unwrap_or(Method::None),
            kind: request.kind,
            certainty: request.parent_certainty,
            detached: request.detached,
            passes,
        };
        if self.captures.is_empty() {
            self.next_capture();
        }
        let Some(capture) = self.captures.last_mut() else { return };
        if !link.is_a_program() {
            capture.servers.extend(request.server.as_ref().map(|end| end.pid));
        }
        capture.links.push(link);
    }

    /// Whom it asked: by where that listens, else by its name.
    fn server(&mut self, request: &Request) -> Option<u32> {
        if is_a_program(request.kind) {
            return None;
        }
        let number = self.servers.number(request.back_end()?)?;
        if let (Some(_), Some(end)) = (request.listens_at(), &request.server) {
            match self.comms.get_mut(&number) {
                Some(Same::One(comm)) if *comm == end.comm => {}
                Some(same) => *same = Same::Several,
                None => {
                    self.comms.insert(number, Same::One(end.comm.clone()));
                }
            }
        }
        Some(number)
    }

    /// All added up.
    pub fn tree(mut self) -> Tree {
        let own_rows: HashSet<(Kind, Option<u32>)> = self
            .methods_ns
            .iter()
            .flat_map(|(kind, methods)| with_own_rows(*kind, methods))
            .collect();
        for capture in &mut self.captures {
            if !capture.links.is_sorted_by_key(|link| link.id) {
                capture.links.sort_by_key(|link| link.id);
            }
            for link in &mut capture.links {
                if let Method::Named(number) = link.method {
                    if !own_rows.contains(&(link.kind, Some(number))) {
                        link.method = Method::Other;
                    }
                }
            }
        }
        sums::tree(&self)
    }

    pub(super) fn captures(&self) -> &[Linked] {
        &self.captures
    }

    /// `nginx 127.0.0.1:80`, or what of it is known.
    pub(super) fn server_name(&self, number: u32) -> String {
        let name = &self.servers.names[number as usize];
        match self.comms.get(&number) {
            Some(Same::One(comm)) => format!("{comm} {name}"),
            _ => name.clone(),
        }
    }

    pub(super) fn method_name(&self, number: u32) -> String {
        self.methods.names[number as usize].clone()
    }
}

/// The methods of a kind that have rows of their own.
fn with_own_rows(
    kind: Kind,
    methods: &HashMap<Option<u32>, u128>,
) -> impl Iterator<Item = (Kind, Option<u32>)> + '_ {
    let whole_ns: u128 = methods.values().sum();
    let few = methods.len() <= METHODS;
    let large = move |ns: u128| ns.saturating_mul(LARGE) >= whole_ns;
    methods.iter().filter(move |(_, ns)| few || large(**ns)).map(move |(of, _)| (kind, *of))
}
