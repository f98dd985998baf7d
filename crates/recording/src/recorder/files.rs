//! The segments on disk: creates, extends and deletes them, so that their total size stays below the limit.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant, SystemTime};

use trtllm_records::RecorderCounts;

use crate::directory::{self, Segment};

use super::age::{Closed, WallClock};
use super::config::RecorderConfig;

/// Bounds of the size of a segment.
const SEGMENT: std::ops::RangeInclusive<u64> = 256 << 10..=16 << 20;
/// A segment has at most this fraction of the size limit, within the bounds above.
const SEGMENTS: u64 = 32;
/// A segment ends after this time, so that old items can be deleted, and a reader finds a time quickly.
const LONGEST: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct SegmentFiles {
    config: RecorderConfig,
    /// Complete segments, oldest first.
    closed: VecDeque<Closed>,
    clock: WallClock,
    /// Bytes of all segments.
    total: u64,
    next: u64,
    counts: RecorderCounts,
    /// While it is held, no other process records into the directory.
    lock: File,
}

/// A segment that is being written.
#[derive(Debug)]
pub(super) struct Open {
    file: File,
    segment: Segment,
    began: Instant,
}

impl Open {
    /// Whether the path of the segment still leads to the open file.
    fn is_in_place(&self) -> bool {
        let same = || {
            let (named, open) = (self.segment.path.symlink_metadata()?, self.file.metadata()?);
            io::Result::Ok((named.dev(), named.ino()) == (open.dev(), open.ino()))
        };
        same().unwrap_or(false)
    }
}

impl SegmentFiles {
    pub(super) fn open(config: &RecorderConfig, counts: RecorderCounts) -> io::Result<Self> {
        let lock = directory::lock(&config.directory)?;
        let found = directory::segments(&config.directory)?;
        let next = found.last().map_or(1, |last| last.number.saturating_add(1));
        let total = found.iter().map(|segment| segment.bytes).sum();
        let (now, wall) = (Instant::now(), SystemTime::now());
        let mut newest = SystemTime::UNIX_EPOCH;
        let closed = found.into_iter().map(|mut segment| {
            // No segment is older than the one before it, whatever the clock showed when it was written.
            if segment.written <= wall {
                newest = newest.max(segment.written);
                segment.written = newest;
            }
            Closed { segment, closed: None }
        });
        let closed = closed.collect();
        let clock = WallClock::new(now, wall);
        let mut files = Self { config: config.clone(), closed, clock, total, next, counts, lock };
        // The size limit may be lower than in the previous run.
        files.make_room(0, now, wall)?;
        Ok(files)
    }

    pub(super) fn create(&mut self, engine: &str) -> io::Result<Open> {
        let number = self.next;
        // The next attempt takes another number: the disk may have refused this name.
        self.next += 1;
        let created = match directory::create(&self.config.directory, number, engine) {
            // The directory was deleted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.lock = directory::lock(&self.config.directory)?;
                directory::create(&self.config.directory, number, engine)
            }
            created => created,
        };
        let (path, file) = created?;
        let segment = Segment { number, path, bytes: 0, written: SystemTime::now() };
        Ok(Open { file, segment, began: Instant::now() })
    }

    /// Appends a frame. Deletes the oldest segments to make room. False if that was not enough, because all other
    /// segments are being written. Fails if writing fails, or the file is not in the directory any more.
    pub(super) fn append(&mut self, open: &mut Open, frame: &[u8]) -> io::Result<bool> {
        if !open.is_in_place() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the file was deleted or replaced while it was written",
            ));
        }
        let bytes = frame.len() as u64;
        if !self.make_room(bytes, Instant::now(), SystemTime::now())? {
            return Ok(false);
        }
        if let Err(error) = open.file.write_all(frame) {
            // Removes the part that was written. If that fails, too, a reader skips the torn frame.
            let _ = open.file.set_len(open.segment.bytes);
            return Err(error);
        }
        open.segment.bytes += bytes;
        self.set_total(self.total + bytes);
        Ok(true)
    }

    pub(super) fn close(&mut self, mut open: Open) {
        if !open.is_in_place() {
            return self.set_total(self.total.saturating_sub(open.segment.bytes));
        }
        open.segment.written = SystemTime::now();
        let behind = self.closed.partition_point(|other| other.segment.number < open.segment.number);
        self.closed.insert(behind, Closed { segment: open.segment, closed: Some(Instant::now()) });
    }

    /// Deletes a segment whose first frame could not be written.
    pub(super) fn discard(&mut self, open: Open) {
        let _ = fs::remove_file(&open.segment.path);
        self.set_total(self.total.saturating_sub(open.segment.bytes));
    }

    /// Whether a segment has reached its maximum size or age.
    pub(super) fn is_full(&self, open: &Open) -> bool {
        let longest = self.config.max_age.map_or(LONGEST, |age| LONGEST.min(age / 8));
        open.began.elapsed() >= longest
            || open.segment.bytes >= (self.config.max_size / SEGMENTS).clamp(*SEGMENT.start(), *SEGMENT.end())
    }

    /// `now` and `wall` are the current time on both clocks.
    fn make_room(&mut self, bytes: u64, now: Instant, wall: SystemTime) -> io::Result<bool> {
        self.clock.observe(now, wall);
        let max_age = self.config.max_age;
        while self.total.saturating_add(bytes) > self.config.max_size
            || max_age
                .is_some_and(|most| self.closed.front().is_some_and(|oldest| self.clock.is_older(oldest, most, now)))
        {
            let Some(oldest) = self.closed.pop_front() else { return Ok(false) };
            match fs::remove_file(&oldest.segment.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    self.closed.push_front(oldest);
                    return Err(error);
                }
                _ => self.set_total(self.total.saturating_sub(oldest.segment.bytes)),
            }
        }
        Ok(true)
    }

    fn set_total(&mut self, total: u64) {
        self.total = total;
        self.counts.bytes.set(total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_that_are_too_old_are_deleted_with_the_next_write_and_the_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        let (max_size, max_age) = (1 << 20, Some(Duration::from_secs(3600)));
        let config = RecorderConfig {
            directory: directory.path().to_owned(),
            max_size,
            max_age,
            stale_after: Duration::from_secs(15),
        };
        let mut files = SegmentFiles::open(&config, RecorderCounts::default()).unwrap();
        let (start, wall) = (Instant::now(), SystemTime::now());
        let mut write = |second: u64| {
            let since = Duration::from_secs(second);
            assert!(files.make_room(5, start + since, wall + since).unwrap());
            let mut open = files.create("m").unwrap();
            assert!(files.append(&mut open, b"frame").unwrap());
            assert!(!files.is_full(&open));
            files.close(open);
            files.closed.back_mut().unwrap().closed = Some(start + since);
            let left = directory::segments(directory.path()).unwrap();
            left.into_iter().map(|segment| segment.number).collect::<Vec<_>>()
        };
        assert_eq!(write(0), [1]);
        assert_eq!(write(3500), [1, 2]);
        assert_eq!(write(3700), [2, 3], "the first one is too old");
        assert_eq!(files.total, 10);
    }

    #[test]
    fn a_segment_that_was_written_while_the_clock_was_wrong_is_kept_as_long_as_the_one_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let (start, wall) = (Instant::now(), SystemTime::now());
        let hours = |hours: u64| Duration::from_secs(3600 * hours);
        let times = [wall - hours(20), SystemTime::UNIX_EPOCH, wall + hours(9000), wall - hours(10)];
        for (number, time) in (1..).zip(times) {
            directory::create(directory.path(), number, "m").unwrap().1.set_modified(time).unwrap();
        }
        let config = RecorderConfig {
            directory: directory.path().to_owned(),
            max_size: 1 << 20,
            max_age: Some(hours(24)),
            stale_after: Duration::from_secs(15),
        };
        let mut files = SegmentFiles::open(&config, RecorderCounts::default()).unwrap();
        let mut left = |after| {
            files.make_room(0, start + hours(after), wall + hours(after)).unwrap();
            directory::segments(directory.path()).unwrap().len()
        };
        assert_eq!([left(0), left(3), left(5), left(23), left(25)], [4, 4, 2, 2, 0]);
    }
}
