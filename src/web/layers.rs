//! The access rules of the web configuration as tower layers. Authorization is tower-http's layer; the others are ours,
//! because tower-http has no rate limit and its header layer cannot follow a reload.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use tower::ServiceBuilder;
use tower_http::auth::{AsyncAuthorizeRequest, AsyncRequireAuthorizationLayer};

use crate::metrics::own::{HttpMetrics, Refusal};

use super::basic_auth::{BasicAuth, Verdict};
use super::rate_limit::Bucket;
use super::reload::{ReloadingConfig, Settings};

/// Puts `routes` behind the rules of `config`, in the toolkit's order: rate limit, response headers, basic authentication.
pub fn protect(routes: Router, config: Arc<ReloadingConfig>, metrics: Arc<HttpMetrics>) -> Router {
    let rules = Arc::new(Rules { config, metrics, bucket: Bucket::default(), auth: BasicAuth::default() });
    let stack = ServiceBuilder::new()
        .layer(from_fn_with_state(Arc::clone(&rules), limit_rate_and_add_headers))
        .layer(AsyncRequireAuthorizationLayer::new(Authorization(rules)));
    routes.layer(stack)
}

struct Rules {
    config: Arc<ReloadingConfig>,
    metrics: Arc<HttpMetrics>,
    bucket: Bucket,
    auth: BasicAuth,
}

fn refuse(metrics: &HttpMetrics, status: StatusCode, reason: Refusal) -> Response {
    metrics.refused(reason);
    (status, format!("{}\n", status.canonical_reason().unwrap_or_default())).into_response()
}

/// Rate limit and response headers. The settings are attached to the request, so that a reload in between changes nothing.
async fn limit_rate_and_add_headers(State(rules): State<Arc<Rules>>, mut request: Request, next: Next) -> Response {
    let Ok(settings) = rules.config.current() else {
        return refuse(&rules.metrics, StatusCode::INTERNAL_SERVER_ERROR, Refusal::WebConfig);
    };
    if settings.rate.is_some_and(|rate| !rules.bucket.allows(rate, Instant::now())) {
        return refuse(&rules.metrics, StatusCode::TOO_MANY_REQUESTS, Refusal::RateLimited);
    }
    request.extensions_mut().insert(Arc::clone(&settings));
    let mut response = next.run(request).await;
    for (name, value) in &settings.headers {
        response.headers_mut().insert(name, value.clone());
    }
    response
}

#[derive(Clone)]
struct Authorization(Arc<Rules>);

impl AsyncAuthorizeRequest<Body> for Authorization {
    type RequestBody = Body;
    type ResponseBody = Body;
    type Future = Pin<Box<dyn Future<Output = Result<Request, Response>> + Send>>;

    fn authorize(&mut self, request: Request) -> Self::Future {
        let rules = Arc::clone(&self.0);
        Box::pin(async move {
            // Without settings nothing is known about who may pass: refuse.
            let Some(settings) = request.extensions().get::<Arc<Settings>>().cloned() else {
                return Err(refuse(&rules.metrics, StatusCode::INTERNAL_SERVER_ERROR, Refusal::WebConfig));
            };
            if settings.users.is_empty() {
                return Ok(request);
            }
            let peer = request.extensions().get().copied().unwrap_or_default();
            match rules.auth.check(&settings.users, request.headers().get(header::AUTHORIZATION), peer).await {
                Verdict::Authorized => Ok(request),
                Verdict::Busy => Err(refuse(&rules.metrics, StatusCode::SERVICE_UNAVAILABLE, Refusal::Overloaded)),
                Verdict::Unauthorized => {
                    let mut response = refuse(&rules.metrics, StatusCode::UNAUTHORIZED, Refusal::Unauthorized);
                    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic"));
                    Err(response)
                }
            }
        })
    }
}
