//! Asks a server that sends no records whether its engine still runs. trtllm-serve keeps answering `/metrics` after its
//! engine has ended, with an empty array, and only `/health` says so.
//!
//! The question is asked in a separate task, over a connection of its own: some releases check their workers before they
//! answer, and polls of records must not wait for that.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::error::SourceError;
use super::http_client::HttpClient;
use super::server::TargetServer;

/// Time without a record after which the server is asked, and time from one question to the next. Upstream's frontends ask
/// as often.
const INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(4);
/// Limit of an answer in bytes. Only its status counts.
const MAX_ANSWER: usize = 64 << 10;
const PATH: &str = "/health";

#[derive(Debug)]
pub(super) struct HealthCheck {
    server: TargetServer,
    due: Instant,
    /// The task that asks, if there is one. Dropping the task closes its connection.
    asking: JoinSet<(HttpClient, Result<(), SourceError>)>,
    /// The client, between two questions. It keeps the token, and a look-up of the server's name that has not ended.
    client: Option<HttpClient>,
    /// The last answer was that the server is not ready.
    not_ready: bool,
}

impl HealthCheck {
    pub(super) fn new(server: TargetServer) -> Self {
        Self { server, due: Instant::now() + INTERVAL, asking: JoinSet::new(), client: None, not_ready: false }
    }

    /// To be called when a record has arrived: the engine runs.
    pub(super) fn record_arrived(&mut self) {
        self.due = Instant::now() + INTERVAL;
        if self.not_ready || !self.asking.is_empty() {
            (self.not_ready, self.asking) = (false, JoinSet::new());
        }
    }

    /// Takes an answer that has come, and asks again if that is due. Does not wait. Fails if the server is not ready.
    pub(super) fn poll(&mut self) -> Result<(), SourceError> {
        if let Some(Ok((client, answer))) = self.asking.try_join_next() {
            self.client = Some(client);
            self.note(answer);
        }
        if self.asking.is_empty() && Instant::now() >= self.due {
            self.due = Instant::now() + INTERVAL;
            let client = self.client.take();
            let new_client = || HttpClient::new(self.server.clone()).with_max_body(MAX_ANSWER);
            self.asking.spawn(ask(client.unwrap_or_else(new_client)));
        }
        match self.not_ready {
            true => Err(SourceError::HttpStatus { target: format!("{}{PATH}", self.server.target), status: 503 }),
            false => Ok(()),
        }
    }

    /// Only an answer changes what is known: a question without an answer shows nothing about the engine.
    fn note(&mut self, answer: Result<(), SourceError>) {
        match answer {
            Ok(()) => self.not_ready = false,
            Err(error) if error.status().is_some() => self.not_ready = error.is_not_ready(),
            Err(_) => {}
        }
    }
}

/// Asks over a new connection.
async fn ask(mut client: HttpClient) -> (HttpClient, Result<(), SourceError>) {
    client.disconnect();
    let answer = tokio::time::timeout(TIMEOUT, client.read(PATH)).await.map(|answer| answer.map(drop));
    let late = || SourceError::Timeout { target: format!("{}{PATH}", client.server.target), after: TIMEOUT };
    let answer = answer.unwrap_or_else(|_| Err(late()));
    client.release();
    (client, answer)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A check of a server that answers with these statuses.
    async fn check(statuses: Vec<u16>) -> HealthCheck {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            for status in statuses {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                assert!(head.starts_with(b"GET /health "));
                let answer = format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        HealthCheck::new(TargetServer::plain(target))
    }

    async fn next(check: &mut HealthCheck) -> Option<u16> {
        check.due = Instant::now();
        let _ = check.poll();
        while !check.asking.is_empty() {
            let _ = check.poll();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        check.poll().err().and_then(|error| error.status())
    }

    #[tokio::test]
    async fn a_server_without_its_engine_fails_until_it_is_ready_or_sends_a_record() {
        let mut check = check(vec![200, 503, 404, 503, 200, 503]).await;
        let mut answers = Vec::new();
        for _ in 0..5 {
            answers.push(next(&mut check).await);
        }
        let gone = Some(503);
        assert_eq!(answers, [None, gone, None, gone, None]);
        assert_eq!(next(&mut check).await, gone);
        assert!(check.client.is_some(), "the next question reads no token and looks up no name");
        check.note(Err(SourceError::Timeout { target: String::new(), after: TIMEOUT }));
        assert!(check.poll().is_err(), "a question without an answer changes nothing");
        check.record_arrived();
        assert!(check.poll().is_ok() && check.asking.is_empty(), "an engine that sends records is not asked for");
    }
}
