//! From listeners to connections: accept until told to stop, then drain.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::shutdown::Shutdown;

use super::connections::Connection;
use super::layers::Gate;
use super::listen::Listener;
use super::speak::speak;

/// Time that requests under way have to finish once the daemon is told to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves each gate on its listeners until told to stop, then finishes what is under way.
pub async fn serve(gates: Vec<(Vec<Listener>, Arc<Gate>)>, shutdown: Shutdown) {
    // Dropped, and so ended, when this returns.
    let (mut servers, mut clocks, mut ending) = (JoinSet::new(), JoinSet::new(), Vec::new());
    for (listeners, gate) in gates {
        for listener in listeners {
            servers.spawn(accept(listener, Arc::clone(&gate), shutdown.clone()));
        }
        ending.push(Arc::clone(&gate));
        clocks.spawn(async move { gate.connections.keep_time(&gate.counts).await });
    }
    let mut stop = shutdown;
    stop.wait().await;
    ending.iter().for_each(|gate: &Arc<Gate>| gate.connections.end());
    let drained = tokio::time::timeout(DRAIN, async { while servers.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(after = ?DRAIN, "some connections were still open and are closed now");
    }
}

/// Takes connections until told to stop, then waits for those it has.
async fn accept(listener: Listener, gate: Arc<Gate>, shutdown: Shutdown) {
    let mut peers = JoinSet::new();
    let mut stop = shutdown;
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = peers.join_next() => continue,
            () = stop.wait() => break,
        };
        match accepted {
            Ok(stream) => {
                failing = false;
                let connection = Connection::new();
                // Without a place the stream is closed.
                if let Some(place) = gate.connections.admit(&connection, &gate.counts) {
                    let talk = speak(stream, Arc::clone(&gate), Arc::clone(&connection), place);
                    connection.run_by(peers.spawn(talk));
                }
            }
            // The peer has gone before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if !failing {
                    tracing::warn!(%error, "no connection can be accepted now");
                }
                failing = true;
                // Out of descriptors, most likely: some connection must end first.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    while peers.join_next().await.is_some() {}
}
