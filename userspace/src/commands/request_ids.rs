//! Selects requests by id: `--id`, and `--ids` for many.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{bail, Context, Result};

use super::complain;
use super::report::Capture;
use crate::invoking_user::Owner;
use crate::output;
use crate::report::{count, escape};

/// Maximum number of nonexistent ids that are listed.
const LISTED: usize = 5;

/// Returns all ids of `--id` and of the file of `--ids`. `None` if neither was given; then all requests are meant. A
/// file without ids selects no request.
///
/// # Errors
/// The file cannot be read, or contains something else.
pub fn of(ids: &[u64], file: Option<&Path>) -> Result<Option<BTreeSet<u64>>> {
    let mut named: BTreeSet<u64> = ids.iter().copied().collect();
    let Some(file) = file else { return Ok((!ids.is_empty()).then_some(named)) };
    let text = read(file).with_context(|| format!("cannot read {}", file.display()))?;
    for word in text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty())
    {
        let Ok(id) = word.parse() else {
            bail!("{}: `{}` is no number of a request", file.display(), escape(word))
        };
        named.insert(id);
    }
    Ok(Some(named))
}

fn read(file: &Path) -> Result<String> {
    let mut text = String::new();
    match file == Path::new("-") {
        true => std::io::stdin().lock().read_to_string(&mut text)?,
        false => Owner::invoking().run(|| File::open(file))??.read_to_string(&mut text)?,
    };
    Ok(text)
}

/// Says how many of the named requests are incomplete; figures do not show those.
///
/// # Errors
/// One of the requests is in no capture; a table cannot be read.
pub fn check(captures: &[Capture], named: &BTreeSet<u64>) -> Result<()> {
    let (mut unknown, mut incomplete) = (named.clone(), 0_u64);
    for capture in captures {
        for row in output::stream_requests(&capture.requests)? {
            let request = row?.request;
            if named.contains(&request.request_id) {
                unknown.remove(&request.request_id);
                incomplete += u64::from(!request.complete);
            }
        }
    }
    if !unknown.is_empty() {
        let listed: Vec<_> = unknown.iter().take(LISTED).map(u64::to_string).collect();
        let more = if unknown.len() > LISTED { ", ..." } else { "" };
        bail!("there is no request {}{more}", listed.join(", "));
    }
    if incomplete > 0 {
        complain(&format_args!(
            "{} of those named incomplete: not in the figure",
            match incomplete {
                1 => "1 request is".to_owned(),
                more => format!("{} are", count(more, "request")),
            }
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_any_layout() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let of = |ids: &[u64], text: &str| {
            std::fs::write(file.path(), text).expect("written");
            super::of(ids, Some(file.path())).map_err(|error| format!("{error:#}"))
        };
        let set = |ids: &[u64]| Some(ids.iter().copied().collect::<BTreeSet<u64>>());
        assert_eq!(of(&[7], "3\n1, 2\n2 18446744073709551615"), Ok(set(&[1, 2, 3, 7, u64::MAX])));
        assert_eq!(of(&[], " \n"), Ok(set(&[])));
        assert_eq!(super::of(&[], None).expect("none"), None);
        assert_eq!(super::of(&[4], None).expect("one"), set(&[4]));
        for (text, told) in [("1 x", "`x`"), ("-1", "`-1`"), ("1.5", "`1.5`"), ("\u{1b}", "\\x1b")]
        {
            let error = of(&[], text).expect_err("an error");
            assert!(
                error.contains(told) && error.ends_with("is no number of a request"),
                "{error}"
            );
        }
        assert!(super::of(&[], Some(Path::new("nowhere/at/all"))).is_err());
    }
}
