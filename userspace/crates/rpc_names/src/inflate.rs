//! HPACK decoding (RFC 7541), by nghttp2.

use std::ptr::NonNull;

use libnghttp2_sys as nghttp2;

/// The decoder of one direction, with its table.
pub(super) struct Inflater(NonNull<nghttp2::nghttp2_hd_inflater>);

/// The block is not HPACK, or refers to an entry that does not exist.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken;

impl Inflater {
    /// Makes a decoder with an empty table, which its peer may grow to `most_table_bytes`.
    pub(super) fn new(most_table_bytes: usize) -> Inflater {
        let mut inflater = std::ptr::null_mut();
        // SAFETY: fills in the pointer that it is given, if it returns 0.
        let made = unsafe { nghttp2::nghttp2_hd_inflate_new(&mut inflater) };
        let inflater = NonNull::new(inflater).filter(|_| made == 0).expect("memory");
        // SAFETY: a live decoder, between two blocks.
        unsafe {
            nghttp2::nghttp2_hd_inflate_change_table_size(inflater.as_ptr(), most_table_bytes)
        };
        Inflater(inflater)
    }

    /// Decodes a complete block. After an error the decoder is unusable.
    pub(super) fn decode(
        &mut self,
        block: &[u8],
        mut see: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Broken> {
        let mut rest = block;
        loop {
            let mut header = nghttp2::nghttp2_nv {
                name: std::ptr::null_mut(),
                value: std::ptr::null_mut(),
                namelen: 0,
                valuelen: 0,
                flags: 0,
            };
            let mut told = 0;
            // SAFETY: a live decoder, two places to write to, and bytes with their length.
            let taken = unsafe {
                nghttp2::nghttp2_hd_inflate_hd3(
                    self.0.as_ptr(),
                    &mut header,
                    &mut told,
                    rest.as_ptr(),
                    rest.len(),
                    1,
                )
            };
            rest = usize::try_from(taken).ok().and_then(|taken| rest.get(taken..)).ok_or(Broken)?;
            let told = told as nghttp2::nghttp2_hd_inflate_flag;
            if told & nghttp2::NGHTTP2_HD_INFLATE_EMIT != 0 {
                // SAFETY: both are set, and stay valid until the next call.
                let (name, value) = unsafe {
                    (bytes(header.name, header.namelen), bytes(header.value, header.valuelen))
                };
                see(name, value);
            } else if told & nghttp2::NGHTTP2_HD_INFLATE_FINAL == 0 {
                return Err(Broken); // the block is incomplete
            }
            if told & nghttp2::NGHTTP2_HD_INFLATE_FINAL != 0 {
                // SAFETY: a live decoder, at the end of a block.
                unsafe { nghttp2::nghttp2_hd_inflate_end_headers(self.0.as_ptr()) };
                return Ok(());
            }
        }
    }
}

impl Drop for Inflater {
    fn drop(&mut self) {
        // SAFETY: made by nghttp2_hd_inflate_new(), not deleted before.
        unsafe { nghttp2::nghttp2_hd_inflate_del(self.0.as_ptr()) };
    }
}

/// # Safety
/// `length` bytes at `start` can be read for as long as the result is used.
unsafe fn bytes<'b>(start: *const u8, length: usize) -> &'b [u8] {
    match length {
        0 => &[],
        // SAFETY: promised by the caller.
        _ => unsafe { std::slice::from_raw_parts(start, length) },
    }
}
