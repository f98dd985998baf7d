//! Serves `/metrics` on an address by the rules of a web configuration, for example:
//! `cargo run --example server -- web.yml 127.0.0.1:9100`
use std::time::Duration;

use axum::{Router, routing::get};
use exporter_web_config::WebConfig;
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("give FILE ADDRESS".into());
    };
    let config = WebConfig::load(file)?;
    tokio::spawn(config.clone().watch());
    let app = Router::new().route("/metrics", get(async || "up 1\n")).layer(config.layer());
    let listener = TcpListener::bind(address).await?;
    loop {
        let (tcp, _) = listener.accept().await?;
        let (app, tls) = (app.clone(), config.tls_acceptor());
        tokio::spawn(async move {
            let Some(tls) = tls else { return serve(tcp, app).await };
            let handshake = tokio::time::timeout(Duration::from_secs(10), tls.accept(tcp)).await;
            if let Ok(Ok(stream)) = handshake {
                serve(stream, app).await;
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, app: Router) {
    let app = TowerToHyperService::new(app);
    // An error concerns this connection only, such as a client that disconnects.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), app).await;
}
