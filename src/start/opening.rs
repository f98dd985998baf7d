//! Opens the sources of engines. Each future may take as long as it needs; its driver drops it at shutdown.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use trtllm_config::SourceSpec;
use trtllm_service::shutdown::Shutdown;
use trtllm_service::unix_socket::Activated;
#[cfg(feature = "executor")]
use trtllm_sources::executor::ExecutorThread;
#[cfg(feature = "executor")]
use trtllm_sources::hosting::Hosting;
use trtllm_sources::iteration_log::FollowedLog;
use trtllm_sources::orchestrator::Orchestrator;
use trtllm_sources::otlp::Otlp;
use trtllm_sources::perf_metrics_dir::PerfMetricsDir;
use trtllm_sources::playback::Playback;
use trtllm_sources::replay::Replay;
use trtllm_sources::simulated::Simulated;
#[cfg(feature = "executor")]
use trtllm_sources::simulated::is_in_process;
use trtllm_sources::socket::{Ingest, IngestListener, Naming, Publishers};
use trtllm_sources::trtllm_serve::TrtllmServe;
use trtllm_sources::{Blocking, OpenError, Source};

/// A future that opens the source of one engine.
pub(super) type Opening = Pin<Box<dyn Future<Output = Result<Source, OpenError>> + Send>>;

/// Sources that a reload has removed and that are still closing. A new source may need the path or the GPU of one of them.
pub(super) type Leaving = Vec<Shutdown>;

/// What all ingest sockets share.
#[derive(Clone)]
pub(super) struct IngestSockets {
    pub(super) publishers: Arc<Publishers>,
    pub(super) activated: Activated,
}

/// How long a new source waits until removed sources have closed.
const LEAVING: Duration = Duration::from_secs(10);

/// Waits until removed sources have closed what they use.
async fn left(leaving: Leaving) {
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
    IngestListener::bind(&path, &sockets.activated, &sockets.publishers, naming).await
}

/// Opens the source of one engine, after the sources in `leaving` have closed.
pub(super) fn open(source: SourceSpec, sockets: IngestSockets, leaving: Leaving) -> Opening {
    Box::pin(async move {
        left(leaving).await;
        Ok(match source {
            SourceSpec::Socket(path) => {
                Source::Socket(Ingest::bind(&path, &sockets.activated, &sockets.publishers).await?)
            }
            SourceSpec::TrtllmServe { access, extras } => {
                Source::TrtllmServe(Box::new(TrtllmServe::open(access, extras).await?))
            }
            SourceSpec::Orchestrator(access) => Source::Orchestrator(Box::new(Orchestrator::open(access).await?)),
            SourceSpec::Otlp(receiver) => Source::Otlp(Box::new(Otlp::open(receiver).await?)),
            SourceSpec::PerfMetrics(dir) => Source::PerfMetrics(PerfMetricsDir::open(dir).await?),
            SourceSpec::Replay { path, engine, pace } if path.is_dir() => {
                let open = move |path: &Path| Playback::open(path, engine.as_deref(), pace);
                Source::Recording(Box::new(Blocking::replay(path, open).await?))
            }
            SourceSpec::Replay { path, pace, .. } => {
                Source::Replay(Box::new(Blocking::replay(path, move |path| Replay::open(path, pace)).await?))
            }
            SourceSpec::Log { path, from_start } => {
                let target = format!("log:{}", path.display());
                Source::Log(Box::new(Blocking::new(target, FollowedLog::new(path, from_start))))
            }
            #[cfg(feature = "executor")]
            SourceSpec::Executor(hosting) => Source::Executor(ExecutorThread::start(*hosting)?),
            #[cfg(not(feature = "executor"))]
            SourceSpec::Executor(hosting) => {
                let cause = "this build has no Executor".to_owned();
                return Err(OpenError::Engine { engine: hosting.engine, cause });
            }
            #[cfg(feature = "executor")]
            SourceSpec::Simulated(engine) if !is_in_process(&engine) => {
                Source::Executor(ExecutorThread::start(Hosting::plain(engine))?)
            }
            SourceSpec::Simulated(engine) => Source::Simulated(Box::new(Simulated::open(&engine)?)),
            // These are never opened: a search finds their engines, and each engine is opened by its address.
            SourceSpec::Auto { .. } | SourceSpec::Kubernetes(_) => {
                tracing::error!("a search was opened as the source of an engine; please report this as a bug");
                std::future::pending().await
            }
        })
    })
}
