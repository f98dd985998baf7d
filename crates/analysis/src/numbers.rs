//! Conversion of counts to `f64`, and structs of `f64` numbers.

/// Defines a struct of numbers, and functions that combine two of them.
macro_rules! numbers {
    ($(#[$of:meta])* $visibility:vis struct $name:ident { $($(#[$each:meta])* $field:ident,)* }) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        $visibility struct $name { $($(#[$each])* $visibility $field: f64,)* }

        impl $name {
            /// The increase since `before`.
            #[must_use]
            $visibility fn since(&self, before: &Self) -> Self {
                self.combine(before, |now, before| now - before)
            }

            /// Applies `function` to each number and to the number with the same name in `other`.
            #[must_use]
            $visibility fn combine(&self, other: &Self, function: impl Fn(f64, f64) -> f64) -> Self {
                Self { $($field: function(self.$field, other.$field),)* }
            }
        }
    };
}
pub(crate) use numbers;

/// Absent and negative numbers count as 0.
pub(crate) fn number(value: Option<i64>) -> f64 {
    value.unwrap_or(0).max(0) as f64
}
