//! The access rules for requests as a tower layer. tower-http has no rate limit, and its layers cannot follow a reload.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{HeaderValue, Request, Response, header};
use tower_layer::Layer;
use tower_service::Service;

use crate::error::Refusal;
use crate::web_config::WebConfig;

/// A [`tower_layer::Layer`] that applies the access rules of a [`WebConfig`] to each request.
#[derive(Debug, Clone)]
pub struct AccessControlLayer(WebConfig);

impl WebConfig {
    /// The access rules as a layer: rate limit, basic authentication and response headers.
    ///
    /// With axum, add it by `Router::layer` after all routes. The service's response body must implement `From<String>`, as
    /// axum's does.
    #[must_use]
    pub fn layer(&self) -> AccessControlLayer {
        AccessControlLayer(self.clone())
    }
}

impl<S> Layer<S> for AccessControlLayer {
    type Service = AccessControl<S>;

    fn layer(&self, inner: S) -> AccessControl<S> {
        AccessControl { inner, config: self.0.clone() }
    }
}

/// The service that [`AccessControlLayer`] wraps around another service. It applies the rate limit, then basic authentication, and adds
/// the configured headers to the response.
#[derive(Debug, Clone)]
pub struct AccessControl<S> {
    inner: S,
    config: WebConfig,
}

impl<S, B, R> Service<Request<B>> for AccessControl<S>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Send + 'static,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Only the service that was polled is ready. The clone takes its place.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let config = self.config.clone();
        Box::pin(async move {
            // The same settings apply to the whole request, even if a reload happens meanwhile.
            let Some(settings) = config.settings() else { return Ok(refuse(&config, Refusal::InvalidConfig)) };
            if settings.rate.is_some_and(|rate| !config.state.bucket.allows(rate, Instant::now())) {
                return Ok(refuse(&config, Refusal::RateLimited));
            }
            let authorization = request.headers().get(header::AUTHORIZATION);
            let mut response = match settings.users.check(&config.state.comparisons, authorization).await {
                Ok(()) => inner.call(request).await?,
                Err(refusal) => refuse(&config, refusal),
            };
            for (name, value) in &settings.headers {
                response.headers_mut().insert(name, value.clone());
            }
            Ok(response)
        })
    }
}

/// Reports the refusal and makes the response, with the text that Go's server sends.
fn refuse<R: From<String>>(config: &WebConfig, refusal: Refusal) -> Response<R> {
    config.report(refusal);
    let status = refusal.status();
    let mut response = Response::new(R::from(format!("{}\n", status.canonical_reason().unwrap_or_default())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if refusal == Refusal::Unauthorized {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic"));
    }
    response
}
