//! Targets that die while a request is in flight.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;

use rpcprobe::model::{Kind, Reason, Request, Who};
use tempfile::TempDir;

use crate::common::capture::{kinds, run, stdin_from, Capture};
use crate::common::process::{child_named, kill, reads_elsewhere, state, until, Talking};
use crate::common::{frpc, needs_kernel, text};

/// frpc in mode 3, with five answered requests and a sixth that its back end never reads.
struct InFlight {
    parent: TempDir,
    target: Talking,
    front_end: i32,
    back_end: i32,
}

impl InFlight {
    fn start() -> InFlight {
        let parent = TempDir::new().unwrap();
        let mut target = Talking::to(run(parent.path(), &[], &[&frpc("frpc"), "-m", "3"]));
        for number in 1..=5 {
            target.say(&format!("+ {number} 1"));
            assert_eq!(target.hear(), format!("ANSWER: {}", number + 1));
        }
        let front_end = child_named(target.pid(), "frpc");
        let back_end = child_named(front_end, "frpc");
        kill(back_end, libc::SIGSTOP);
        until("the back end stops", || state(back_end).as_deref() == Some("T"));
        target.say("+ 6 1");
        until("the front end waits for its answer", || reads_elsewhere(front_end));
        InFlight { parent, target, front_end, back_end }
    }

    /// Ends the target and returns the capture's six requests. The last of them was in flight.
    fn requests(self) -> (Output, Vec<Request>) {
        let output = self.target.end();
        let capture = Capture::in_directory(self.parent, output.clone());
        let requests = capture.checked();
        assert_eq!(kinds(&requests), [(Kind::Pipe, 6)].into(), "{}", text(&output.stderr));
        let mut requests: Vec<_> = requests.into_iter().map(|(request, _)| request).collect();
        requests.sort_by_key(|request| request.start_ns);
        for request in &requests[..5] {
            assert!(request.complete, "{request:?}");
        }
        assert!(!requests[5].complete, "{:?}", requests[5]);
        (output, requests)
    }
}

#[test]
fn a_request_whose_server_is_killed_is_incomplete() {
    let Some(_turn) = needs_kernel() else { return };
    let in_flight = InFlight::start();
    kill(in_flight.back_end, libc::SIGKILL);
    let (output, requests) = in_flight.requests();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let killed = Reason::Killed { who: Who::Server, signal: libc::SIGKILL };
    assert_eq!(requests[5].reason, Some(killed));
}

#[test]
fn a_request_whose_client_is_killed_is_incomplete() {
    let Some(_turn) = needs_kernel() else { return };
    let in_flight = InFlight::start();
    kill(in_flight.front_end, libc::SIGKILL);
    // The back end, stopped and orphaned, would keep standard output open forever.
    let front_end = format!("/proc/{}", in_flight.front_end);
    until("the front end is gone", || !Path::new(&front_end).exists());
    kill(in_flight.back_end, libc::SIGKILL);
    let (output, requests) = in_flight.requests();
    assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{}", text(&output.stderr));
    let killed = Reason::Killed { who: Who::Client, signal: libc::SIGKILL };
    assert_eq!(requests[5].reason, Some(killed));
}

#[test]
fn a_process_that_is_killed_has_its_request() {
    let Some(_turn) = needs_kernel() else { return };
    let input = stdin_from(frpc("expressions.txt"));
    let capture = Capture::of(&[], &["sh", "-c", "sh -c 'kill -9 $$'; exit 4"], input);
    assert_eq!(capture.output.status.code(), Some(4));
    // A shell may exec the last command of a script, but not a command with another one after it.
    let requests = capture.checked();
    assert_eq!(kinds(&requests), [(Kind::Exec, 1)].into());
    assert_eq!((requests[0].0.complete, requests[0].0.status), (true, Some(9)));
}
