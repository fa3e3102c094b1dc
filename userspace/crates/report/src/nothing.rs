//! What to do when a capture has no requests.

use super::units::{count, format_ns};
use rpcprobe_capture::manifest::Manifest;
use rpcprobe_model::request_filter::FOUND;

/// Returns one or two lines of advice, depending on what is known about the capture.
pub fn nothing_found(manifest: &Manifest) -> Vec<String> {
    let rules: Vec<_> = manifest.options.requests.iter().map(ToString::to_string).collect();
    let mut lines = Vec::new();
    if !rules.is_empty() {
        lines.push(format!(
            "Only {} was looked for (--request). `rpcprobe attribute` without it looks for all kinds in \
             the same events.",
            rules.join(", ")
        ));
    } else {
        let kinds: Vec<_> = FOUND.iter().map(|kind| kind.name()).collect();
        lines.push(format!("Looked for: {}.", kinds.join(", ")));
    }
    if manifest.command.attached.is_some() {
        lines.push(format!(
            "The processes made {} in the {} captured. Was there traffic? Attach while requests are made, \
             to the processes that serve them; --duration 30s captures longer.",
            count(manifest.counts.syscalls, "system call"),
            format_ns(manifest.duration_ns)
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::manifest;
    use super::*;
    use rpcprobe_capture::manifest::Attached;

    #[test]
    fn what_can_be_done_depends_on_what_was() {
        let mut manifest = manifest();
        let kinds =
            "Looked for: exec, pipe, shm, unix, tcp, udp, http1, http2, oncrpc, resp, stdio, \
                     process.";
        assert_eq!(nothing_found(&manifest), [kinds]);
        manifest.command.attached = Some(Attached::default());
        let traffic = "The processes made 10 system calls in the 12.3 ms captured. Was there traffic? \
                       Attach while requests are made, to the processes that serve them; --duration \
                       30s captures longer.";
        assert_eq!(nothing_found(&manifest), [kinds, traffic]);
        manifest.options.requests = vec!["tcp:80".parse().unwrap(), "exec".parse().unwrap()];
        let narrowed =
            "Only tcp:80, exec was looked for (--request). `rpcprobe attribute` without it \
                        looks for all kinds in the same events.";
        assert_eq!(nothing_found(&manifest), [narrowed, traffic]);
    }
}
