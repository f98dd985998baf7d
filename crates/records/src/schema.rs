//! The schema: the properties of a field, and what every statistics struct of TensorRT-LLM can do. `statistics.rs` lists the fields,
//! each once and with its properties; `schema!` in `structs.rs` makes everything else from the list.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, MapAccess};

use super::lenient;
use super::named_variants::named_variants;

/// What the schema says about one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The struct, by TensorRT-LLM's name.
    pub structure: &'static str,
    /// The key in TensorRT-LLM's JSON.
    pub key: &'static str,
    /// The name of the member, which is also the key in snake_case.
    pub member: &'static str,
    /// Which engines send it.
    pub when: When,
    /// The C++ Executor's struct has it.
    pub is_cpp: bool,
    pub ranks: Ranks,
    /// It is load, so it is 0 while the engine is idle.
    pub is_load: bool,
    /// Why no family shows it.
    pub none: Option<&'static str>,
}

named_variants! {
    /// A kind of statistics. Whether an engine sends it depends on its backend, its release and its options. The metrics reference says
    /// what each kind needs.
    #[derive(PartialOrd, Ord)]
    pub enum When {
        Any = "any",
        Iterations = "iterations",
        Cpp = "cpp",
        PyTorch = "pytorch",
        Speculation = "speculation",
        AttentionDp = "attention_dp",
        CrossAttention = "cross_attention",
        Windows = "windows",
        V2 = "v2",
        Rows = "rows",
        Entries = "entries",
        ServerPage = "server_page",
        Report = "report",
        Orchestrator = "orchestrator",
    }
}

/// How the values of the ranks of attention data parallelism, or of pools, add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranks {
    /// The value of the first one counts.
    First,
    /// The sum of the known values.
    Sum,
    /// The largest of the known values.
    Largest,
    /// The sum. It is unknown if one value is, because a part would be compared with the whole.
    All,
    /// Like `Sum`. The value counts what happened since the previous record, so it adds up over records, too.
    Events,
}

impl Field {
    #[must_use]
    pub const fn new(structure: &'static str, key: &'static str, member: &'static str, when: When) -> Self {
        Self { structure, key, member, when, is_cpp: false, ranks: Ranks::First, is_load: false, none: None }
    }

    pub(crate) const fn cpp(self) -> Self {
        Self { is_cpp: true, ..self }
    }

    pub(crate) const fn sum(self) -> Self {
        Self { ranks: Ranks::Sum, ..self }
    }

    pub(crate) const fn largest(self) -> Self {
        Self { ranks: Ranks::Largest, ..self }
    }

    pub(crate) const fn all(self) -> Self {
        Self { ranks: Ranks::All, ..self }
    }

    pub(crate) const fn events(self) -> Self {
        Self { ranks: Ranks::Events, ..self }
    }

    pub(crate) const fn load(self) -> Self {
        Self { is_load: true, ..self }
    }

    pub(crate) const fn when(self, when: When) -> Self {
        Self { when, ..self }
    }

    pub(crate) const fn none(self, why: &'static str) -> Self {
        Self { none: Some(why), ..self }
    }
}

/// A record, row or entry has an impossible key, so it cannot be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Implausible;

/// What was left out because it is impossible.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rejected {
    /// Number of values by field, with TensorRT-LLM's key.
    pub values: BTreeMap<&'static str, u64>,
    /// Rows of requests whose id is impossible.
    pub rows: u64,
}

impl Rejected {
    pub(crate) fn value(&mut self, key: &'static str) {
        *self.values.entry(key).or_default() += 1;
    }
}

/// A struct of the schema. `schema!` implements it.
pub trait Schema: Default {
    /// The fields, in the order of the members.
    const FIELDS: &'static [Field];

    /// The index of the field with this key, in either spelling.
    fn find(key: &str) -> Option<usize>;

    /// Reads the value of the field with this index.
    ///
    /// # Errors
    /// If the JSON is invalid. A value of a wrong type does not cause an error.
    fn read<'de, A: MapAccess<'de>>(&mut self, field: usize, object: &mut A) -> Result<(), A::Error>;

    /// Whether all values are possible. This has few branches, because a record has dozens of numbers and almost all are valid.
    fn is_plausible(&self) -> bool;

    /// Whether the keys are possible. A key (the number of an iteration, a rank, an id) cannot be left out, because the record would
    /// belong to another iteration or engine.
    fn has_keys(&self) -> bool;

    /// Removes each impossible value. Impossible keys stay.
    fn repair(&mut self, rejected: &mut Rejected);

    /// Adds the values of another rank or pool, as [`Field::ranks`] says.
    fn add(&mut self, other: &Self);

    /// Adds what happened since the record before.
    fn add_events(&mut self, record: &Self);

    /// Calls `each` with every count since the start of the engine, and with that of `other`.
    fn each_cumulative(&mut self, other: &mut Self, each: impl FnMut(&mut Option<i64>, &mut Option<i64>));

    /// Sets all load to 0.
    fn make_idle(&mut self);

    /// Approximate memory in bytes of the parts whose number or length a peer chooses.
    fn weight(&self) -> usize;

    /// Stands for a value that is not an object. No object has these numbers.
    fn wrong_type_sentinel() -> Self;
}

/// `message` itself if all its values are possible. Otherwise a copy without its impossible values, in `repaired`. One absurd number
/// in a sum could not be corrected later, so such a value is left out and counted, and the rest of its record counts.
///
/// # Errors
/// If a key is impossible.
pub fn check<'m, M: Schema + Clone>(
    message: &'m M,
    repaired: &'m mut Option<Box<M>>,
    rejected: &mut Rejected,
) -> Result<&'m M, Implausible> {
    if message.is_plausible() {
        return Ok(message);
    }
    if !message.has_keys() {
        return Err(Implausible);
    }
    let copy = repaired.insert(Box::new(message.clone()));
    copy.repair(rejected);
    Ok(copy)
}

/// An object in an array or in another object.
pub(super) struct Element<T>(pub T);

impl<'de, T: Schema + Deserialize<'de>> Deserialize<'de> for Element<T> {
    fn deserialize<D: Deserializer<'de>>(element: D) -> Result<Self, D::Error> {
        Ok(Self(lenient::object(element, || Some(T::wrong_type_sentinel()))?.unwrap_or_else(T::wrong_type_sentinel)))
    }
}
