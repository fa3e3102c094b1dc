//! Law 6, as a check on what was written: see [`check_exclusive`]. (Law 1 is
//! [`check_conservation`](crate::model::check_conservation).)

use std::collections::{BTreeMap, HashMap};

use crate::model::{Kind, Request, Segment};

/// Ancestors looked at.
const MOST_ANCESTORS: usize = 64;

/// What a request has for its own of a thread's time.
struct Own<'a> {
    start_ns: u64,
    end_ns: u64,
    request: &'a Request,
}

/// Law 6: CPU time of a thread is the own work of one request at a time, and through it of those for which that was
/// made. Work that is told to be shared is nobody's own; kinds that are whole programs' lives are left out.
///
/// # Errors
/// Says which two requests have the same work for their own, on which thread and when.
pub fn check_exclusive(all: &[(Request, Vec<Segment>)]) -> Result<(), String> {
    let own = all.iter().filter(|(request, _)| {
        !matches!(request.kind, Kind::Exec | Kind::Process | Kind::Stdio) && request.complete
    });
    let by_id: HashMap<u64, &Request> =
        all.iter().map(|(request, _)| (request.request_id, request)).collect();
    let mut threads: BTreeMap<(u32, u32), Vec<Own<'_>>> = BTreeMap::new();
    for (request, segments) in own {
        let ran = segments.iter().filter(|s| s.category.is_on_cpu() && s.shared <= 1);
        for segment in ran {
            let spans = threads.entry((segment.pid, segment.tid)).or_default();
            let (start_ns, end_ns) = (segment.start_ns, segment.end_ns());
            spans.push(Own { start_ns, end_ns, request });
        }
    }
    for ((_, tid), mut spans) in threads {
        spans.sort_by_key(|own| (own.start_ns, own.end_ns, own.request.request_id));
        let mut open: Vec<(u64, &Request)> = Vec::new();
        for Own { start_ns, end_ns, request } in spans {
            open.retain(|(until_ns, _)| *until_ns > start_ns);
            let other = open.iter().find(|(_, other)| !related(&by_id, request, other));
            if let Some((_, other)) = other {
                return Err(format!(
                    "requests {} and {} both have thread {tid}'s work at {start_ns} ns for their own",
                    other.request_id, request.request_id
                ));
            }
            open.push((end_ns, request));
        }
    }
    Ok(())
}

/// Whether one was made for the other: it says so; or nobody is known to have asked for it, and it lies within the
/// other, whose server asked.
fn related(by_id: &HashMap<u64, &Request>, a: &Request, b: &Request) -> bool {
    [(a, b), (b, a)].into_iter().any(|(child, parent)| {
        let mut at = child.parent_request_id;
        for _ in 0..MOST_ANCESTORS {
            match at {
                Some(id) if id == parent.request_id => return true,
                Some(id) => at = by_id.get(&id).and_then(|request| request.parent_request_id),
                None => break,
            }
        }
        let asked = match (&child.client, &parent.server) {
            (Some(client), Some(server)) => client.pid == server.pid,
            _ => false,
        };
        let end_ns = |request: &Request| request.start_ns + request.latency_ns;
        asked && parent.start_ns <= child.start_ns && end_ns(child) <= end_ns(parent)
    })
}
