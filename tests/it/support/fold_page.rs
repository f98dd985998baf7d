//! The page of an engine whose records a test has absorbed into an [`ObservedEngine`], without a daemon.

use std::time::Instant;

use trtllm_analysis::ObservedEngine;
use trtllm_engines::{Engine, State};
use trtllm_page::exposition::negotiate::Format;
use trtllm_page::metrics::catalog::Profile;
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::own::HttpMetrics;
use trtllm_page::metrics::page;
use trtllm_page::metrics::page_builder::{PageBuilder, Selection};
use trtllm_records::{EngineName, Objectives};

use super::page::Page;

/// The engine after a poll.
pub(crate) fn polled(observed: &ObservedEngine, now: Instant) -> Engine {
    Engine { state: observed.fold.health.state(now), observed: observed.clone(), ..Engine::starting() }
}

/// A list with this engine.
pub(crate) fn state(objectives: Objectives, engine: Engine) -> State {
    let state = State::new(vec![EngineName { objectives, ..EngineName::new("m", "1", "replay") }]);
    **state.slots()[0].lock() = engine;
    state
}

pub(crate) fn page(state: &State, sets: CompatSets, selection: Selection) -> page::Page {
    page_in(Profile::Full, state, sets, selection)
}

pub(crate) fn page_in(profile: Profile, state: &State, sets: CompatSets, selection: Selection) -> page::Page {
    PageBuilder::new(sets, profile).page(state, &HttpMetrics::new(), selection)
}

/// The page, rendered as text and parsed again.
pub(crate) fn parsed(page: &page::Page) -> Page {
    let mut text = Vec::new();
    trtllm_page::exposition::render(page, Format::Text, &mut text);
    Page::parse(&String::from_utf8(text).unwrap())
}
