//! Enums whose variants each have a name, which is mostly the value of a label. Each variant is declared together with its name, so the
//! names are in the order of the variants.

/// `named_variants! { pub enum Color { Red = "red", Blue = "blue" } }` makes an enum with `Color::ALL`, `Color::NAMES` and
/// `Color::Red.name()`. A count per variant is indexed by `Color::Red as usize`.
#[macro_export]
macro_rules! named_variants {
    (
        $(#[$attribute:meta])*
        pub enum $enum:ident { $($(#[$about:meta])* $variant:ident = $name:literal),* $(,)? }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $enum { $($(#[$about])* $variant),* }

        impl $enum {
            pub const ALL: [Self; Self::NAMES.len()] = [$(Self::$variant),*];
            /// The names, in the order of the variants.
            pub const NAMES: [&'static str; [$($name),*].len()] = [$($name),*];

            /// The name on pages and in documents.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

pub use crate::named_variants;
