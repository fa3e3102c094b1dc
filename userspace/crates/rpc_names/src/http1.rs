//! HTTP/1 request lines (RFC 9112, section 3).

/// Returns `METHOD TARGET`. The query is removed when the path is encoded.
pub(super) fn method(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.split(|&b| b == b'\r' || b == b'\n').next()?;
    let mut words = line.split(|&b| b == b' ');
    let (method, target) = (words.next()?, words.next()?);
    if method.is_empty() || !method.iter().all(u8::is_ascii_uppercase) {
        return None;
    }
    // An absolute target contains a host, and perhaps a user.
    let path = match target.windows(3).position(|part| part == b"://") {
        Some(scheme) => {
            let rest = &target[scheme + 3..];
            rest.iter().position(|&b| b == b'/').map_or(&b"/"[..], |slash| &rest[slash..])
        }
        None => target,
    };
    Some([method, b" ", path].concat())
}
