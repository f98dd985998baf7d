//! The floor for `load.sh` and `start.py`: a bare axum server that answers `/metrics` with a file's bytes for ever.
//!   constant ADDRESS FILE CONTENT-TYPE [PACKED-FILE]
//! The packed file is answered, as gzip, to whoever accepts it.
// A benchmark stops at its first surprise.
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
    let packed = arguments.get(3).map(|path| Bytes::from(std::fs::read(path).unwrap()));
    let answer = async move |headers: HeaderMap| {
        let wanted = headers.get(header::ACCEPT_ENCODING).is_some_and(|value| value == "gzip");
        let vary = (header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        let mut answered = HeaderMap::from_iter([(header::CONTENT_TYPE, content_type), vary]);
        match packed.filter(|_| wanted) {
            Some(packed) => {
                answered.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                (answered, packed)
            }
            None => (answered, plain),
        }
    };
    let listener = tokio::net::TcpListener::bind(&arguments[0]).await.unwrap();
    axum::serve(listener, Router::new().route("/metrics", get(answer))).await.unwrap();
}
