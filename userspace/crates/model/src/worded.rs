//! Enums whose values are sentences in files. Each sentence is defined in one place, and code decides by the value.

/// Declares an enum in which each value has a text: `Variant { field: Type } = "text with {field}"`. The fields are
/// listed in the order in which the text names them. Any text can be parsed: an undeclared text is kept as `Other`.
#[macro_export]
macro_rules! worded {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$vdoc:meta])* $variant:ident $({ $($field:ident: $type:ty),+ })? = $text:literal),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$vdoc])* $variant $({ $($field: $type),+ })?,)+
            /// An undeclared text, perhaps of another version. No decision depends on it.
            Other(Box<str>),
        }

        impl $name {
            /// Returns the declared value of a text.
            fn declared(text: &str) -> Option<$name> {
                $(
                    #[allow(unused_mut, unused_variables)]
                    if let Some(mut values) = $crate::worded::values($text, text) {
                        let value = || Some($name::$variant $({
                            $($field: values.next()?.parse().ok()?),+
                        })?);
                        // A number can be written in several ways. The value is taken only if it is written back as the
                        // same text.
                        if let Some(value) = { value }().filter(|value| value.to_string() == text) {
                            return Some(value);
                        }
                    }
                )+
                None
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                $name::declared(text).unwrap_or_else(|| $name::Other(text.into()))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> $name {
                $name::from(&*text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $($name::$variant $({ $($field),+ })? => write!(f, $text),)+
                    $name::Other(text) => f.write_str(text),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(from)?;
                Ok($name::from(&*text))
            }
        }
    };
}

/// Returns the parts of a text in place of the template's `{names}`; `None` if the text does not fit the template.
#[doc(hidden)]
pub fn values<'t>(template: &str, text: &'t str) -> Option<std::vec::IntoIter<&'t str>> {
    let mut literals = template.split(['{', '}']).step_by(2);
    let mut rest = text.strip_prefix(literals.next()?)?;
    let mut values = Vec::new();
    for literal in literals {
        // The last value may extend to the end of the text.
        let at = if literal.is_empty() { rest.len() } else { rest.find(literal)? };
        values.push(&rest[..at]);
        rest = &rest[at + literal.len()..];
    }
    rest.is_empty().then(|| values.into_iter())
}

#[cfg(test)]
mod tests {
    worded! {
        /// The weather of a day.
        Day {
            Fair = "fair",
            Wet { mm: u32 } = "rain: {mm} mm",
            Between { from: i8, to: i8 } = "{from} to {to} degrees",
        }
    }

    #[test]
    fn every_text_is_a_value_and_stays_as_it_is() {
        assert_eq!(Day::from("fair"), Day::Fair);
        assert_eq!(Day::from("rain: 12 mm"), Day::Wet { mm: 12 });
        assert_eq!(Day::from("-3 to 4 degrees"), Day::Between { from: -3, to: 4 });
        for other in
            ["", "Fair", "fair ", "rain: 012 mm", "rain: x mm", "rain: 1 mm, more", "1 to "]
        {
            let day = Day::from(other);
            assert_eq!((&day, &day.to_string()[..]), (&Day::Other(other.into()), other));
        }
        for text in ["fair", "rain: 12 mm", "-3 to 4 degrees", "snow"] {
            assert_eq!(Day::from(text).to_string(), text);
        }
    }
}
