//! The texts that the segments of a request refer to. Each text is kept once and referred to by number.

use std::hash::Hasher;
use std::num::NonZeroU32;

use rustc_hash::FxHasher;

/// The number of a text within its request; equal texts have equal numbers. The stored value is the number plus one, so
/// that `Option<TextId>` needs no extra memory in the many segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextId(NonZeroU32);

impl TextId {
    /// Numbers begin at 0 and have no gaps.
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The texts of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// All texts one after the other, and the end of each text.
    bytes: String,
    ends: Vec<usize>,
    /// Hash table: the number plus one of the text in each slot; 0 if the slot is empty.
    slots: Vec<u32>,
}

/// Initial number of slots.
const FEW: usize = 32;

impl Texts {
    /// Makes an empty set of texts, with room for the texts of most requests.
    pub fn new() -> Texts {
        Texts {
            bytes: String::with_capacity(16 * FEW),
            ends: Vec::with_capacity(FEW / 2),
            slots: vec![0; FEW],
        }
    }

    /// Copies the texts, with the same numbers, into no more memory than they need.
    pub fn compact(&self) -> Texts {
        Texts { bytes: self.bytes.clone(), ends: self.ends.clone(), slots: Vec::new() }
    }

    /// Number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the text of a number.
    ///
    /// # Panics
    /// May panic if the number belongs to another request's texts.
    #[inline]
    pub fn get(&self, id: TextId) -> &str {
        let from = id.index().checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from..self.ends[id.index()]]
    }

    /// Returns the number of a text, adding the text if it is new.
    #[inline]
    pub fn add(&mut self, text: &str) -> TextId {
        self.add_with(|to| to.push_str(text))
    }

    /// Returns the number of the text that `write` appends to its argument.
    pub fn add_with(&mut self, write: impl FnOnce(&mut String)) -> TextId {
        let from = self.bytes.len();
        write(&mut self.bytes);
        if 2 * (self.ends.len() + 1) > self.slots.len() {
            self.grow();
        }
        let text = &self.bytes.as_bytes()[from..];
        let mask = self.slots.len() - 1;
        let mut slot = hash(text) & mask;
        while let Some(known) = NonZeroU32::new(self.slots[slot]).map(TextId) {
            if self.get(known).as_bytes() == text {
                self.bytes.truncate(from);
                return known;
            }
            slot = (slot + 1) & mask;
        }
        self.ends.push(self.bytes.len());
        let number = self.ends.len() as u32; // each text takes more than four bytes
        self.slots[slot] = number;
        TextId(NonZeroU32::new(number).unwrap_or(NonZeroU32::MAX))
    }

    /// Returns the number of the text `text; more`, or of `more` alone without a `text`.
    pub fn extend(&mut self, text: Option<TextId>, more: &str) -> TextId {
        match text {
            Some(text) => {
                let both = [self.get(text), more].join("; ");
                self.add(&both)
            }
            None => self.add(more),
        }
    }

    /// Removes all texts.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.slots.fill(0);
    }

    fn grow(&mut self) {
        let slots = (2 * (self.ends.len() + 1)).next_power_of_two().max(FEW);
        self.slots = vec![0; slots];
        let mut from = 0;
        for (index, end) in self.ends.iter().enumerate() {
            let mut slot = hash(&self.bytes.as_bytes()[from..*end]) & (slots - 1);
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (slots - 1);
            }
            self.slots[slot] = index as u32 + 1;
            from = *end;
        }
    }
}

#[inline]
fn hash(text: &[u8]) -> usize {
    let mut hasher = FxHasher::default();
    hasher.write(text);
    hasher.finish() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_number() {
        let mut texts = Texts::default();
        let name = |number: usize| format!("text {}", number * number);
        let ids: Vec<_> = (0..1000).map(|number| texts.add(&name(number))).collect();
        assert!(ids.iter().enumerate().all(|(number, id)| id.index() == number));
        for (number, id) in ids.iter().enumerate() {
            assert_eq!(texts.add(&name(number)), *id);
            assert_eq!(texts.get(*id), name(number));
        }
        assert_eq!(texts.len(), 1000);
        let empty = texts.add("");
        assert_eq!(texts.add(""), empty);
        assert_eq!(texts.get(empty), "");
        let mut compact = texts.compact();
        assert_eq!(compact.add(&name(7)), ids[7]);
        assert_eq!((compact.add("more").index(), compact.get(ids[999])), (1001, &*name(999)));
        texts.clear();
        assert!(texts.is_empty());
        assert_eq!(texts.add("again").index(), 0);
    }
}
