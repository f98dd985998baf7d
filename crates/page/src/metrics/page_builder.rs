//! Builds the page from the state: engines in configured order, then GPUs, then the exporter.

use std::sync::Arc;

use parking_lot::Mutex;

use trtllm_engines::{EngineSlot, State};
use trtllm_records::gpu::GpuInventory;

use super::compat::CompatSets;
use super::dcgm::dcgm_page;
use super::engine_series::EngineSeries;
use super::family::{Group, Profile};
use super::gpu::{LabelCache, gpu_page};
use super::own::{HttpMetrics, OwnMetrics, process};
use super::own_page::own_page;
use super::page::Page;

/// Builds the pages of one state. Keeps labels from page to page.
#[derive(Debug)]
pub struct PageBuilder {
    series: Mutex<Arc<AllSeries>>,
    compat: CompatSets,
    profile: Profile,
    host: String,
    gpu_labels: Mutex<LabelCache>,
}

/// The engines of the last page, and the labels of each.
#[derive(Debug, Default)]
struct AllSeries {
    engines: Arc<Vec<Arc<EngineSlot>>>,
    of: Vec<Arc<EngineSeries>>,
}

/// The families of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Selection {
    All,
    /// One bit for each of [`Group::ALL`].
    Groups(u8),
    /// What the endpoint picker of a Kubernetes gateway reads: five series, under Triton's and under trtllm-serve's
    /// names.
    Gateway,
}

impl Selection {
    /// Selects these groups. An empty list means all.
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
    pub fn new(compat: CompatSets, profile: Profile) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self { series: Mutex::default(), compat, profile, host: host.trim().to_owned(), gpu_labels: Mutex::default() }
    }

    /// The page of the current `state`.
    #[must_use]
    pub fn page(&self, state: &State, http: &HttpMetrics, selection: Selection) -> Page {
        let mut page = Page::new(self.profile, selection == Selection::Gateway);
        self.engines(state, selection, &mut page);
        // Read once, so that the state of NVML and the readings on a page are of the same moment.
        let gpus = state.gpus();
        if selection.contains(Group::Gpu) || selection.contains(Group::Compat) {
            self.gpus(&gpus, &mut page);
        }
        // Reads /proc, so it is skipped if it is not selected.
        if selection.contains(Group::Exporter) {
            self.own(state, gpus, http, &mut page);
        }
        if selection != Selection::Gateway {
            page.retain(|group| selection.contains(group));
        }
        page.sort();
        page
    }

    fn engines(&self, state: &State, selection: Selection, page: &mut Page) {
        for (series, engine) in self.series(state).iter() {
            match selection {
                Selection::Gateway => series.write_gateway(engine, page),
                _ => series.write(engine, self.compat, page),
            }
        }
    }

    /// The series of all engines of `state`. Labels are built only for new engines, and for an engine that becomes or
    /// stops being the only one of its model. All other labels are kept.
    fn series(&self, state: &State) -> Arc<AllSeries> {
        let (engines, mut kept) = (state.slots(), self.series.lock());
        if !Arc::ptr_eq(&engines, &kept.engines) {
            *kept = Arc::new(AllSeries::of(engines, &kept));
        }
        Arc::clone(&kept)
    }

    fn own(&self, state: &State, gpus: Arc<GpuInventory>, http: &HttpMetrics, page: &mut Page) {
        let series = self.series(state);
        let sources =
            series.iter().map(|(series, engine)| (Arc::clone(&series.source_labels), engine.lock().source.clone()));
        own_page(
            OwnMetrics {
                sources: sources.collect(),
                gpus,
                http: http.clone(),
                recorder: state.recorder.get().cloned(),
                refused_publishers: state.refused_publishers.clone(),
                config_reload: *state.config_reload.lock(),
                process: process::read(),
                profile: self.profile,
            },
            page,
        )
    }

    fn gpus(&self, gpus: &GpuInventory, page: &mut Page) {
        gpu_page(gpus, &mut self.gpu_labels.lock(), page);
        if self.compat.dcgm {
            dcgm_page(gpus, &self.host, page);
        }
    }
}

impl AllSeries {
    fn of(engines: Arc<Vec<Arc<EngineSlot>>>, kept: &Self) -> Self {
        let of = engines.iter().map(|engine| {
            let same_model = engines.iter().filter(|other| other.name.model == engine.name.model);
            let model_is_unique = same_model.count() == 1;
            let known = kept.engines.iter().position(|other| Arc::ptr_eq(other, engine));
            let series = known.map(|index| &kept.of[index]).filter(|series| series.model_is_unique == model_is_unique);
            series.map_or_else(|| Arc::new(EngineSeries::new(&engine.name, model_is_unique)), Arc::clone)
        });
        Self { of: of.collect(), engines }
    }

    fn iter(&self) -> impl Iterator<Item = (&EngineSeries, &EngineSlot)> {
        self.of.iter().zip(self.engines.iter()).map(|(series, engine)| (&**series, &**engine))
    }
}
