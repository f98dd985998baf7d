//! What an exporter knows of one engine, for questions about it.

use serde::Deserialize;

use trtllm_what_if::Present;
use trtllm_what_if::baselines::Run;

use super::api;
use super::client::{Failure, Target};
use crate::config::ConfigError;

/// One engine, now or at a time in the past.
#[derive(Debug, Deserialize)]
pub(crate) struct Model {
    pub(crate) model: String,
    pub(crate) version: String,
    /// Seconds since 1970. Absent for the present.
    pub(crate) at: Option<f64>,
    #[serde(default)]
    pub(crate) run: Run,
    pub(crate) present: Present,
}

/// `engine`: MODEL or MODEL:VERSION, if the exporter has several. `at`: the parameter of `/api/v1/model`, for the past.
pub(crate) async fn model(target: &Target, engine: Option<&str>, at: Option<&str>) -> Result<Model, ConfigError> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(engine.map(|engine| ("engine", engine)));
    query.extend_pairs(at.map(|at| ("at", at)));
    let path = format!("/api/v1/model?{}", query.finish());
    let body = target.client().get(&path).await.map_err(|failure| unread(&failure, &target.url, engine, at))?;
    api::parse("/api/v1/model", &body, false)
        .map_err(|failure| ConfigError::flag("URL", &target.url, failure.to_string()))
}

fn unread(failure: &Failure, url: &str, engine: Option<&str>, at: Option<&str>) -> ConfigError {
    let invalid = |why: String| ConfigError::flag("URL", url, why);
    let several = "choose one of the engines with --engine MODEL or MODEL:VERSION (trtllm-exporter top lists them)";
    match (failure, engine, at) {
        (Failure::Status(404), _, Some(_)) => invalid(format!(
            "nothing is kept of this time, or there is no such engine. The exporter keeps engines only with --record.dir, and only \
             after ten minutes of work; {several}"
        )),
        (Failure::Status(404), Some(engine), None) => {
            ConfigError::flag("--engine", engine, format!("no such engine; {several}"))
        }
        (Failure::Status(404), None, None) => {
            invalid("no engine, or an exporter older than this command; update the exporter".to_owned())
        }
        (Failure::Status(400), ..) => invalid(format!("the exporter has several engines; {several}")),
        (Failure::Status(503), ..) => {
            invalid("the polls of this engine do not end; look at trtllm-exporter doctor".to_owned())
        }
        (failure, ..) => invalid(failure.to_string()),
    }
}
