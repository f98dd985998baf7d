//! The whole page from the whole state: every engine in configured order, then GPUs, then the exporter.

use std::sync::{Mutex, PoisonError};

use crate::state::{EngineName, State};

use super::catalog::Group;
use super::compat::CompatSets;
use super::dcgm::dcgm_page;
use super::engine::EngineSeries;
use super::exporter::{PageCounts, exporter_page};
use super::gpu::gpu_page;
use super::label_cache::LabelCache;
use super::page::Page;

/// Makes pages of one daemon's state.
#[derive(Debug)]
pub struct PageBuilder {
    series: Vec<EngineSeries>,
    compat: CompatSets,
    host: String,
    gpu_labels: Mutex<LabelCache>,
}

/// Which families a page has. A small set, so that rendered pages can be kept by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Selection {
    All,
    /// A bit per [`Group::ALL`].
    Groups(u8),
    /// The five series of the Kubernetes gateway's picker.
    Gateway,
}

impl Selection {
    /// These groups; all of them if there are none.
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

    /// The page of `state` as it is now.
    #[must_use]
    pub fn page(&self, state: &State, counts: &PageCounts, selection: Selection) -> Page {
        let engines = self
            .series
            .iter()
            .zip(state.all_engines())
            .filter_map(|(series, (name, snapshot))| State::on_page(name, &snapshot).then_some((series, snapshot)));
        if selection == Selection::Gateway {
            return Page::join(engines.map(|(series, snapshot)| series.gateway_page(&snapshot)));
        }
        let mut parts: Vec<Page> = engines.map(|(series, snapshot)| series.page(&snapshot, self.compat)).collect();
        let gpus = state.gpus();
        parts.push(gpu_page(&gpus, &mut self.gpu_labels.lock().unwrap_or_else(PoisonError::into_inner)));
        if self.compat.dcgm {
            parts.push(dcgm_page(&gpus, &self.host));
        }
        // The one part that costs something before it is left out: it reads /proc.
        if selection.contains(Group::Exporter) {
            parts.push(exporter_page(counts));
        }
        let mut page = Page::join(parts);
        let groups: Vec<Group> = Group::ALL.into_iter().filter(|group| selection.contains(*group)).collect();
        page.retain_groups(&groups);
        page
    }
}
