//! Reads the JSON API of an exporter into the types with which the exporter writes it. Makes texts for a terminal printable.

use serde::de::DeserializeOwned;
use serde_json::Value;

use trtllm_http::views::API_VERSION;
use trtllm_http::views::answers::Slot;
pub(crate) use trtllm_http::views::answers::{Findings, Gpus, History, Model};
use trtllm_http::views::engine::Engine;
use trtllm_service::printable::one_line;
use trtllm_verdict::findings::Finding;

use super::client::{Client, Failure, Target};
use trtllm_config::ConfigError;

/// The engines, in the order of the metrics page.
pub(crate) async fn engines(client: &mut Client) -> Result<Vec<Engine>, Failure> {
    read(client, "/api/v1/engines").await
}

pub(crate) async fn findings(client: &mut Client) -> Result<Vec<Finding>, Failure> {
    read(client, "/api/v1/findings").await.map(|answer: Findings| answer.findings)
}

pub(crate) async fn gpus(client: &mut Client) -> Result<Gpus, Failure> {
    read(client, "/api/v1/gpus").await
}

/// The last minutes of one engine as spans of time, the oldest first. `engine` is its full name.
pub(crate) async fn history(client: &mut Client, engine: &str) -> Result<Vec<Slot>, Failure> {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("engine", engine).finish();
    let mut answer: History = read(client, &format!("/api/v1/history?{query}")).await?;
    Ok(answer.engines.pop().unwrap_or_default().slots)
}

const USE_MATCHING_RELEASE: &str = "use the command of the exporter's release";

async fn read<T: DeserializeOwned>(client: &mut Client, path: &str) -> Result<T, Failure> {
    let name = path.split('?').next().unwrap_or(path);
    let body = match client.get(path).await {
        // A path with a query may be 404 because the engine that it names is unknown.
        Err(Failure::Status(404)) if path == name => {
            return Err(Failure::NoUsableAnswer(format!(
                "{name} is missing: this is not a trtllm-exporter, or it has another version; {USE_MATCHING_RELEASE}"
            )));
        }
        answer => answer?,
    };
    parse(name, &body, client.for_terminal)
}

/// Parses an answer of the API. Fails with a message about versions if the exporter has another version of the API.
pub(crate) fn parse<T: DeserializeOwned>(name: &str, body: &[u8], for_terminal: bool) -> Result<T, Failure> {
    let mut answer: Value = serde_json::from_slice(body).map_err(|_| {
        Failure::NoUsableAnswer(format!("{name} is not JSON: this is not a trtllm-exporter; check the URL"))
    })?;
    let version = answer.get("apiVersion").and_then(Value::as_u64);
    if let Some(version) = version.filter(|version| *version != u64::from(API_VERSION)) {
        return Err(Failure::NoUsableAnswer(format!(
            "the exporter has version {version} of the API, and this program reads version {API_VERSION}; \
                {USE_MATCHING_RELEASE}"
        )));
    }
    if for_terminal {
        make_printable(&mut answer);
    }
    T::deserialize(answer).map_err(|error| {
        Failure::NoUsableAnswer(format!(
            "{name} is not as in this version of the exporter: {error}; {USE_MATCHING_RELEASE}"
        ))
    })
}

fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) => *text = one_line(text),
        Value::Array(items) => items.iter_mut().for_each(make_printable),
        Value::Object(fields) => {
            let all = std::mem::take(fields).into_iter();
            fields.extend(all.map(|(name, mut value)| {
                make_printable(&mut value);
                (one_line(&name), value)
            }));
        }
        _ => {}
    }
}

/// Reads `/api/v1/model`. `engine` is needed if there are several.
pub(crate) async fn model(target: &Target, engine: Option<&str>) -> Result<Model, ConfigError> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(engine.map(|engine| ("engine", engine)));
    let path = format!("/api/v1/model?{}", query.finish());
    let mut client = target.client();
    let body = match client.get(&path).await {
        Ok(body) => body,
        Err(failure) => {
            // Only the texts for these two name the engines.
            let known = match failure {
                Failure::Status(400 | 404) => engines(&mut client).await.unwrap_or_default(),
                _ => Vec::new(),
            };
            let names: Vec<String> = known.iter().map(|engine| engine.name(":")).collect();
            return Err(model_error(&failure, &target.url, engine, &names.join(", ")));
        }
    };
    parse("/api/v1/model", &body, false).map_err(|failure| ConfigError::flag("URL", &target.url, failure.to_string()))
}

/// `known`: the names of the exporter's engines.
fn model_error(failure: &Failure, url: &str, engine: Option<&str>, known: &str) -> ConfigError {
    let invalid = |why: String| ConfigError::flag("URL", url, why);
    match (failure, engine) {
        (Failure::Status(404), Some(engine)) => {
            ConfigError::flag("--engine", engine, format!("no such engine; choose one of {known}"))
        }
        (Failure::Status(404), None) => {
            invalid("no engine, or an exporter older than this command; update the exporter".to_owned())
        }
        (Failure::Status(400), _) => invalid(format!("it has several engines; choose one with --engine: {known}")),
        (Failure::Status(503), _) => {
            invalid("the exporter is overloaded (status 503); try again, or raise --web.max-requests".to_owned())
        }
        (failure, _) => invalid(failure.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::super::client::targets;
    use super::*;
    use crate::cli::ClientOptions;

    #[tokio::test]
    async fn an_overloaded_exporter_is_asked_once_and_the_error_names_the_flag() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let urls = vec![format!("http://{}", listener.local_addr().unwrap())];
        // Another request would arrive on the same connection.
        let server = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            stream.read_u8().await.is_err()
        };
        let connection = ClientOptions { urls, ca_file: None, user_file: None, bearer_token_file: None };
        let target = targets(&connection).await.unwrap().remove(0);
        let (is_asked_once, answer) = tokio::join!(server, async move { model(&target, None).await });
        let error = answer.map(|_| ()).unwrap_err().to_string();
        assert!(is_asked_once && error.contains("raise --web.max-requests"), "{error}");
    }
}
