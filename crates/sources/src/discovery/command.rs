//! The command line of a trtllm-serve.

/// A command line that starts trtllm-serve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServeCommand<'a> {
    /// What follows the name of the program.
    arguments: &'a [&'a str],
}

impl<'a> ServeCommand<'a> {
    /// Finds the program among the first `within` words: it may follow an interpreter and its options.
    pub(crate) fn find(words: &'a [&'a str], within: usize) -> Option<Self> {
        let is_server =
            |word: &&str| word.rsplit('/').next() == Some("trtllm-serve") || *word == "tensorrt_llm.commands.serve";
        let at = words.iter().take(within).position(is_server)?;
        Some(Self { arguments: &words[at + 1..] })
    }

    /// Whether it starts the orchestrator of disaggregated serving.
    pub(crate) fn is_orchestrator(&self) -> bool {
        self.arguments.first() == Some(&"disaggregated")
    }

    /// Whether it starts a worker of an orchestrator on several nodes. The orchestrator's file contains the worker's address.
    pub(crate) fn is_mpi_worker(&self) -> bool {
        self.arguments.first() == Some(&"disaggregated_mpi_worker")
    }

    /// The value of an option, as in `--port 8000` or `--port=8000`.
    pub(crate) fn value(&self, option: &str) -> Option<&'a str> {
        let mut rest = self.arguments.iter();
        while let Some(argument) = rest.next() {
            if argument == &option {
                return rest.next().copied();
            }
            if let Some(value) = argument.strip_prefix(option).and_then(|rest| rest.strip_prefix('=')) {
                return Some(value);
            }
        }
        None
    }

    /// The model, if it is certain: the name that clients see, or the first argument.
    pub(crate) fn model(&self) -> Option<&'a str> {
        let first = self.arguments.iter().find(|argument| **argument != "serve").copied();
        let named = self.value("--served_model_name").or(first)?;
        (!named.is_empty() && !named.starts_with('-') && !named.contains(['$', '`', '\\'])).then_some(named)
    }
}
