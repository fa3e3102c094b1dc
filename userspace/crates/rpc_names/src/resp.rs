//! Names of Redis commands.

/// Returns a command's name in upper case: one word, or two if the first word is a container of
/// commands: `GET`, `CONFIG GET`.
pub(super) fn name(line: &[u8]) -> Option<Vec<u8>> {
    let is_word = |word: &[u8]| !word.is_empty() && word.iter().all(|&c| of_name(c));
    let mut words = line.split(|&c| c == b' ');
    let named = words.clone().count() <= 2 && words.all(is_word);
    named.then(|| line.to_ascii_uppercase())
}

fn of_name(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_')
}
