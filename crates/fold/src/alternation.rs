//! Finds out whether the records of one source come from several engines, as behind a load balancer: then their iteration
//! numbers alternate, and each engine's numbers continue where they were. An engine that restarts never continues its old
//! numbers. The numbers of engines that started together lie so close that one's records fill the gaps of the other: each
//! fall then looks like a restart, and restarts follow each other faster than an engine can start. If their numbers are equal,
//! nothing falls, but one's answer begins with the number with which the other's ended. A server gives each record once, and what
//! is in between may give the same record again, but not another one of that number.

use std::time::{Duration, Instant};

use trtllm_records::IterationStats;

use super::epoch::RecordKind;

/// The next record of an engine has a number at most this much higher. The engine keeps its records until they are read.
const NEXT: u64 = 64;
/// Numbers that differ by at most this much do not show another engine: records may be late or missing.
const CLOSE: u64 = 16;
/// Number of other engines whose numbers are kept. If there are more, their numbers return less often.
const OTHERS: usize = 4;
/// No engine runs more iterations in a second.
const FASTEST: f64 = 10_000.0;
/// Returns within this time belong together. Without a return for this time, there is one engine again.
const TOGETHER: Duration = Duration::from_secs(60);

/// The message about a source with several engines.
pub const SEVERAL_ENGINES: &str = "several engines answer here, each with iteration numbers of its own, so nothing is counted any more: \
    name the address of each engine in a --source of its own, not that of a load balancer or Service, or give each publisher its own name";

/// Restarts and repeated answers that show several engines if they happen within [`FAST`]. A process of TensorRT-LLM needs longer
/// to load its libraries, let alone a model.
const SIGNS: usize = 3;
const FAST: Duration = Duration::from_secs(30);

/// What the number of a record shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nothing shows that there is more than one engine.
    One,
    /// The record continues other numbers than the record before, so it must not be compared with that record.
    Unknown,
    /// The records come from several engines.
    Several,
}

/// The last iteration number of each engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Alternation {
    /// The number of the last record.
    last: Option<u64>,
    /// What tells apart two records of one number: timestamp in microseconds, and latency in milliseconds.
    stamp: (Option<i64>, Option<f64>),
    observed: Option<Instant>,
    /// The last numbers of other engines, the newest at the end.
    others: Vec<u64>,
    /// Difference of the last two numbers of one engine. With sampled statistics, it is above 1.
    step: u64,
    /// Whether lower and whether higher numbers have continued, and whether any did so exactly. All of these prove several engines. Some
    /// may be a restart, a gap that ends at an old number by chance, or wrong numbers of the same engine.
    has_returned: [bool; 3],
    returned: Option<Instant>,
    /// The times of the last restarts and repeated answers, the newest first.
    signs: [Option<Instant>; SIGNS],
    /// A record of the answer has been read.
    in_answer: bool,
    /// An answer itself repeats numbers, as records of ranks without the number of their rank do. Then no repetition is a sign.
    repeats_numbers: bool,
    /// The records come from a server's answers. Only an address can stand for several servers. Anything else, such as a file that is
    /// replayed, may tell of restarts faster than they happened.
    from_server: bool,
    several: bool,
}

impl Alternation {
    pub(crate) fn are_several(&self) -> bool {
        self.several
    }

    /// Adds the number of a record.
    pub(crate) fn observe(&mut self, record: &IterationStats, kind: RecordKind, now: Instant) -> Origin {
        // The records of other ranks repeat numbers.
        let is_first_rank = record.rank.or(record.attention_dp_rank).unwrap_or(0) == 0;
        let (Some(iter), true) = (record.iter, is_first_rank) else { return self.origin() };
        // A flush has the number of the iteration that follows it.
        if kind == RecordKind::Flush {
            return self.origin();
        }
        let is_first = !std::mem::replace(&mut self.in_answer, true);
        let Some(last) = self.last.replace(iter) else { return self.origin() };
        let step = iter.checked_sub(last);
        let stamp = (record.timestamp.map(|time| time.micros), record.iter_latency_ms);
        let is_other = stamp != std::mem::replace(&mut self.stamp, stamp);
        // While nothing is counted, each record is a new one.
        let repeats = step == Some(0) && matches!(kind, RecordKind::Repeated | RecordKind::New);
        self.repeats_numbers |= repeats && !is_first;
        if kind == RecordKind::Restart || repeats && is_other && !self.repeats_numbers {
            self.note_sign(now);
        }
        if self.several && step.is_none() {
            self.returned = Some(now);
        }
        let seconds =
            self.observed.replace(now).map_or(0.0, |before| now.saturating_duration_since(before).as_secs_f64());
        if step == Some(1) && !self.several {
            self.step = 1;
            return Origin::One;
        }
        // Until several engines are proven, a late record counts as one of the same engine.
        let is_late = step.is_none() && kind != RecordKind::Restart && !self.several;
        if step == Some(0) || is_late {
            self.last = Some(last);
            return self.origin();
        }
        let ahead = |other: &u64| iter.checked_sub(*other).filter(|ahead| (1..=NEXT).contains(ahead));
        let nearest = (0..self.others.len()).filter_map(|index| Some((ahead(&self.others[index])?, index))).min();
        match (nearest, step) {
            // Only the very next number of another engine is surer than a gap in the numbers of this one.
            (Some((ahead, index)), _)
                if iter.abs_diff(last) > CLOSE && step.is_none_or(|step| step > NEXT || ahead == 1) =>
            {
                self.others[index] = last;
                let is_exact = ahead == 1 || ahead == std::mem::replace(&mut self.step, ahead);
                self.note_return(is_exact, step, now)
            }
            (_, Some(step)) if step <= NEXT => {
                self.step = step;
                self.note_continuation(now)
            }
            _ => {
                self.others.push(last);
                if self.others.len() > OTHERS {
                    self.others.remove(0);
                }
                match self.origin() {
                    // The engine, or one that has started since, cannot have run so many iterations.
                    Origin::One if step.unwrap_or(iter) as f64 > FASTEST * (seconds + 1.0) => Origin::Unknown,
                    origin => origin,
                }
            }
        }
    }

    /// `is_exact`: it is the number that the other engine reports next. `step`: the difference to the number of the record before, if it
    /// is higher.
    fn note_return(&mut self, is_exact: bool, step: Option<u64>, now: Instant) -> Origin {
        let before = self.returned.replace(now);
        let is_together = before.is_some_and(|before| now.saturating_duration_since(before) < TOGETHER);
        // What was proven once needs no second proof.
        if !is_together && self.has_returned != [true; 3] {
            self.has_returned = [false; 3];
        }
        self.has_returned[usize::from(step.is_some())] = true;
        self.has_returned[2] |= is_exact;
        self.several |= self.has_returned == [true; 3];
        match self.origin() {
            // It would count as a long gap.
            Origin::One if is_exact && step.is_some_and(|step| step > NEXT) => Origin::Unknown,
            origin => origin,
        }
    }

    /// Ends an answer. `from_ring`: a server gave it.
    pub(crate) fn end_answer(&mut self, from_ring: bool) {
        self.from_server = from_ring;
        self.in_answer = false;
    }

    fn note_sign(&mut self, now: Instant) {
        self.signs.rotate_right(1);
        self.signs[0] = Some(now);
        let first = self.signs[SIGNS - 1];
        let is_fast = first.is_some_and(|first| now.saturating_duration_since(first) < FAST);
        self.several |= is_fast && self.from_server;
        if self.several {
            self.returned = Some(now);
        }
    }

    /// Ends the alternation if the same numbers have continued for long.
    fn note_continuation(&mut self, now: Instant) -> Origin {
        let over = self.returned.is_some_and(|last| now.saturating_duration_since(last) >= TOGETHER);
        if over && std::mem::take(&mut self.several) { Origin::Unknown } else { self.origin() }
    }

    fn origin(&self) -> Origin {
        if self.several { Origin::Several } else { Origin::One }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Observes these numbers, a second each. A lower number is a restart unless it is at most two lower.
    fn observe(alternation: &mut Alternation, start: Instant, numbers: &[(u64, u64)]) -> Vec<Origin> {
        let mut origins = Vec::new();
        for (second, iter) in numbers {
            let fell = alternation.last.is_some_and(|last| iter + 2 < last);
            let kind = if fell { RecordKind::Restart } else { RecordKind::New };
            let record = IterationStats { iter: Some(*iter), ..IterationStats::default() };
            origins.push(alternation.observe(&record, kind, start + Duration::from_secs(*second)));
        }
        origins
    }

    fn of(numbers: &[u64]) -> Vec<Origin> {
        let numbers: Vec<_> = numbers.iter().enumerate().map(|(second, iter)| (second as u64, *iter)).collect();
        observe(&mut Alternation::default(), Instant::now(), &numbers)
    }

    #[test]
    fn numbers_that_alternate_and_each_continue_come_from_several_engines() {
        use Origin::{One, Several, Unknown};
        let far = of(&[9000, 50, 9001, 51, 52, 9002, 9003, 53]);
        assert_eq!(far, [One, One, Unknown, Several, Several, Several, Several, Several]);
        let close = of(&[220, 221, 200, 222, 201, 223, 224, 202]);
        assert_eq!(close[..4], [One, One, One, One]);
        assert!(close[4..].iter().all(|origin| *origin == Several), "{close:?}");
        let sampled = of(&[9000, 50, 9010, 60, 9020, 70, 9030]);
        assert_eq!(sampled, [One, One, One, Several, Several, Several, Several]);
        assert_eq!(of(&[8980, 8990, 9000, 50, 9010, 60]), [One, One, One, One, Unknown, Several]);
        let three = of(&[9000, 50, 700, 9001, 701, 51]);
        assert_eq!(three, [One, One, One, Unknown, Several, Several]);
        assert_eq!(of(&[50, 9000, 51, 9001]), [One, One, One, Several]);
        assert_eq!(
            of(&[50, 90_000, 51, 90_001]),
            [One, Unknown, One, Several],
            "more than an engine can run in a second"
        );
    }

    #[test]
    fn restarts_gaps_and_late_records_are_those_of_one_engine() {
        let one = |numbers: &[u64]| assert!(of(numbers).iter().all(|origin| *origin == Origin::One), "{numbers:?}");
        one(&(400..500).chain(1..600).collect::<Vec<_>>());
        one(&[10, 20, 30, 9000, 9010, 9012, 9011, 9013]);
        // Two wrong numbers.
        one(&[1000, 5000, 1003, 5005]);
        // An engine that fails again and again, each time 15 seconds after its start.
        let failing: Vec<_> = (0..20).flat_map(|start| (1..=start % 4 + 2).map(move |n| (start * 15 + n, n))).collect();
        let mut alternation = Alternation::default();
        alternation.end_answer(true);
        let origins = observe(&mut alternation, Instant::now(), &failing);
        assert!(origins.iter().all(|origin| *origin == Origin::One), "{origins:?}");
        // A gap that ends at an old number by chance, once for each restart.
        let chance = of(&[500, 1, 501, 502, 503]);
        assert_eq!(chance, [Origin::One, Origin::One, Origin::Unknown, Origin::One, Origin::One]);
    }

    #[test]
    fn restarts_that_follow_each_other_faster_than_an_engine_can_start_come_from_several_engines() {
        let numbers: Vec<_> = (0..).zip([110, 111, 103, 104, 112, 105, 106, 113, 107]).collect();
        let [file, server] = [false, true].map(|from_ring| {
            let mut alternation = Alternation::default();
            alternation.end_answer(from_ring);
            observe(&mut alternation, Instant::now(), &numbers)
        });
        assert_eq!(server[6..], [Origin::One, Origin::One, Origin::Several], "{server:?}");
        assert!(file.iter().all(|origin| *origin == Origin::One), "a file may be read faster: {file:?}");
    }

    #[test]
    fn answers_that_begin_with_the_last_number_again_come_from_several_engines() {
        let answers = |engines: usize, numbers: &[&[u64]]| {
            let (mut alternation, mut now) = (Alternation::default(), Instant::now());
            for (index, answer) in numbers.iter().enumerate() {
                for iter in *answer {
                    let repeated = alternation.last == Some(*iter) && !alternation.several;
                    let kind = if repeated { RecordKind::Repeated } else { RecordKind::New };
                    let iter_latency_ms = Some(20.0 + (index % engines) as f64);
                    let record = IterationStats { iter: Some(*iter), iter_latency_ms, ..IterationStats::default() };
                    alternation.observe(&record, kind, now);
                }
                alternation.end_answer(true);
                now += Duration::from_secs(1);
            }
            alternation.are_several()
        };
        assert!(answers(2, &[&[7], &[7, 8], &[8], &[8, 9]]), "two engines in turn");
        let long: Vec<_> = (7..200).flat_map(|iter| [vec![iter], vec![iter, iter + 1]]).collect();
        assert!(answers(2, &long.iter().map(Vec::as_slice).collect::<Vec<_>>()), "for some minutes");
        assert!(!answers(2, &[&[7], &[7, 8], &[8], &[9]]), "twice may be chance");
        assert!(!answers(1, &[&[7], &[7], &[7], &[7]]), "a cache gives the same record again");
        let answered: [&[u64]; 5] = [&[7, 7], &[8, 8, 9], &[9, 10], &[10, 11], &[11]];
        assert!(!answers(2, &answered), "records of two ranks without their rank, some of them in the next answer");
    }

    #[test]
    fn after_a_minute_of_one_engine_it_counts_again_until_another_one_returns() {
        use Origin::{One, Several, Unknown};
        let (mut alternation, start) = (Alternation::default(), Instant::now());
        observe(&mut alternation, start, &[(0, 9000), (1, 50), (2, 9001), (3, 51)]);
        assert!(alternation.are_several());
        let later = observe(&mut alternation, start, &[(62, 52), (63, 53), (64, 54), (200, 9002)]);
        assert_eq!(later, [Several, Unknown, One, Several]);
    }

    #[test]
    fn records_of_other_ranks_are_left_out() {
        let (mut alternation, now) = (Alternation::default(), Instant::now());
        for iter in [1, 2, 3, 4] {
            for rank in [0, 1] {
                let numbers = [(Some(rank), None), (None, Some(rank)), (Some(rank), Some(rank))];
                for (rank, attention_dp_rank) in numbers {
                    let record = IterationStats { iter: Some(iter), rank, attention_dp_rank, ..Default::default() };
                    assert_eq!(alternation.observe(&record, RecordKind::New, now), Origin::One);
                }
            }
        }
    }
}
