//! Names by number.

use std::collections::HashMap;

/// Names, as many as numbers tell apart.
#[derive(Default)]
pub(super) struct Names {
    numbers: HashMap<String, u16>,
    names: Vec<String>,
}

impl Names {
    /// The number of a name, which is given one if it is new; `None`: there are too many.
    pub fn number(&mut self, name: &str) -> Option<u16> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let number = u16::try_from(self.names.len()).ok()?;
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        Some(number)
    }

    /// The number of a name that has one.
    pub fn known(&self, name: &str) -> Option<u16> {
        self.numbers.get(name).copied()
    }

    pub fn name(&self, number: u16) -> &str {
        &self.names[usize::from(number)]
    }
}
