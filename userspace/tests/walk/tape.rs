//! Choices of a simulation, taken from numbers that a property test made up. So that a failing run
//! shrinks, every choice must get simpler towards 0, and an exhausted tape gives 0.

#[derive(Debug)]
pub struct Tape {
    numbers: Vec<u16>,
    next: usize,
}

impl Tape {
    pub fn new(numbers: Vec<u16>) -> Tape {
        Tape { numbers, next: 0 }
    }

    /// A number below `n`.
    pub fn pick(&mut self, n: u64) -> u64 {
        let number = self.numbers.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        u64::from(number) % n
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.pick(n) == n - 1
    }

    /// At least 1 and at most `n`.
    pub fn length(&mut self, n: u64) -> u64 {
        1 + self.pick(n)
    }
}
