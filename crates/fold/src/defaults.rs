//! Structs with fields that begin with something other than the default of their type.

/// `with_defaults! { pub struct Totals { pub count: u64, pub seconds: Histogram = Histogram::new(SHORT_SECONDS) } }` makes the
/// struct and its `Default`.
macro_rules! with_defaults {
    (
        $(#[$attribute:meta])*
        pub struct $Struct:ident {
            $($(#[$about:meta])* $visibility:vis $field:ident: $type:ty $(= $value:expr)?),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $Struct { $($(#[$about])* $visibility $field: $type),* }

        impl Default for $Struct {
            fn default() -> Self {
                Self { $($field: with_defaults!(@$($value)?)),* }
            }
        }
    };
    (@) => { Default::default() };
    (@$value:expr) => { $value };
}

pub(crate) use with_defaults;
