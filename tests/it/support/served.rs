//! A trtllm-serve with fixed answers that keeps a list of what it was asked.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

type Answers = &'static [(&'static str, u16, &'static str)];

pub(crate) struct Served {
    port: u16,
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl Served {
    /// Path, status and body of each answer. Other paths are not found.
    pub(crate) fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, asked) = (listener.local_addr().unwrap().port(), Arc::default());
        let list = Arc::clone(&asked);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let list = Arc::clone(&list);
                std::thread::spawn(move || serve(stream, answers, &list));
            }
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

fn serve(stream: TcpStream, answers: Answers, asked: &Mutex<Vec<(String, String)>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let token = head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or_default();
        asked.lock().unwrap().push((format!("{method} {path}"), token.to_owned()));
        let found = answers.iter().find(|(other, ..)| *other == path);
        let (status, body) = found.map_or((404, "{}"), |(_, status, body)| (*status, *body));
        let length = body.len();
        if write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}").is_err() {
            return;
        }
    }
}
