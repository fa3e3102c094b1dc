//! The consumer of the per-CPU rings: copies records out, without ever being woken per record.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys;
use libbpf_rs::{AsRawLibbpf, MapHandle, RingBuffer, RingBufferBuilder};

use crate::clock;

/// All rings, mapped.
pub struct Rings<'m> {
    buffer: RingBuffer<'m>,
    sink: Rc<RefCell<Sink>>,
    count: u32,
}

/// Where the callbacks leave a ring's records until the drain of that ring is over.
#[derive(Default)]
struct Sink {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
}

impl<'m> Rings<'m> {
    /// Maps the rings, one a CPU.
    pub fn new(maps: &'m [MapHandle]) -> Result<Self> {
        let sink = Rc::new(RefCell::new(Sink::default()));
        let mut builder = RingBufferBuilder::new();
        for map in maps {
            let sink = Rc::clone(&sink);
            builder.add(map, move |record| {
                let mut sink = sink.borrow_mut();
                sink.bytes.extend_from_slice(record);
                sink.lengths.push(record.len() as u32);
                0
            })?;
        }
        let buffer = builder.build().context("cannot map the rings")?;
        Ok(Rings { buffer, sink, count: maps.len() as u32 })
    }

    /// Hands every record now in the rings to `take(cpu, record)`, then calls
    /// `drained(cpu, watermark_ns)`: all records of that CPU before the watermark have been taken.
    /// The watermark is `None` when a program was still filling a record.
    pub fn drain<E>(
        &self,
        mut take: impl FnMut(u32, &[u8]),
        mut drained: impl FnMut(u32, Option<u64>) -> Result<(), E>,
    ) -> Result<(), E> {
        for cpu in 0..self.count {
            // SAFETY: the pointer is that of a live ring_buffer, cpu is below its ring count; the
            // ring lives as long as the buffer.
            let ring = unsafe {
                libbpf_sys::ring_buffer__ring(self.buffer.as_libbpf_object().as_ptr(), cpu)
            };
            let now_ns = clock::monotonic_ns();
            // SAFETY: `ring` is the live ring obtained above.
            let wanted = unsafe { libbpf_sys::ring__producer_pos(ring) };
            // SAFETY: as above; the callbacks only touch `sink`, which is not borrowed here.
            unsafe { libbpf_sys::ring__consume(ring) };
            // SAFETY: as above.
            let reached = unsafe { libbpf_sys::ring__consumer_pos(ring) };

            let mut sink = self.sink.borrow_mut();
            let mut at = 0;
            for &length in &sink.lengths {
                let end = at + length as usize;
                take(cpu, &sink.bytes[at..end]);
                at = end;
            }
            sink.bytes.clear();
            sink.lengths.clear();
            drop(sink);
            drained(cpu, (reached >= wanted).then_some(now_ns))?;
        }
        Ok(())
    }
}
