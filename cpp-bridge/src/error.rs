//! Why the bridge failed, by what the operator can do about it. Upstream has one exception type for everything, so the
//! cases are told apart by their text.

/// A failure of an Executor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BridgeError {
    /// The engine could not be opened: its name, its files or an option is wrong.
    #[error("cannot open engine {engine}: {cause}")]
    Open { engine: String, cause: String },
    /// This process holds another rank of the engine; statistics are kept by the leader (or orchestrator) only.
    #[error("this rank keeps no statistics: poll the rank that is the engine's leader or orchestrator")]
    NotLeader,
    /// The Executor was shut down; it will not answer again.
    #[error("the executor was shut down")]
    ShutDown,
    /// Anything else the Executor reports.
    #[error("the executor failed: {what}")]
    Failed { what: String },
}

impl BridgeError {
    pub(crate) fn open(engine: &str, cause: &str) -> Self {
        BridgeError::Open { engine: engine.to_owned(), cause: plain(cause).to_owned() }
    }

    /// Sorts the text of an exception thrown by an open Executor.
    pub(crate) fn from_what(what: &str) -> Self {
        let what = plain(what);
        if what.contains("Shutdown called") {
            BridgeError::ShutDown
        } else if what.contains("communication mode, only") {
            BridgeError::NotLeader
        } else {
            BridgeError::Failed { what: what.to_owned() }
        }
    }
}

/// The message inside an upstream exception text: its first line (the stack follows) without the log prefix in front
/// and the source position behind.
fn plain(what: &str) -> &str {
    let line = what.lines().next().unwrap_or_default().trim();
    let line = line.strip_prefix("[TensorRT-LLM][ERROR] ").unwrap_or(line);
    let line = line.strip_prefix("Assertion failed: ").unwrap_or(line);
    match line.rsplit_once(" (") {
        Some((message, position)) if is_source_position(position) => message,
        _ => line,
    }
}

/// `/src/executor.cpp:123)`
fn is_source_position(text: &str) -> bool {
    text.strip_suffix(')')
        .and_then(|text| text.rsplit_once(':'))
        .is_some_and(|(file, line)| !file.is_empty() && !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: &str = "\n1       0x7f tensorrt_llm::common::throwRuntimeError(char const*, int) + 68\n2       main";

    #[test]
    fn an_assertion_after_shutdown_is_told_from_other_failures() {
        let what =
            format!("[TensorRT-LLM][ERROR] Assertion failed: Shutdown called (/src/executorImpl.cpp:873){STACK}");
        assert_eq!(BridgeError::from_what(&what), BridgeError::ShutDown);
    }

    #[test]
    fn a_rank_that_is_not_asked_is_told_from_other_failures() {
        for mode in ["LEADER communication mode, only leader", "ORCHESTRATOR communication mode, only orchestrator"] {
            let what = format!("With {mode} rank is expected to call getLatestIterationStats (/a.cpp:1){STACK}");
            assert_eq!(BridgeError::from_what(&what), BridgeError::NotLeader);
        }
    }

    #[test]
    fn the_stack_and_the_source_position_stay_out_of_messages() {
        let what = format!("CUDA runtime error in op: out of memory (/src/buffers.h:62){STACK}");
        let error = BridgeError::from_what(&what);
        assert_eq!(error.to_string(), "the executor failed: CUDA runtime error in op: out of memory");
    }

    #[test]
    fn parentheses_that_are_no_source_position_stay() {
        let error = BridgeError::from_what("MPI failed (rank 3)");
        assert_eq!(error.to_string(), "the executor failed: MPI failed (rank 3)");
    }

    #[test]
    fn an_empty_text_is_still_an_error() {
        assert_eq!(BridgeError::from_what(""), BridgeError::Failed { what: String::new() });
    }
}
