//! The baseline of `load.sh` and `start.py`: a minimal axum server that always answers `/metrics` with the bytes of a file.
//!   constant ADDRESS FILE CONTENT-TYPE [GZIP-FILE]
//! A request that accepts gzip gets the gzip file.
// A benchmark may panic, because no service depends on it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::routing::get;
use bytes::Bytes;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let plain = Bytes::from(std::fs::read(&arguments[1]).unwrap());
    let content_type = HeaderValue::from_str(&arguments[2]).unwrap();
    let gzip = arguments.get(3).map(|path| Bytes::from(std::fs::read(path).unwrap()));
    let handler = async move |headers: HeaderMap| {
        let accepts_gzip = headers.get(header::ACCEPT_ENCODING).is_some_and(|value| value == "gzip");
        let vary = (header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        let mut response_headers = HeaderMap::from_iter([(header::CONTENT_TYPE, content_type), vary]);
        match gzip.filter(|_| accepts_gzip) {
            Some(gzip) => {
                response_headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                (response_headers, gzip)
            }
            None => (response_headers, plain),
        }
    };
    let listener = tokio::net::TcpListener::bind(&arguments[0]).await.unwrap();
    axum::serve(listener, Router::new().route("/metrics", get(handler))).await.unwrap();
}
