//! The load: when requests arrive and how long they are.

use crate::random::{Random, mix};

#[derive(Debug, Clone)]
pub struct Load {
    pub arrivals: Arrivals,
    pub prompt: Length,
    pub output: Length,
    /// Prompts begin with one of these prefixes.
    pub prefixes: Option<Prefixes>,
    /// The `max_tokens` that clients ask for; the answer's own length if absent.
    pub max_new_tokens: Option<u32>,
    pub cancelled_share: f64,
    /// Mean seconds until a client cancels.
    pub cancelled_after: f64,
    /// Seconds after which a request times out.
    pub timeout: Option<f64>,
    /// Requests of a conversation. Each prompt contains the ones before and their answers.
    pub turns: u32,
    /// Seconds between the turns, and before the next request of a closed loop.
    pub think: f64,
}

#[derive(Debug, Clone)]
pub struct Prefixes {
    pub families: u32,
    pub tokens: u32,
}

#[derive(Debug, Clone)]
pub enum Arrivals {
    /// Only what is submitted.
    Submitted,
    Poisson {
        rate: f64,
    },
    /// Bursts of this size arrive at once; the mean rate is `rate`.
    Bursty {
        rate: f64,
        burst: u32,
    },
    Closed {
        concurrency: u32,
    },
    Ramp {
        from: f64,
        to: f64,
        seconds: f64,
    },
    /// A sine around the mean.
    Day {
        mean: f64,
        swing: f64,
        period: f64,
    },
    /// All at the start.
    Offline {
        requests: u32,
    },
}

#[derive(Debug, Clone)]
pub enum Length {
    Fixed(u32),
    Lognormal {
        median: f64,
        sigma: f64,
        max: u32,
    },
    /// `long` with this probability, else `short`.
    Mixed {
        short: u32,
        long: u32,
        share: f64,
    },
}

impl Length {
    fn draw(&self, random: &mut Random) -> u32 {
        match *self {
            Self::Fixed(tokens) => tokens,
            Self::Lognormal { median, sigma, max } => ((median * (sigma * random.normal()).exp()) as u32).clamp(1, max),
            Self::Mixed { short, long, share } => {
                if random.chance(share) {
                    long
                } else {
                    short
                }
            }
        }
        .max(1)
    }
}

impl Default for Load {
    fn default() -> Self {
        Self {
            arrivals: Arrivals::Poisson { rate: 8.0 },
            prompt: Length::Lognormal { median: 300.0, sigma: 0.6, max: 4000 },
            output: Length::Lognormal { median: 100.0, sigma: 0.5, max: 1000 },
            prefixes: None,
            max_new_tokens: None,
            cancelled_share: 0.0,
            cancelled_after: 1.0,
            timeout: None,
            turns: 1,
            think: 1.0,
        }
    }
}

/// One request as a client sends it.
#[derive(Debug, Clone, Default)]
pub struct Arrival {
    pub at: f64,
    pub prompt: u32,
    /// Tokens after which the answer ends.
    pub output: u32,
    /// `max_tokens`, at least `output`.
    pub max_new_tokens: u32,
    /// Names the prefix, and its tokens.
    pub prefix: Option<(u64, u32)>,
    /// Requests of one conversation share their tokens.
    pub conversation: u64,
    pub turn: u32,
    pub adapter: Option<u32>,
    pub cancelled_after: Option<f64>,
    pub timeout: Option<f64>,
}

/// Makes the arrivals of a load.
#[derive(Debug)]
pub(crate) struct Generator {
    load: Load,
    random: Random,
    adapters: u32,
    next_at: Option<f64>,
    left_at_once: u32,
    conversations: u64,
}

impl Generator {
    pub(crate) fn new(load: Load, adapters: u32, seed: u64) -> Self {
        let mut generator = Self {
            load,
            random: Random::new(seed),
            adapters,
            next_at: Some(0.0),
            left_at_once: 0,
            conversations: mix(seed),
        };
        match generator.load.arrivals {
            Arrivals::Submitted => generator.next_at = None,
            Arrivals::Closed { concurrency } => generator.left_at_once = concurrency,
            Arrivals::Offline { requests } => generator.left_at_once = requests,
            _ => generator.advance(),
        }
        if generator.left_at_once == 0 && !generator.is_open() {
            generator.next_at = None;
        }
        generator
    }

    fn is_open(&self) -> bool {
        !matches!(self.load.arrivals, Arrivals::Submitted | Arrivals::Closed { .. } | Arrivals::Offline { .. })
    }

    /// When the next request arrives.
    pub(crate) fn next_at(&self) -> Option<f64> {
        self.next_at
    }

    pub(crate) fn take(&mut self) -> Option<Arrival> {
        let at = self.next_at?;
        let arrival = self.first_turn(at);
        self.left_at_once = self.left_at_once.saturating_sub(1);
        if self.left_at_once == 0 {
            if self.is_open() { self.advance() } else { self.next_at = None }
        }
        Some(arrival)
    }

    /// Sets the next arrival of an open load.
    fn advance(&mut self) {
        let now = self.next_at.unwrap_or(0.0);
        let rate = match self.load.arrivals {
            Arrivals::Poisson { rate } => rate,
            Arrivals::Bursty { rate, burst } => {
                self.left_at_once = burst;
                rate / f64::from(burst.max(1))
            }
            Arrivals::Ramp { from, to, seconds } => from + (to - from) * (now / seconds).min(1.0),
            Arrivals::Day { mean, swing, period } => {
                mean * (1.0 + swing * (std::f64::consts::TAU * now / period).sin())
            }
            Arrivals::Submitted | Arrivals::Closed { .. } | Arrivals::Offline { .. } => return,
        };
        self.next_at = Some(now + self.random.exponential(1.0 / rate.max(1e-6)));
    }

    fn first_turn(&mut self, at: f64) -> Arrival {
        self.conversations = mix(self.conversations);
        let prefix = self.load.prefixes.as_ref().map(|prefixes| {
            let family = self.random.below(u64::from(prefixes.families));
            (mix(family ^ 0x5eed), prefixes.tokens)
        });
        let own = self.load.prompt.draw(&mut self.random);
        let adapter = (self.adapters > 0).then(|| self.random.below(u64::from(self.adapters)) as u32);
        let first = Arrival { at, prefix, conversation: self.conversations, adapter, ..Arrival::default() };
        self.finish_drawing(first, prefix.map_or(0, |(_, tokens)| tokens) + own)
    }

    fn finish_drawing(&mut self, mut arrival: Arrival, prompt: u32) -> Arrival {
        arrival.prompt = prompt;
        arrival.output = self.load.output.draw(&mut self.random);
        arrival.max_new_tokens = self.load.max_new_tokens.unwrap_or(0).max(arrival.output);
        let cancels = self.random.chance(self.load.cancelled_share);
        arrival.cancelled_after = cancels.then(|| self.random.exponential(self.load.cancelled_after));
        arrival.timeout = self.load.timeout;
        arrival
    }

    /// What the client sends after this request has ended.
    pub(crate) fn follow(&mut self, ended: &Arrival, at: f64) -> Option<Arrival> {
        let at = at + self.load.think;
        if ended.turn + 1 < self.load.turns {
            let own = self.load.prompt.draw(&mut self.random);
            let next = Arrival { at, turn: ended.turn + 1, ..ended.clone() };
            return Some(self.finish_drawing(next, ended.prompt + ended.output + own));
        }
        matches!(self.load.arrivals, Arrivals::Closed { .. }).then(|| self.first_turn(at))
    }
}
