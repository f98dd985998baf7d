//! The identifier of a family.

/// A family of the catalog: its table and its index in that table. Sorted ids are in page order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u16);

impl Id {
    pub(super) const fn new(table: u8, index: u8) -> Self {
        Self((table as u16) << 8 | index as u16)
    }

    /// The number of the table, and the index in it.
    #[must_use]
    pub const fn table_and_index(self) -> (usize, usize) {
        ((self.0 >> 8) as usize, (self.0 & 0xff) as usize)
    }
}
