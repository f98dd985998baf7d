//! The load: when requests arrive and how long they are.

use std::sync::Arc;

use crate::random::{Random, mix};

#[derive(Debug, Clone)]
pub struct Load {
    pub arrivals: Arrivals,
    pub prompt: Length,
    pub output: Length,
    /// A share of the prompts begins with one of these prefixes.
    pub prefixes: Option<Prefixes>,
    pub prefix_share: f64,
    /// Whether the length of a prompt includes its prefix.
    pub prefix_is_part: bool,
    /// The `max_tokens` that clients ask for; the answer's own length if absent.
    pub max_new_tokens: Option<u32>,
    pub cancelled_share: f64,
    /// Mean seconds until a client cancels.
    pub cancelled_after: f64,
    /// Share of the requests without streaming. Their clients receive the whole answer at its end.
    pub nonstream_share: f64,
    /// Seconds after which a request times out.
    pub timeout: Option<f64>,
    /// Number of requests in a conversation. Each prompt contains the earlier prompts and answers.
    pub turns: u32,
    /// Seconds between the turns, and before the next request of a closed loop.
    pub think: f64,
    /// The load ends after this many requests.
    pub requests: Option<u64>,
    /// Maximum number of requests in the engine. Excess requests wait outside; their times are measured from when they
    /// enter.
    pub in_flight: Option<usize>,
    /// Maximum tokens of a prompt, and of a prompt with its output. Longer prompts and outputs are shortened.
    pub max_prompt: u32,
    pub max_sequence: u32,
}

#[derive(Debug, Clone)]
pub struct Prefixes {
    pub families: u32,
    pub tokens: u32,
}

#[derive(Debug, Clone)]
pub enum Arrivals {
    /// Only requests that the host program submits.
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
    /// The rate follows a sine around the mean.
    Day {
        mean: f64,
        swing: f64,
        period: f64,
    },
    /// All requests arrive at the start.
    Offline {
        requests: u32,
    },
    /// These requests, sorted by time.
    Recorded(Vec<Arrival>),
}

#[derive(Debug, Clone)]
pub enum Length {
    Fixed(u32),
    Lognormal {
        median: f64,
        sigma: f64,
        max: u32,
    },
    /// `long` with the probability `share`, else `short`.
    Mixed {
        short: u32,
        long: u32,
        share: f64,
    },
    /// One of these lengths, at random.
    Sample(Arc<[u32]>),
}

impl Length {
    fn draw(&self, random: &mut Random) -> u32 {
        match *self {
            Self::Fixed(tokens) => tokens,
            Self::Sample(ref all) => all.get(random.below(all.len().max(1) as u64) as usize).copied().unwrap_or(1),
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
            prefix_share: 1.0,
            prefix_is_part: false,
            max_new_tokens: None,
            cancelled_share: 0.0,
            cancelled_after: 1.0,
            nonstream_share: 0.0,
            timeout: None,
            turns: 1,
            think: 1.0,
            requests: None,
            in_flight: None,
            max_prompt: u32::MAX,
            max_sequence: u32::MAX,
        }
    }
}

/// One request as a client sends it.
#[derive(Debug, Clone, Default)]
pub struct Arrival {
    pub at: f64,
    /// Chosen by the program that submits the request. If absent, the request gets the next free id.
    pub id: Option<u64>,
    /// The keys of the full KV cache blocks of the request, if its tokens are known.
    pub keys: Option<Arc<[u64]>>,
    pub prompt: u32,
    /// Tokens after which the answer ends.
    pub output: u32,
    /// `max_tokens`, at least `output`.
    pub max_new_tokens: u32,
    /// Name and number of tokens of its shared prefix.
    pub prefix: Option<(u64, u32)>,
    /// Requests of the same conversation begin with the same tokens.
    pub conversation: u64,
    pub turn: u32,
    pub adapter: Option<u32>,
    /// Whether the client asks for the answer without streaming.
    pub nonstream: bool,
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
    taken: u64,
}

impl Generator {
    pub(crate) fn new(load: Load, adapters: u32, seed: u64) -> Self {
        let mut generator = Self {
            load,
            random: Random::new(seed),
            adapters,
            next_at: None,
            left_at_once: 0,
            conversations: mix(seed),
            taken: 0,
        };
        generator.begin(0.0);
        generator
    }

    /// Replaces the load. Requests that were already sent are not changed.
    pub(crate) fn change(&mut self, load: Load, now: f64) {
        (self.load, self.taken, self.left_at_once) = (load, 0, 0);
        self.begin(now);
    }

    fn begin(&mut self, now: f64) {
        self.next_at = match self.load.arrivals {
            Arrivals::Recorded(ref arrivals) => arrivals.first().map(|arrival| arrival.at),
            Arrivals::Closed { concurrency: requests } | Arrivals::Offline { requests } => {
                self.left_at_once = requests;
                (requests > 0).then_some(now)
            }
            _ => self.draw_next(now),
        };
        self.next_at = self.next_at.filter(|_| !self.is_exhausted());
    }

    fn is_exhausted(&self) -> bool {
        self.load.requests.is_some_and(|most| self.taken >= most)
    }

    /// When the next request arrives.
    pub(crate) fn next_at(&self) -> Option<f64> {
        self.next_at
    }

    pub(crate) fn take(&mut self) -> Option<Arrival> {
        let at = self.next_at?;
        self.taken += 1;
        if let Arrivals::Recorded(arrivals) = &self.load.arrivals {
            let index = self.taken as usize;
            self.next_at = arrivals.get(index).map(|arrival| arrival.at).filter(|_| !self.is_exhausted());
            self.conversations = mix(self.conversations);
            let mut arrival = arrivals[index - 1].clone();
            arrival.conversation = self.conversations;
            self.cut(&mut arrival);
            return Some(arrival);
        }
        let arrival = self.first_turn(at);
        self.left_at_once = self.left_at_once.saturating_sub(1);
        if self.left_at_once == 0 {
            self.next_at = self.draw_next(at);
        }
        self.next_at = self.next_at.filter(|_| !self.is_exhausted());
        Some(arrival)
    }

    fn cut(&self, arrival: &mut Arrival) {
        arrival.prompt = arrival.prompt.min(self.load.max_prompt);
        arrival.output = arrival.output.min(self.load.max_sequence.saturating_sub(arrival.prompt)).max(1);
        arrival.max_new_tokens =
            arrival.max_new_tokens.min(self.load.max_sequence - arrival.prompt).max(arrival.output);
    }

    /// Time of the next arrival after `now`, if the load is open: arrivals do not depend on the end of other requests.
    fn draw_next(&mut self, now: f64) -> Option<f64> {
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
            Arrivals::Submitted | Arrivals::Closed { .. } | Arrivals::Offline { .. } | Arrivals::Recorded(_) => {
                return None;
            }
        };
        Some(now + self.random.exponential(1.0 / rate.max(1e-6)))
    }

    fn first_turn(&mut self, at: f64) -> Arrival {
        self.conversations = mix(self.conversations);
        let has_prefix = self.load.prefix_share >= 1.0 || self.random.chance(self.load.prefix_share);
        let prefix = self.load.prefixes.as_ref().filter(|_| has_prefix).map(|prefixes| {
            let family = self.random.below(u64::from(prefixes.families));
            (prefix_name(family), prefixes.tokens)
        });
        let own = self.load.prompt.draw(&mut self.random);
        let adapter = (self.adapters > 0).then(|| self.random.below(u64::from(self.adapters)) as u32);
        let first = Arrival { at, prefix, conversation: self.conversations, adapter, ..Arrival::default() };
        let before = prefix.map_or(0, |(_, tokens)| if self.load.prefix_is_part { 0 } else { tokens });
        self.finish_drawing(first, before + own)
    }

    fn finish_drawing(&mut self, mut arrival: Arrival, prompt: u32) -> Arrival {
        arrival.prompt = prompt;
        arrival.output = self.load.output.draw(&mut self.random);
        arrival.max_new_tokens = self.load.max_new_tokens.unwrap_or(0).max(arrival.output);
        let cancels = self.random.chance(self.load.cancelled_share);
        arrival.cancelled_after = cancels.then(|| self.random.exponential(self.load.cancelled_after));
        arrival.timeout = self.load.timeout;
        // Without such requests, no random number is drawn, so that older runs stay the same.
        arrival.nonstream = self.random.chance(self.load.nonstream_share);
        self.cut(&mut arrival);
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

/// The name of a shared prefix.
pub(crate) fn prefix_name(family: u64) -> u64 {
    mix(family ^ 0x5eed)
}
