//! Seeded random numbers: splitmix64, by its public definition. Equal seeds give equal runs on every machine.

/// One step of splitmix64 as a hash: mixes a number so that neighbours differ in half of their bits.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of random numbers.
#[derive(Debug, Clone, Default)]
pub struct Random(u64);

impl Random {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub fn next_u64(&mut self) -> u64 {
        let value = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        value
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// Uniform in 0..bound; 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// Exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Standard normal, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_equals_the_published_one() {
        // splitmix64 with seed 0 begins with these numbers.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn means_are_right() {
        let mut random = Random::new(1);
        let n = 100_000;
        let exponential: f64 = (0..n).map(|_| random.exponential(3.0)).sum::<f64>() / f64::from(n);
        let square: f64 = (0..n).map(|_| random.normal().powi(2)).sum::<f64>() / f64::from(n);
        assert!((exponential - 3.0).abs() < 0.05, "{exponential}");
        assert!((square - 1.0).abs() < 0.02, "{square}");
    }
}
