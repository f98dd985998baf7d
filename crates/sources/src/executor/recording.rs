//! Recorded requests: a file with one JSON object per line, in the format of request traces or benchmark data sets.

use std::fs::File;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

/// Longest line, in bytes: a prompt of about a million tokens.
const MAX_LINE: u64 = 16 << 20;
/// Tokens per element of `hash_ids`, as in published traces.
const BLOCK: usize = 512;
/// Generated token ids are below this number. Every vocabulary is larger.
const TOKENS: u64 = 1000;

/// One line. It has the tokens of the prompt or their number.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LoadLine {
    /// Milliseconds since the recording began.
    timestamp: Option<f64>,
    input_ids: Option<Vec<i32>>,
    input_length: Option<u32>,
    /// Blocks of the prompt. Equal numbers are equal blocks.
    hash_ids: Vec<u64>,
    #[serde(alias = "output_tokens")]
    output_length: Option<u32>,
    prompt: Option<serde::de::IgnoredAny>,
}

/// One request of a recording.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    /// Seconds since the recording began, if the line has a timestamp.
    pub(super) at: Option<f64>,
    pub(super) prompt: Vec<i32>,
    pub(super) output_tokens: u32,
}

/// A file of requests, read as they are needed.
#[derive(Debug)]
pub(super) struct Recording {
    lines: BufReader<File>,
    line: u64,
}

impl Recording {
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self { lines: BufReader::new(File::open(path)?), line: 0 })
    }

    /// The next request. Err for an invalid line, with its number and the reason. None at the end of the file.
    pub(super) fn next(&mut self) -> Option<Result<Request, String>> {
        loop {
            let mut text = Vec::new();
            self.line += 1;
            match self.lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut text) {
                Err(error) => {
                    tracing::warn!(%error, line = self.line, "reading the recorded requests failed, no more will be sent; check the disk of the file in load=");
                    return None;
                }
                Ok(0) => return None,
                Ok(_) if text.iter().all(u8::is_ascii_whitespace) => continue,
                Ok(_) => {}
            }
            if text.last() != Some(&b'\n') && text.len() as u64 == MAX_LINE {
                let skipped = self.lines.skip_until(b'\n');
                return Some(skipped.map_err(|e| e.to_string()).and(Err(format!("line {} is too long", self.line))));
            }
            return Some(request(&text, self.line).map_err(|reason| format!("line {}: {reason}", self.line)));
        }
    }
}

fn request(text: &[u8], number: u64) -> Result<Request, String> {
    let line: LoadLine = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let output_tokens = line.output_length.filter(|count| *count > 0);
    let output_tokens = output_tokens.ok_or("output_length (or output_tokens) is missing or not above 0")?;
    let prompt = match (line.input_ids, line.input_length) {
        (Some(tokens), _) => tokens,
        (None, Some(length)) => synthetic_prompt(length as usize, &line.hash_ids, number),
        (None, None) if line.prompt.is_some() => {
            return Err("a text prompt is not supported; give its tokens as input_ids".to_owned());
        }
        (None, None) => return Err("input_length and input_ids are both missing".to_owned()),
    };
    if prompt.is_empty() {
        return Err("the prompt is empty".to_owned());
    }
    let at = line.timestamp.map(|milliseconds| milliseconds / 1000.0).filter(|seconds| *seconds >= 0.0);
    Ok(Request { at, prompt, output_tokens })
}

/// A prompt of this length. Blocks with equal hashes are equal, so the engine's cache can reuse them. Blocks without a hash
/// differ from all others.
fn synthetic_prompt(length: usize, hashes: &[u64], number: u64) -> Vec<i32> {
    let random = BuildHasherDefault::<DefaultHasher>::new();
    let token = |at: usize| {
        let block = hashes.get(at / BLOCK).ok_or(number);
        1 + (random.hash_one((block, at)) % (TOKENS - 1)) as i32
    };
    (0..length).map(token).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn read(text: &str) -> Vec<Result<Request, String>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let mut recording = Recording::open(file.path()).unwrap();
        std::iter::from_fn(|| recording.next()).collect()
    }

    #[test]
    fn traces_and_data_sets_are_read() {
        let read = read(
            "{\"timestamp\": 1500, \"input_length\": 600, \"output_length\": 52, \"hash_ids\": [7, 8]}\n\n\
             {\"task_id\": 1, \"input_ids\": [1, 2, 3], \"output_tokens\": 9}",
        );
        let [Ok(traced), Ok(listed)] = &read[..] else { panic!("{read:?}") };
        assert_eq!((traced.at, traced.prompt.len(), traced.output_tokens), (Some(1.5), 600, 52));
        assert_eq!(*listed, Request { at: None, prompt: vec![1, 2, 3], output_tokens: 9 });
    }

    #[test]
    fn an_invalid_line_is_reported_by_its_number_and_the_next_one_is_read() {
        let read = read(
            "{\"input_length\": 3}\n{\"prompt\": \"hello\", \"output_tokens\": 3}\n{\"output_length\": 1}\n\
             {\"input_length\": 0, \"output_length\": 1}\nnonsense\n{\"input_length\": 3, \"output_length\": 1}\n",
        );
        let errors: Vec<&str> = read[..5].iter().map(|line| line.as_ref().unwrap_err().as_str()).collect();
        assert!(errors[0].starts_with("line 1: output_length") && errors[1].contains("input_ids"), "{errors:?}");
        assert!(errors[2].contains("input_length") && errors[3].contains("empty") && errors[4].starts_with("line 5"));
        assert!(read[5].is_ok() && read.len() == 6);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        let long = format!("{{\"input_ids\": [{}1]}}\n", "1,".repeat(9 << 20));
        let read = read(&format!("{long}{{\"input_length\": 3, \"output_length\": 1}}\n"));
        assert!(read.len() == 2 && read[0].as_ref().unwrap_err().contains("line 1 is too long") && read[1].is_ok());
    }

    #[test]
    fn only_blocks_with_equal_hashes_have_equal_tokens() {
        let [one, two] = [synthetic_prompt(1024, &[7, 8], 1), synthetic_prompt(1024, &[7, 9], 2)];
        assert_eq!(one[..512], two[..512]);
        assert_ne!(one[512..], two[512..]);
        assert_ne!(synthetic_prompt(100, &[], 1), synthetic_prompt(100, &[], 2));
        assert!(one.iter().all(|token| (1..1000).contains(token)));
    }
}
