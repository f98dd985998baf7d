//! Structs of optional numbers whose fields each have a name. The page shows the names as values of one label, so field,
//! name and number belong together by construction and no code depends on a position.

/// Made by `named_numbers!`. An absent number is one that the source did not send.
pub trait NamedNumbers {
    type Number;

    /// In the order of the fields.
    const NAMES: &'static [&'static str];

    /// In the order of [`NamedNumbers::NAMES`].
    fn numbers(self) -> impl Iterator<Item = Option<Self::Number>>;

    /// In the order of [`NamedNumbers::NAMES`].
    fn numbers_mut(&mut self) -> impl Iterator<Item = &mut Option<Self::Number>>;
}

/// `named_numbers! { pub struct Memory: u64 { total = "total", used = "used" } }` makes a struct with the fields `total` and
/// `used`, both of type `Option<u64>`.
macro_rules! named_numbers {
    (
        $(#[$attribute:meta])*
        pub struct $struct:ident: $number:ty { $($field:ident = $name:literal),* $(,)? }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $struct {
            $(pub $field: Option<$number>),*
        }

        impl NamedNumbers for $struct {
            type Number = $number;

            const NAMES: &'static [&'static str] = &[$($name),*];

            fn numbers(self) -> impl Iterator<Item = Option<$number>> {
                [$(self.$field),*].into_iter()
            }

            fn numbers_mut(&mut self) -> impl Iterator<Item = &mut Option<$number>> {
                [$(&mut self.$field),*].into_iter()
            }
        }
    };
}

pub(crate) use named_numbers;
