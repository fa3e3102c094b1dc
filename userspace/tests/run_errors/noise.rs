//! Pseudo-random numbers and bytes.

/// A pseudo-random number generator with a fixed sequence.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % end
    }
}

/// Pseudo-random bytes.
pub fn noise(length: usize) -> Vec<u8> {
    let mut dice = Dice(length as u64 + 1);
    (0..length).map(|_| dice.below(256) as u8).collect()
}
