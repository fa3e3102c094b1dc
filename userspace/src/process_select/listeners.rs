//! Who listens on which ports: the end of a connection with such a port is the server, and every process that has the
//! listening socket may accept the connection.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::*;

/// Local TCP ports that are listened on in the network namespaces of these processes.
pub fn listening_ports(pids: impl IntoIterator<Item = u32>) -> HashSet<NamespacePort> {
    let mut seen = HashSet::new();
    let mut ports = HashSet::new();
    for process in pids.into_iter().filter_map(|pid| Process::new(pid as i32).ok()) {
        let Some(namespace) = network_namespace(&process) else { continue };
        if !seen.insert(namespace) {
            continue;
        }
        ports.extend(listening(&process).into_values().map(|port| (namespace as u32, port)));
    }
    ports
}

/// A warning for each port on which these processes listen together with others that wait for connections, too: what
/// the others accept is not traced.
pub fn untraced_listeners(pids: &[u32]) -> Vec<String> {
    let mut known = HashMap::new();
    let traced = pids.iter().filter_map(|&pid| Process::new(pid as i32).ok());
    let sockets = traced.flat_map(|process| listening_sockets(&process, &mut known));
    let served: BTreeSet<NamespacePort> = sockets.map(|(port, _)| port).collect();
    if served.is_empty() {
        return Vec::new();
    }
    let ancestors: HashSet<u32> = pids.iter().flat_map(|&pid| ancestors(pid)).collect();
    let mut others: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for process in processes().into_iter().flatten() {
        let Ok(stat) = process.stat() else { continue };
        let pid = process.pid as u32;
        if pids.contains(&pid) || !traceable(&stat) {
            continue;
        }
        let is_ancestor = ancestors.contains(&pid);
        let shared = listening_sockets(&process, &mut known);
        let shared = shared.into_iter().filter(|(port, _)| served.contains(port));
        let waits = shared.filter(|(_, fd)| waits_for_connections(&process, *fd, is_ancestor));
        let ports: BTreeSet<u16> = waits.map(|((_, port), _)| port).collect();
        for port in ports {
            others.entry(port).or_default().push(format!("{}/{}", stat.comm, process.pid));
        }
    }
    others.into_iter().map(|(port, names)| warning(port, &names)).collect()
}

/// The listening sockets of a process: port and descriptor. `known`: by network namespace, the listening sockets.
fn listening_sockets(
    process: &Process,
    known: &mut HashMap<u64, HashMap<u64, u16>>,
) -> Vec<(NamespacePort, i32)> {
    let Some(namespace) = network_namespace(process) else { return Vec::new() };
    let ports = known.entry(namespace).or_insert_with(|| listening(process));
    if ports.is_empty() {
        return Vec::new();
    }
    let sockets = process.fd().into_iter().flatten().flatten();
    let sockets = sockets.filter_map(|fd| match fd.target {
        FDTarget::Socket(inode) => Some(((namespace as u32, *ports.get(&inode)?), fd.fd)),
        _ => None,
    });
    sockets.collect()
}

/// Whether a process waits for connections on a listening socket: by epoll, in accept(), or perhaps in poll() or
/// select(). Children have the sockets of their parents, and most of them do nothing with these. The first process of a
/// server often polls for other things, and leaves connections to those that it has forked (`is_ancestor`).
fn waits_for_connections(process: &Process, socket: i32, is_ancestor: bool) -> bool {
    let waits = |call: &str| waits_in_call(call, socket).is_some_and(|sure| sure || !is_ancestor);
    by_epoll(process, socket) || threads(process).any(|call| waits(&call))
}

fn by_epoll(process: &Process, socket: i32) -> bool {
    let epolls =
        process.fd().into_iter().flatten().flatten().filter(
            |fd| matches!(&fd.target, FDTarget::AnonInode(name) if name.contains("eventpoll")),
        );
    let watches = |epoll: i32| {
        // Proc(5): a line "tfd: FD events: ..." for each descriptor.
        let info = fs::read_to_string(format!("/proc/{}/fdinfo/{epoll}", process.pid));
        info.is_ok_and(|info| {
            let watched = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
            watched
                .filter_map(|line| line.split_whitespace().next())
                .any(|fd| fd.parse() == Ok(socket))
        })
    };
    { epolls }.any(|fd| watches(fd.fd))
}

/// The calls in which the threads of a process are, as /proc/PID/task/TID/syscall tells them (proc(5)).
fn threads(process: &Process) -> impl Iterator<Item = String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.pid)).into_iter().flatten().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("syscall")).ok())
}

/// Whether this call, "NUMBER ARGUMENT ...", waits for connections on the socket, and whether that is sure: which
/// descriptors a poll() or select() waits for is not told.
fn waits_in_call(call: &str, socket: i32) -> Option<bool> {
    let mut words = call.split_whitespace();
    let number = words.next()?.parse::<libc::c_long>().ok()?;
    let first = i64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    let socket = i64::from(socket);
    match number {
        libc::SYS_accept | libc::SYS_accept4 => (first == socket).then_some(true),
        // Its first argument is the number of descriptors: a select() of none only sleeps.
        libc::SYS_pselect6 => (first > socket).then_some(false),
        libc::SYS_ppoll => Some(false),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => (first > socket).then_some(false),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => Some(false),
        _ => None,
    }
}

/// How many processes a warning names.
const MOST_NAMED: usize = 4;

fn warning(port: u16, names: &[String]) -> String {
    let mut named = names[..names.len().min(MOST_NAMED)].join(", ");
    if names.len() > MOST_NAMED {
        named += &format!(" and {} others", names.len() - MOST_NAMED);
    }
    let (listen, are) = if names.len() == 1 { ("listens", "is") } else { ("listen", "are") };
    format!(
        "{named} also {listen} on port {port} and {are} not traced: requests on connections accepted there are \
         missing; --port {port} attaches to all"
    )
}

/// The listening TCP sockets in a process's network namespace: inode and local port.
fn listening(process: &Process) -> HashMap<u64, u16> {
    let sockets = [process.tcp(), process.tcp6()].into_iter().flatten().flatten();
    let listening = sockets.filter(|entry| entry.state == TcpState::Listen);
    listening.map(|entry| (entry.inode, entry.local_address.port())).collect()
}

/// The processes from which a process descends.
fn ancestors(pid: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(parent_of(pid), |&pid| parent_of(pid)).take_while(|&pid| pid != 0)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::*;

    /// A process that has the socket, too, as standard input, and waits.
    fn sharer(listener: &std::net::TcpListener, waits: &str) -> Child {
        let fd = listener.as_raw_fd();
        let script = format!("import select, socket, time\ns = socket.socket(fileno=0)\n{waits}");
        let mut command = Command::new("python3");
        // SAFETY: dup2() is async-signal-safe.
        unsafe {
            command.pre_exec(move || match libc::dup2(fd, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        command.args(["-c", &script]).spawn().expect("python3")
    }

    #[test]
    fn other_processes_that_wait_for_connections_are_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let me = std::process::id();
        assert!(listening_ports([me]).iter().any(|(_, of)| *of == port));
        assert_eq!(about(&untraced_listeners(&[me]), port), None);

        let ways = [
            "time.sleep(60)",
            "s.accept()",
            "e = select.epoll(); e.register(s, select.EPOLLIN); e.poll()",
            "select.select([s], [], [])",
        ];
        let mut sharers = ways.map(|waits| sharer(&listener, waits));
        let pids = [0, 1, 2, 3].map(|at: usize| sharers[at].id());
        let said = |traced: &[u32]| about(&untraced_listeners(traced), port);
        let named = |told: &str| pids.map(|pid| told.contains(&format!("python3/{pid}")));
        let begin = std::time::Instant::now();
        let mut told = String::new();
        while named(&told) != [false, true, true, true] && begin.elapsed().as_secs() < 20 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            told = said(&[me]).unwrap_or_default();
        }
        assert_eq!(named(&told), [false, true, true, true], "{told}");
        let expected = format!(
            "python3/{} also listens on port {port} and is not traced: requests on connections accepted there are \
             missing; --port {port} attaches to all",
            pids[1]
        );
        assert_eq!(said(&[me, pids[2], pids[3]]), Some(expected));
        assert_eq!(said(&pids), None);
        for sharer in &mut sharers {
            sharer.kill().expect("killed");
            sharer.wait().expect("ended");
        }
    }

    /// Other tests' processes may share other ports.
    fn about(warnings: &[String], port: u16) -> Option<String> {
        warnings.iter().find(|warning| warning.contains(&format!("port {port} "))).cloned()
    }
}
