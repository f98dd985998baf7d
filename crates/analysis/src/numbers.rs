//! Structs of numbers that are subtracted, added and averaged as a whole. All are `f64`, also counts: rules multiply and
//! divide them, and counts are exact up to 2^53. The fold keeps its totals as integers.

/// Numbers that combine with others of the same kind, member by member.
pub trait Numbers: Sized {
    /// Applies `function` to each number and to the number with the same name in `other`.
    fn combine(&self, other: &Self, function: &impl Fn(f64, f64) -> f64) -> Self;

    /// The increase since `before`.
    fn since(&self, before: &Self) -> Self {
        self.combine(before, &|now, before| now - before)
    }
}

impl Numbers for f64 {
    fn combine(&self, other: &Self, function: &impl Fn(f64, f64) -> f64) -> Self {
        function(*self, *other)
    }
}

/// Defines a struct of numbers. A member without a type is an `f64`; another one is such a struct, too.
macro_rules! numbers {
    (
        $(#[$of:meta])*
        $visibility:vis struct $name:ident { $($(#[$each:meta])* $field:ident $(: $type:ty)?,)* }
    ) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        $visibility struct $name { $($(#[$each])* $visibility $field: $crate::numbers::numbers!(@type $($type)?),)* }

        impl $crate::numbers::Numbers for $name {
            fn combine(&self, other: &Self, function: &impl Fn(f64, f64) -> f64) -> Self {
                Self { $($field: $crate::numbers::Numbers::combine(&self.$field, &other.$field, function),)* }
            }
        }
    };
    (@type) => { f64 };
    (@type $type:ty) => { $type };
}
pub(crate) use numbers;

/// Defines totals that are kept at one moment, each with the place where it is read, and their increase since another
/// moment:
///
/// ```text
/// totals! {
///     pub struct SideMark of (totals: &SideTotals) {
///         sent: f64 = totals.sent as f64,
///         complete: Distribution = Distribution::of(&totals.complete),
///     }
/// }
/// ```
#[macro_export]
macro_rules! totals {
    (
        $(#[$of:meta])*
        pub struct $name:ident of ($($from:ident: $type:ty),*) {
            $($(#[$each:meta])* $field:ident: $kind:ty = $read:expr,)*
        }
    ) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct $name { $($(#[$each])* pub $field: $kind,)* }

        impl $name {
            fn of($($from: $type),*) -> Self {
                Self { $($field: $read,)* }
            }

            fn since(&self, before: &Self) -> Self {
                #[allow(unused_imports, reason = "a struct without plain numbers does not need it")]
                use $crate::numbers::Numbers as _;
                Self { $($field: self.$field.since(&before.$field),)* }
            }
        }
    };
}

/// `sum` ÷ `count`. Absent if `count` is 0.
pub fn mean(sum: f64, count: f64) -> Option<f64> {
    (count > 0.0).then(|| sum / count)
}

/// `part` ÷ `all`, or 0 if `all` is 0.
pub fn share(part: f64, all: f64) -> f64 {
    mean(part, all).unwrap_or(0.0)
}

/// Absent and negative numbers count as 0.
pub(crate) fn number(value: Option<i64>) -> f64 {
    value.unwrap_or(0).max(0) as f64
}
