//! Opens the sources of engines. Each future may take as long as it needs; its driver drops it at shutdown.

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use trtllm_service::shutdown::Shutdown;
use trtllm_service::unix_socket::Activated;
#[cfg(feature = "executor")]
use trtllm_sources::executor::{ExecutorThread, hosting::Hosting};
use trtllm_sources::orchestrator::Orchestrator;
use trtllm_sources::perf_metrics_dir::{LinesDir, PerfMetricsDir};
use trtllm_sources::replay::{Pace, Replay};
use trtllm_sources::server::Access;
use trtllm_sources::simulated::Simulated;
use trtllm_sources::socket::{Admission, Ingest, IngestListener, Naming};
use trtllm_sources::trtllm_serve::{Extras, TrtllmServe};
use trtllm_sources::{OpenError, Source};

/// Opens the source of one engine.
pub(super) type Opening = Pin<Box<dyn Future<Output = Result<Source, OpenError>> + Send>>;

/// What is left of the sources that a reload has removed: a new source may need the path or the GPU of one of them.
pub(super) type Leaving = Vec<Shutdown>;

/// What all ingest sockets share.
#[derive(Clone)]
pub(super) struct IngestSockets {
    pub(super) admission: Admission,
    pub(super) activated: Activated,
}

/// How long a new source waits for those that a reload has removed.
const LEAVING: Duration = Duration::from_secs(10);

/// Waits until removed sources have closed what they use.
pub(super) async fn left(leaving: Leaving) {
    let all = async {
        for mut ended in leaving {
            ended.wait().await;
        }
    };
    let _ = tokio::time::timeout(LEAVING, all).await;
}

pub(super) async fn listen(
    path: PathBuf,
    sockets: IngestSockets,
    naming: Naming,
    leaving: Leaving,
) -> Result<IngestListener, OpenError> {
    left(leaving).await;
    IngestListener::bind(&path, &sockets.activated, sockets.admission, naming).await
}

pub(super) fn socket(path: PathBuf, sockets: IngestSockets) -> Opening {
    let IngestSockets { admission, activated } = sockets;
    Box::pin(async move { Ok(Source::Socket(Ingest::bind(&path, &activated, admission).await?)) })
}

pub(super) fn trtllm_serve(access: Access, extras: Extras) -> Opening {
    Box::pin(async move { Ok(Source::TrtllmServe(Box::new(TrtllmServe::open(access, extras).await?))) })
}

pub(super) fn orchestrator(access: Access) -> Opening {
    Box::pin(async move { Ok(Source::Orchestrator(Box::new(Orchestrator::open(access).await?))) })
}

pub(super) fn perf_metrics(dir: LinesDir) -> Opening {
    Box::pin(async move { Ok(Source::PerfMetrics(PerfMetricsDir::open(dir).await?)) })
}

pub(super) fn replay(path: PathBuf, engine: Option<String>, pace: Pace) -> Opening {
    Box::pin(async move { Ok(Source::Replay(Box::new(Replay::open(path, engine, pace).await?))) })
}

#[cfg(feature = "executor")]
pub(super) fn executor(hosting: Hosting) -> Opening {
    Box::pin(async move { Ok(Source::Executor(ExecutorThread::start(hosting)?)) })
}

pub(super) fn simulated(url: String) -> Opening {
    Box::pin(async move { Ok(Source::Simulated(Box::new(Simulated::open(&url)?))) })
}
