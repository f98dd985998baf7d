//! The errors of the bridge, one variant per remedy. TensorRT-LLM throws one exception type for everything, so the text
//! of the exception selects the variant.

/// A failure of an Executor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BridgeError {
    /// The engine could not be opened, because its name, its files or an option is invalid.
    #[error("cannot open engine {engine}: {cause}")]
    Open { engine: String, cause: String },
    /// This process is a worker rank of the engine. Only the leader (or the orchestrator) has statistics.
    #[error("this rank has no statistics; poll the engine's leader or orchestrator")]
    NotLeader,
    /// The Executor was shut down and cannot be used again.
    #[error("the executor was shut down")]
    ShutDown,
    /// Any other exception of the Executor.
    #[error("the executor failed: {what}")]
    Failed { what: String },
}

impl BridgeError {
    pub(crate) fn open(engine: &str, cause: &str) -> Self {
        BridgeError::Open { engine: engine.to_owned(), cause: message(cause).to_owned() }
    }

    /// Selects the variant for the text of an exception that an open Executor threw.
    pub(crate) fn from_what(what: &str) -> Self {
        let what = message(what);
        if what.contains("Shutdown called") {
            BridgeError::ShutDown
        } else if what.contains("communication mode, only") {
            BridgeError::NotLeader
        } else {
            BridgeError::Failed { what: what.to_owned() }
        }
    }
}

/// The message inside the text of a TensorRT-LLM exception: the first line without log prefix and source position. The
/// call stack starts on the second line.
fn message(what: &str) -> &str {
    let line = what.lines().next().unwrap_or_default().trim();
    let line = line.strip_prefix("[TensorRT-LLM][ERROR] ").unwrap_or(line);
    let line = line.strip_prefix("Assertion failed: ").unwrap_or(line);
    match line.rsplit_once(" (") {
        Some((message, position)) if is_source_position(position) => message,
        _ => line,
    }
}

/// True for a text such as `/src/executor.cpp:123)`.
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
    fn an_assertion_after_shutdown_becomes_shut_down() {
        let what =
            format!("[TensorRT-LLM][ERROR] Assertion failed: Shutdown called (/src/executorImpl.cpp:873){STACK}");
        assert_eq!(BridgeError::from_what(&what), BridgeError::ShutDown);
    }

    #[test]
    fn an_exception_of_a_worker_rank_becomes_not_leader() {
        for mode in ["LEADER communication mode, only leader", "ORCHESTRATOR communication mode, only orchestrator"] {
            let what = format!("With {mode} rank is expected to call getLatestIterationStats (/a.cpp:1){STACK}");
            assert_eq!(BridgeError::from_what(&what), BridgeError::NotLeader);
        }
    }

    #[test]
    fn a_message_contains_neither_stack_nor_source_position() {
        let what = format!("CUDA runtime error in op: out of memory (/src/buffers.h:62){STACK}");
        let error = BridgeError::from_what(&what);
        assert_eq!(error.to_string(), "the executor failed: CUDA runtime error in op: out of memory");
    }

    #[test]
    fn parentheses_without_a_source_position_are_kept() {
        let error = BridgeError::from_what("MPI failed (rank 3)");
        assert_eq!(error.to_string(), "the executor failed: MPI failed (rank 3)");
    }

    #[test]
    fn an_empty_exception_text_is_an_error() {
        assert_eq!(BridgeError::from_what(""), BridgeError::Failed { what: String::new() });
    }
}
