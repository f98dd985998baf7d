//! Like server.rs, but without axum: a hyper service with a body of bytes.
//! `cargo run --example hyper -- web.yml 127.0.0.1:9100`
use std::convert::Infallible;
use std::time::Duration;

use exporter_web_config::WebConfig;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::{Request, Response};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tower::ServiceBuilder;

async fn metrics(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new("up 1\n".into()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("give FILE ADDRESS".into());
    };
    let config = WebConfig::load(file)?;
    tokio::spawn(config.clone().watch());
    let listener = TcpListener::bind(address).await?;
    loop {
        let (tcp, _) = listener.accept().await?;
        let (config, tls) = (config.clone(), config.tls_acceptor());
        tokio::spawn(async move {
            let Some(tls) = tls else { return serve(tcp, &config).await };
            let handshake = tokio::time::timeout(Duration::from_secs(10), tls.accept(tcp)).await;
            if let Ok(Ok(stream)) = handshake {
                serve(stream, &config).await;
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, config: &WebConfig) {
    let service = ServiceBuilder::new().layer(config.layer()).service_fn(metrics);
    // An error concerns this connection only, such as a client that disconnects.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await;
}
