//! A stand-in for trtllm-serve with fixed answers. It keeps a list of the requests that it has received.

use std::sync::{Arc, Mutex};

use super::server::serve;

pub(crate) struct Served {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl Served {
    /// Path, status and body of each answer. Other paths return 404. A status of 0 closes the connection.
    pub(crate) fn start(answers: &'static [(&'static str, u16, &'static str)]) -> Self {
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let list = Arc::clone(&asked);
        let port = serve(move |request| {
            let token = request.header("authorization").unwrap_or_default();
            list.lock().unwrap().push((format!("{} {}", request.method(), request.path()), token.to_owned()));
            let found = answers.iter().find(|(path, ..)| *path == request.path());
            let (status, body) = found.map_or((404, "{}"), |(_, status, body)| (*status, *body));
            (status != 0).then(|| (status, body.into()))
        });
        Self { port, asked }
    }

    pub(crate) fn target(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The value of `--source`.
    pub(crate) fn source(&self) -> String {
        format!("trtllm-serve:{}", self.target())
    }

    /// Method and path of each request.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(request, _)| request.clone()).collect()
    }

    /// The header `Authorization` of each request.
    pub(crate) fn tokens(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(_, token)| token.clone()).collect()
    }
}
