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

/// A warning for each port on which these processes listen together with others: connections that the others accept are
/// not traced. Processes from which they descend do not count, because a server's first process has the socket of those
/// that it has forked to accept connections.
pub fn untraced_listeners(pids: &[u32]) -> Vec<String> {
    let ours: HashSet<u32> = pids.iter().copied().collect();
    let mut known: HashMap<u64, HashMap<u64, u16>> = HashMap::new();
    let mut ports_of = |process: &Process| -> BTreeSet<(u64, u16)> {
        let Some(namespace) = network_namespace(process) else { return BTreeSet::new() };
        let ports = known.entry(namespace).or_insert_with(|| listening(process));
        let sockets = process.fd().into_iter().flatten().flatten();
        let ports = sockets.filter_map(|fd| match fd.target {
            FDTarget::Socket(inode) => ports.get(&inode),
            _ => None,
        });
        ports.map(|port| (namespace, *port)).collect()
    };
    let traced = pids.iter().filter_map(|&pid| Process::new(pid as i32).ok());
    let served: BTreeSet<(u64, u16)> = traced.flat_map(|process| ports_of(&process)).collect();
    if served.is_empty() {
        return Vec::new();
    }
    let mut skipped: HashSet<u32> = pids.iter().flat_map(|&pid| ancestors(pid)).collect();
    skipped.extend(&ours);
    let mut others: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for process in processes().into_iter().flatten() {
        let Ok(stat) = process.stat() else { continue };
        if skipped.contains(&(process.pid as u32)) || !traceable(&stat) {
            continue;
        }
        for (_, port) in ports_of(&process).intersection(&served) {
            others.entry(*port).or_default().push(format!("{}/{}", stat.comm, process.pid));
        }
    }
    others.into_iter().map(|(port, names)| warning(port, &names)).collect()
}

/// How many processes a warning names.
const MOST_NAMED: usize = 4;

fn warning(port: u16, names: &[String]) -> String {
    let mut named = names[..names.len().min(MOST_NAMED)].join(", ");
    if names.len() > MOST_NAMED {
        named += &format!(" and {} others", names.len() - MOST_NAMED);
    }
    let listen = if names.len() == 1 { "listens" } else { "listen" };
    format!(
        "{named} also {listen} on port {port} and {} not traced: requests served there are missing; --port {port} \
         attaches to all",
        if names.len() == 1 { "is" } else { "are" }
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

    /// A process that has the socket, too.
    fn sharer(listener: &std::net::TcpListener) -> Child {
        let fd = listener.as_raw_fd();
        let mut command = Command::new("sleep");
        // SAFETY: fcntl() is async-signal-safe.
        unsafe {
            command.pre_exec(move || match libc::fcntl(fd, libc::F_SETFD, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        command.arg("60").spawn().expect("sleep")
    }

    #[test]
    fn other_processes_that_have_the_listening_socket_are_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let me = std::process::id();
        assert!(listening_ports([me]).iter().any(|(_, of)| *of == port));
        assert_eq!(about(&untraced_listeners(&[me]), port), None);

        let mut sharers = [sharer(&listener), sharer(&listener)];
        let [first, second] = [0, 1].map(|at: usize| sharers[at].id());
        let told = about(&untraced_listeners(&[first]), port).expect("a warning");
        let expected = format!(
            "sleep/{second} also listens on port {port} and is not traced: requests served there are missing; \
             --port {port} attaches to all"
        );
        assert_eq!(told, expected);
        assert_eq!(about(&untraced_listeners(&[first, second]), port), None);
        let of_two = about(&untraced_listeners(&[me]), port).expect("a warning");
        assert!(of_two.contains("also listen on port"), "{of_two}");
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
