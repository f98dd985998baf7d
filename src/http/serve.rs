//! Listeners: bound before anything runs, drained at the end.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::shutdown::Shutdown;

/// Time that requests under way have to finish once the daemon is told to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// An address that cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {cause}; choose another address with --web.listen-address")]
pub struct BindError {
    pub address: SocketAddr,
    pub cause: std::io::Error,
}

/// Binds every address.
///
/// # Errors
/// With the first address that cannot be bound.
pub async fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, BindError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let bound = TcpListener::bind(address).await;
        listeners.push(bound.map_err(|cause| BindError { address: *address, cause })?);
    }
    Ok(listeners)
}

/// Serves until told to stop, then finishes what is under way.
pub async fn serve(listeners: Vec<TcpListener>, router: Router, shutdown: Shutdown) {
    let mut servers = JoinSet::new();
    for listener in listeners {
        let mut stop = shutdown.clone();
        let server = axum::serve(listener, router.clone()).with_graceful_shutdown(async move { stop.wait().await });
        servers.spawn(async move { server.await });
    }
    let mut stop = shutdown;
    stop.wait().await;
    let drained = tokio::time::timeout(DRAIN, async { while servers.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(after = ?DRAIN, "some connections were still open and are closed now");
    }
}
