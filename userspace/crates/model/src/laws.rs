//! Checks on written requests: law 6 ([`check_exclusive`]), and the rules for parents ([`check_parents`]). (Law 1 is
//! [`check_conservation`](crate::check_conservation).)

use std::collections::{BTreeMap, HashMap};

use crate::{Request, Segment};

/// Maximum number of ancestors examined.
const MOST_ANCESTORS: usize = 64;

/// A span of a thread's time that is a request's own work.
struct Own<'a> {
    start_ns: u64,
    end_ns: u64,
    request: &'a Request,
}

/// Checks law 6: at any time, a thread's CPU time is the own work of one request, and through it of the requests that
/// this request was made for. Work marked as shared is no request's own work. Kinds that are whole programs' lives are
/// left out.
///
/// # Errors
/// Names two requests that claim the same work, with the thread and the time.
pub fn check_exclusive(all: &[(Request, Vec<Segment>)]) -> Result<(), String> {
    let own = all.iter().filter(|(request, _)| !request.kind.is_life() && request.complete);
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

/// Checks that every parent has a row, that its children begin within it, and that a child that ends after its parent
/// is marked as detached. If the parent's server and the child's client are known, they must be the same process. A
/// child must also begin after the server has the parent's question and before it answers. The table does not show
/// this; the engine ensures it.
///
/// # Errors
/// Names a request whose parent is not possible.
pub fn check_parents<'a>(all: impl IntoIterator<Item = &'a Request>) -> Result<(), String> {
    let all: HashMap<u64, &Request> =
        all.into_iter().map(|request| (request.request_id, request)).collect();
    let end_ns = |request: &Request| request.start_ns.saturating_add(request.latency_ns);
    for (id, child) in &all {
        let Some(parent) = child.parent_request_id else {
            if child.detached {
                return Err(format!("request {id} is detached from no parent"));
            }
            continue;
        };
        let Some(parent) = all.get(&parent) else {
            return Err(format!("the parent of request {id}, {parent}, has no row"));
        };
        let said =
            |what: &str| Err(format!("request {id} {what} its parent {}", parent.request_id));
        if child.start_ns < parent.start_ns || end_ns(parent) < child.start_ns {
            return said("does not begin within");
        }
        if end_ns(parent) < end_ns(child) && !child.detached {
            return said("ends after");
        }
        let is_life = parent.kind.is_life();
        if let (Some(client), Some(server), false) = (&child.client, &parent.server, is_life) {
            if client.pid != server.pid {
                return said("is asked by another process than serves");
            }
        }
    }
    Ok(())
}

/// Returns whether one request was made for the other. This is so if its parents lead to the other request, or if it
/// lies within the other request and was asked by the process that served the other request.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::End;
    use crate::Kind;

    fn request(request_id: u64, parent: Option<u64>, start_ns: u64, end_ns: u64) -> Request {
        let end = |pid| Some(End { pid, tid: pid, comm: "x".into() });
        Request {
            request_id,
            parent_request_id: parent,
            client: end(request_id as u32),
            server: end(request_id as u32 + 1),
            ..Request::new(Kind::Tcp, start_ns, end_ns)
        }
    }

    #[test]
    fn children_begin_within_their_parents() {
        let parent = request(1, None, 100, 200);
        let child = |start_ns, end_ns| request(2, Some(1), start_ns, end_ns);
        let check = |child: &Request| check_parents([&parent, child]);
        assert_eq!(check(&child(100, 200)), Ok(()));
        assert_eq!(check(&child(200, 200)), Ok(()));
        assert!(check(&child(99, 150)).unwrap_err().contains("does not begin within"));
        assert!(check(&child(201, 250)).unwrap_err().contains("does not begin within"));
        assert!(check(&child(150, 201)).unwrap_err().contains("ends after"));
        assert_eq!(check(&Request { detached: true, ..child(150, 201) }), Ok(()));
        let stranger = Request { client: parent.client.clone(), ..child(150, 160) };
        assert!(check(&stranger).unwrap_err().contains("another process"));
        assert!(check(&request(2, Some(3), 150, 160)).unwrap_err().contains("no row"));
        assert!(check(&Request { detached: true, ..request(2, None, 1, 2) }).is_err());
    }
}
