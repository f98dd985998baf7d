//! Builds the page from the state: engines in configured order, then GPUs, then the exporter.

use std::sync::{Arc, Mutex, PoisonError};

use crate::state::{EngineName, EngineSnapshot, State};

use super::catalog::Group;
use super::compat::CompatSets;
use super::dcgm::dcgm_page;
use super::engine::EngineSeries;
use super::gpu::gpu_page;
use super::own::{HttpMetrics, OwnMetrics, own_page};
use super::page::Page;
use super::series_labels::LabelCache;

/// Makes pages of one state. Keeps labels between pages.
#[derive(Debug)]
pub struct PageBuilder {
    series: Vec<EngineSeries>,
    compat: CompatSets,
    host: String,
    gpu_labels: Mutex<LabelCache>,
}

/// The families of a page. It has few values, so that rendered pages can be cached by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Selection {
    All,
    /// One bit for each of [`Group::ALL`].
    Groups(u8),
    /// The five series of the Kubernetes gateway's picker.
    Gateway,
}

/// A part of the page that changes independently of the others, in page order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Engines,
    Gpus,
    /// Different at every scrape.
    Exporter,
}

impl Section {
    pub const ALL: [Self; 3] = [Self::Engines, Self::Gpus, Self::Exporter];
}

impl Selection {
    /// These groups; an empty list means all.
    #[must_use]
    pub fn of(groups: &[Group]) -> Self {
        if groups.is_empty() {
            return Self::All;
        }
        Self::Groups(groups.iter().fold(0, |bits, group| bits | 1 << (*group as u8)))
    }

    fn contains(self, group: Group) -> bool {
        match self {
            Self::All => true,
            Self::Groups(bits) => bits & (1 << (group as u8)) != 0,
            Self::Gateway => false,
        }
    }
}

impl PageBuilder {
    #[must_use]
    pub fn new(state: &State, compat: CompatSets) -> Self {
        let names: Vec<&EngineName> = state.all_engines().map(|(name, _)| name).collect();
        let unique = |name: &EngineName| names.iter().filter(|other| other.model == name.model).count() == 1;
        let series = names.iter().map(|name| EngineSeries::new(name, unique(name))).collect();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self { series, compat, host: host.trim().to_owned(), gpu_labels: Mutex::default() }
    }

    /// The page of the current `state`, with all sections.
    #[must_use]
    pub fn page(&self, state: &State, http: &HttpMetrics, selection: Selection) -> Page {
        Page::join(Section::ALL.map(|section| self.section(section, state, http, selection)))
    }

    /// One section of the page of the current `state`. Sections are in catalog order.
    #[must_use]
    pub fn section(&self, section: Section, state: &State, http: &HttpMetrics, selection: Selection) -> Page {
        let mut page = match section {
            Section::Engines if selection == Selection::Gateway => {
                return self.join_engines(state, |series, snapshot| series.gateway_page(snapshot));
            }
            Section::Engines => self.join_engines(state, |series, snapshot| series.page(snapshot, self.compat)),
            Section::Gpus if selection.contains(Group::Gpu) || selection.contains(Group::Compat) => self.gpus(state),
            // Reads /proc, so it is skipped if it is not selected.
            Section::Exporter if selection.contains(Group::Exporter) => self.own(state, http),
            Section::Gpus | Section::Exporter => return Page::default(),
        };
        page.retain(|group| selection.contains(group));
        page
    }

    fn join_engines(&self, state: &State, page: impl Fn(&EngineSeries, &EngineSnapshot) -> Page) -> Page {
        Page::join(self.engines(state).map(|(series, snapshot)| page(series, &snapshot)))
    }

    fn engines(&self, state: &State) -> impl Iterator<Item = (&EngineSeries, Arc<EngineSnapshot>)> {
        let engines = self.series.iter().zip(state.all_engines());
        engines.filter_map(|(series, (name, snapshot))| State::on_page(name, &snapshot).then_some((series, snapshot)))
    }

    fn own(&self, state: &State, http: &HttpMetrics) -> Page {
        let sources = self.engines(state).map(|(series, snapshot)| (Arc::clone(series.source_labels()), snapshot));
        own_page(OwnMetrics { sources: sources.collect(), gpus: state.gpus(), http: http.clone() })
    }

    fn gpus(&self, state: &State) -> Page {
        let gpus = state.gpus();
        let page = gpu_page(&gpus, &mut self.gpu_labels.lock().unwrap_or_else(PoisonError::into_inner));
        match self.compat.dcgm {
            true => Page::join([page, dcgm_page(&gpus, &self.host)]),
            false => Page::join([page]),
        }
    }
}
