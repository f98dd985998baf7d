//! Reads exporters at an interval: their engines and GPUs, and the last minutes of the selected engine. No request removes statistics
//! from an engine.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::app::Update;
use super::exporter::{EngineId, ExporterReading};
use crate::exporters::api::{self, Gpus};
use crate::exporters::client::{Client, Failure, Target};

/// What the screen needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) paused: bool,
    /// The index of an exporter, and its engine whose charts are shown.
    pub(super) history_of: Option<(usize, EngineId)>,
}

/// Reads one exporter until nobody receives the updates.
pub(super) async fn follow(
    exporter: usize,
    target: Target,
    interval: Duration,
    mut wanted: watch::Receiver<Wanted>,
    updates: mpsc::Sender<Update>,
) {
    let started = Instant::now();
    let mut client = target.client_for_terminal();
    loop {
        let next = Instant::now() + interval;
        // This fails when `top` ends, because the sender is dropped.
        if wanted.wait_for(|wanted| !wanted.paused).await.is_err() {
            return;
        }
        let history_of = wanted.borrow_and_update().history_of.clone();
        let of_this = history_of.filter(|(at, _)| *at == exporter).map(|(_, engine)| engine);
        let read = read(&mut client, of_this).await.map_err(|failure| failure.to_string());
        let update = Update { exporter, time: started.elapsed().as_secs_f64(), read };
        if updates.send(update).await.is_err() {
            return;
        }
        tokio::time::sleep_until(next).await;
    }
}

/// Reads one exporter once.
pub(super) async fn read(client: &mut Client, history_of: Option<EngineId>) -> Result<ExporterReading, Failure> {
    // The GPUs come first: they have the version of the API, which the list of engines does not have.
    let Gpus { gpus, why, .. } = api::gpus(client).await?;
    let engines = api::engines(client).await?;
    let history = match history_of {
        // Without its history, the rest can still be shown. The engine may have disappeared meanwhile.
        Some(engine) => Some((engine.clone(), api::history(client, &engine).await.unwrap_or_default())),
        None => None,
    };
    Ok(ExporterReading {
        engines,
        gpus,
        no_gpus: why.unwrap_or_else(|| "the exporter has no GPU metrics".to_owned()),
        history,
    })
}
