//! Mappings of a process: which code lies at which addresses.

use std::collections::BTreeMap;

/// The mappings of a process, by first address; they do not overlap.
#[derive(Clone, Debug, Default)]
pub struct AddressSpace(BTreeMap<u64, Extent>);

/// Bytes of a file, up to `end`.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub end: u64,
    pub file_offset: u64,
    /// Number of the file.
    pub module: u32,
}

impl AddressSpace {
    /// Adds a mapping, which replaces what it overlaps.
    pub fn map(&mut self, start: u64, new: Extent) {
        if new.end <= start {
            return;
        }
        let below = self.0.range(..new.end).rev();
        let old: Vec<(u64, Extent)> = (below.take_while(|(_, extent)| extent.end > start))
            .map(|(start, extent)| (*start, *extent))
            .collect();
        for (old_start, extent) in old {
            self.0.remove(&old_start);
            if old_start < start {
                self.0.insert(old_start, Extent { end: start, ..extent });
            }
            if extent.end > new.end {
                let file_offset = extent.file_offset.wrapping_add(new.end - old_start);
                self.0.insert(new.end, Extent { file_offset, ..extent });
            }
        }
        self.0.insert(start, new);
    }

    /// The file at an address, and the offset in it.
    pub fn find(&self, address: u64) -> Option<(u32, u64)> {
        let (start, extent) = self.0.range(..=address).next_back()?;
        let offset = extent.file_offset.wrapping_add(address - start);
        (address < extent.end).then_some((extent.module, offset))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn as_if_each_byte_were_mapped_by_itself(
            mappings in prop::collection::vec((0u64..64, 0u64..32, any::<u64>()), 0..20)
        ) {
            let mut space = AddressSpace::default();
            let mut bytes = [None; 128];
            for (module, (start, length, file_offset)) in (0u32..).zip(mappings) {
                space.map(start, Extent { end: start + length, file_offset, module });
                for at in 0..length {
                    let offset = file_offset.wrapping_add(at);
                    bytes[(start + at) as usize] = Some((module, offset));
                }
            }
            for (address, expected) in (0u64..).zip(bytes) {
                prop_assert_eq!(space.find(address), expected);
            }
        }
    }
}
