//! Messages of libbpf. Our errors contain the last one that matters.

use libbpf_rs::{Object, OpenObject, PrintLevel};

static LAST_MESSAGE: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());

/// libbpf prints whole verifier logs to stderr by default; keeps only the reason, for our own error.
pub(super) fn quiet_libbpf() {
    fn keep(_: PrintLevel, message: String) {
        let Ok(mut last) = LAST_MESSAGE.lock() else { return };
        // Later messages of libbpf say only that it failed.
        if let Some(why) = verdict(&message) {
            *last = why;
        } else if !message.trim().is_empty() && !last.starts_with(VERDICT) {
            *last = message;
        }
    }
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
}

pub(super) const VERDICT: &str = "verifier: ";

/// Finds the program and the reason in a verifier's log, which libbpf passes on as one message.
fn verdict(message: &str) -> Option<String> {
    let (about, log) = message.split_once("-- BEGIN PROG LOAD LOG --")?;
    let program = about.split('\'').nth(1).unwrap_or("?");
    let told = |line: &&str| {
        !line.is_empty() && !line.starts_with("processed ") && !line.starts_with("--")
    };
    let why = log.lines().map(str::trim).rfind(told).unwrap_or("nothing said");
    Some(format!("{VERDICT}{program}: {why}"))
}

pub(super) fn last_libbpf_message() -> String {
    LAST_MESSAGE.lock().map(|m| m.trim().to_string()).unwrap_or_default()
}

/// Loads the object. The last message is then one about this load.
pub(super) fn load(open: OpenObject) -> libbpf_rs::Result<Object> {
    if let Ok(mut last) = LAST_MESSAGE.lock() {
        last.clear();
    }
    open.load()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_which_program_and_why() {
        let log = "libbpf: prog 'mark': -- BEGIN PROG LOAD LOG --\n\
                   0: R1=ctx()\ncombined stack size of 2 calls is 528. Too large\n\
                   processed 35944 insns (limit 1000000)\n-- END PROG LOAD LOG --\n";
        let why = "verifier: mark: combined stack size of 2 calls is 528. Too large";
        assert_eq!(verdict(log).as_deref(), Some(why));
        assert_eq!(verdict("libbpf: failed to load object 'rpcprobe'"), None);
    }
}
