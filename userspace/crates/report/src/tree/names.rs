//! Numbers names.

use std::collections::HashMap;

/// A limited set of names, referred to by number.
#[derive(Default)]
pub(super) struct Names {
    numbers: HashMap<String, u16>,
    names: Vec<String>,
}

impl Names {
    /// Returns the number of a name, assigning one if the name is new; `None` if there are too many
    /// names.
    pub fn number(&mut self, name: &str) -> Option<u16> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let number = u16::try_from(self.names.len()).ok()?;
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        Some(number)
    }

    /// Returns the number of a name, if it has one.
    pub fn known(&self, name: &str) -> Option<u16> {
        self.numbers.get(name).copied()
    }

    pub fn name(&self, number: u16) -> &str {
        &self.names[usize::from(number)]
    }
}
