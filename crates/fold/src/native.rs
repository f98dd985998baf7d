//! Buckets of a Prometheus native histogram. Each is wider than the one before by a constant factor, so no bounds need to
//! be chosen. The memory is allocated at the first value and never grows: a value outside of all buckets makes them twice
//! as wide.

use super::saturating::add;

/// Number of buckets. At the finest resolution they cover twenty powers of two, e.g. a microsecond to a second.
pub const SLOTS: usize = 160;
/// The finest resolution: 2³ buckets for each power of two. Each is 9 % wide.
const FINEST: i32 = 3;
/// A value up to this one is counted as zero. This is Prometheus's own default.
pub const ZERO_THRESHOLD: f64 = f64::from_bits((1023 - 128) << 52);

/// Counts by bucket. All values are finite and not negative.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NativeBuckets {
    zero: u64,
    /// How often the buckets have been made twice as wide.
    widened: i32,
    /// Bucket number of the first slot.
    first: i32,
    /// `None` until the first value: most histograms of an engine never get one, and the slots are most of the memory.
    slots: Option<Box<[u64; SLOTS]>>,
}

/// A run of adjacent buckets, as in Prometheus's protobuf format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketSpan {
    /// Empty buckets between the previous run and this one. For the first run, the number of its first bucket.
    pub offset: i32,
    pub length: u32,
}

impl NativeBuckets {
    #[must_use]
    pub const fn new() -> Self {
        Self { zero: 0, widened: 0, first: 0, slots: None }
    }

    /// Observes a value `times` times.
    pub fn observe(&mut self, value: f64, times: u64) {
        if value <= ZERO_THRESHOLD {
            add(&mut self.zero, times);
            return;
        }
        let finest = finest_bucket(value);
        let mut bucket = wider(finest, self.widened);
        if !(0..SLOTS as i32).contains(&(bucket - self.first)) {
            self.make_room(finest);
            bucket = wider(finest, self.widened);
        }
        let slots = self.slots.get_or_insert_with(zeroed);
        if let Some(slot) = slots.get_mut((bucket - self.first) as usize) {
            add(slot, times);
        }
    }

    /// Prometheus's schema: the bounds are the powers of 2^(2^-schema).
    #[must_use]
    pub const fn schema(&self) -> i32 {
        FINEST - self.widened
    }

    /// Number of values up to [`ZERO_THRESHOLD`].
    #[must_use]
    pub const fn zero(&self) -> u64 {
        self.zero
    }

    /// The runs of used buckets, and for each bucket in them the difference between its count and that of the bucket before.
    #[must_use]
    pub fn runs(&self) -> (Vec<BucketSpan>, Vec<i64>) {
        let (mut spans, mut deltas) = (Vec::<BucketSpan>::new(), Vec::new());
        let (mut before, mut next) = (0_u64, 0);
        let used = self.counts().iter().zip(self.first..).filter(|(count, _)| **count > 0);
        for (&count, bucket) in used {
            match spans.last_mut() {
                // One or two empty buckets take less space than a new run.
                Some(span) if bucket - next <= 2 => {
                    for _ in next..bucket {
                        deltas.push(difference(0, before));
                        before = 0;
                    }
                    span.length += (bucket - next) as u32 + 1;
                }
                _ => spans.push(BucketSpan { offset: bucket - next, length: 1 }),
            }
            deltas.push(difference(count, before));
            (before, next) = (count, bucket + 1);
        }
        (spans, deltas)
    }

    fn counts(&self) -> &[u64] {
        self.slots.as_deref().map_or(&[], |slots| slots)
    }

    /// Moves the slots, and makes the buckets wider if necessary, so that `finest` has a slot.
    #[cold]
    fn make_room(&mut self, finest: i32) {
        let used = || self.counts().iter().zip(self.first..).filter(|(count, _)| **count > 0);
        let buckets = || used().map(|(_, bucket)| bucket).chain([wider(finest, self.widened)]);
        let (low, high) = buckets().fold((i32::MAX, i32::MIN), |(low, high), one| (low.min(one), high.max(one)));
        let mut times = 0;
        while wider(high, times) - wider(low, times) >= SLOTS as i32 {
            times += 1;
        }
        let (low, high) = (wider(low, times), wider(high, times));
        let first = low + (high - low) / 2 - (SLOTS as i32 / 2 - 1);
        let mut slots = zeroed();
        for (count, bucket) in used() {
            if let Some(slot) = slots.get_mut((wider(bucket, times) - first) as usize) {
                add(slot, *count);
            }
        }
        (self.first, self.slots, self.widened) = (first, Some(slots), self.widened + times);
    }
}

fn zeroed() -> Box<[u64; SLOTS]> {
    Box::new([0; SLOTS])
}

/// Upper bounds of the finest buckets between 1 and 2: 2^(1/8), 2^(2/8) and so on.
const BOUNDS: [f64; 7] = [
    1.0905077326652577,
    1.189207115002721,
    1.2968395546510096,
    std::f64::consts::SQRT_2,
    1.5422108254079407,
    1.681792830507429,
    1.8340080864093424,
];

/// The number n of the finest bucket with 2^((n-1)/8) < `value` ≤ 2^(n/8), for a normal positive value.
fn finest_bucket(value: f64) -> i32 {
    let bits = value.to_bits();
    let exponent = (bits >> 52) as i32 - 1023;
    let fraction = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    // This has no branches: eight comparisons cost less than one mispredicted branch.
    let above = BOUNDS.iter().map(|bound| i32::from(fraction > *bound)).sum::<i32>() + i32::from(fraction > 1.0);
    exponent * 8 + above
}

/// The bucket that contains bucket `number` after the width has been doubled `times` times.
const fn wider(number: i32, times: i32) -> i32 {
    (number + ((1 << times) - 1)) >> times
}

fn difference(count: u64, before: u64) -> i64 {
    count.wrapping_sub(before).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upper bound and count of each bucket in use, read back from the runs as Prometheus reads them.
    fn read_back(buckets: &NativeBuckets) -> Vec<(f64, u64)> {
        let (spans, deltas) = buckets.runs();
        let mut deltas = deltas.into_iter();
        let (mut number, mut count, mut read) = (0, 0_i64, Vec::new());
        for span in spans {
            number += span.offset;
            for _ in 0..span.length {
                count += deltas.next().unwrap();
                if count > 0 {
                    read.push((2_f64.powf(f64::from(number) * 2_f64.powi(-buckets.schema())), count as u64));
                }
                number += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        read
    }

    #[test]
    fn a_value_is_counted_in_the_bucket_that_contains_it() {
        let mut value = 1e-30;
        while value < 1e30 {
            let bucket = f64::from(finest_bucket(value));
            assert!(value <= 2_f64.powf(bucket / 8.0) * (1.0 + 1e-12), "{value} is above bucket {bucket}");
            assert!(value > 2_f64.powf((bucket - 1.0) / 8.0) * (1.0 - 1e-12), "{value} is below bucket {bucket}");
            value *= 1.0371;
        }
        // A bound belongs to the bucket below it.
        for (value, bucket) in [(1.0, 0), (2.0, 8), (0.5, -8), (BOUNDS[3], 4), (1.0_f64.next_up(), 1)] {
            assert_eq!(finest_bucket(value), bucket, "{value}");
        }
        for (at, bound) in BOUNDS.iter().enumerate() {
            assert!((bound - 2_f64.powf((at + 1) as f64 / 8.0)).abs() < 1e-15);
        }
    }

    #[test]
    fn the_runs_contain_every_observation() {
        let mut buckets = NativeBuckets::new();
        for (value, times) in [(0.0, 2), (1.0, 5), (1.05, 1), (1.4, 7), (64.0, 3)] {
            buckets.observe(value, times);
        }
        assert_eq!((buckets.zero(), buckets.schema()), (2, 3));
        let spans = [BucketSpan { offset: 0, length: 5 }, BucketSpan { offset: 43, length: 1 }];
        assert_eq!(buckets.runs(), (spans.to_vec(), vec![5, -4, -1, 0, 7, -4]));
        let wide = |buckets: &NativeBuckets| read_back(buckets).iter().map(|(_, count)| *count).collect::<Vec<_>>();
        assert_eq!(wide(&buckets), [5, 1, 7, 3]);
        assert_eq!(NativeBuckets::new().runs(), (vec![], vec![]));
    }

    #[test]
    fn a_value_outside_of_the_buckets_widens_them_without_a_loss() {
        let mut buckets = NativeBuckets::new();
        let values = [1e-6, 3e-5, 0.002, 0.002, 0.7, 1.0, 40.0, 1e4, 1e12, 1e-35, 1e300, f64::MAX];
        for (seen, value) in values.iter().enumerate() {
            buckets.observe(*value, 1);
            let read = read_back(&buckets);
            assert_eq!(read.iter().map(|(_, count)| count).sum::<u64>(), seen as u64 + 1);
            for value in &values[..=seen] {
                assert!(
                    read.iter().any(|(bound, _)| *value <= bound * (1.0 + 1e-12)),
                    "{value} is above all of {read:?}"
                );
            }
        }
        // There are 1140 powers of two from 1e-35 to f64::MAX, so each of the 160 buckets has to cover 8 of them.
        assert_eq!(buckets.schema(), -3);
    }

    #[test]
    fn the_order_of_the_values_does_not_matter() {
        let values: Vec<f64> = (0..400).map(|n| 1e-4 * 1.05_f64.powi(n)).collect();
        let fold = |values: &mut dyn Iterator<Item = &f64>| {
            let mut buckets = NativeBuckets::new();
            values.for_each(|value| buckets.observe(*value, 1));
            (buckets.schema(), buckets.runs())
        };
        assert_eq!(fold(&mut values.iter()), fold(&mut values.iter().rev()));
    }
}
