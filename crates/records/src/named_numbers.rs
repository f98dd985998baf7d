//! Structs of optional numbers whose fields each have a name. The page shows these names as the values of one label.
//! Each field is declared together with its name, so no code depends on the order of the fields.

/// Implemented by `named_numbers!`. A number is absent if the source did not send it.
pub trait NamedNumbers: Default {
    type Number;

    /// The names, in the order of the fields.
    const NAMES: &'static [&'static str];

    /// The numbers, in the order of [`NamedNumbers::NAMES`].
    fn numbers(self) -> impl Iterator<Item = Option<Self::Number>>;

    /// Calls `add` with each number and the number of the same name in `more`.
    fn add_each(&mut self, more: Self, add: impl Fn(&mut Option<Self::Number>, Option<Self::Number>));
}

/// `named_numbers! { pub struct Memory: u64 { total = "total", used = "used" } }` makes a struct with the fields `total` and
/// `used`, both of type `Option<u64>`.
#[macro_export]
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

            fn add_each(&mut self, more: Self, add: impl Fn(&mut Option<$number>, Option<$number>)) {
                $(add(&mut self.$field, more.$field);)*
            }
        }
    };
}

pub use crate::named_numbers;
