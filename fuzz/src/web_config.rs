//! The web configuration: parsed from text, and read from a file with the certificates and users in it.

use std::path::Path;

use trtllm_exporter::web::ReloadingConfig;
use trtllm_exporter::web::config::{Pem, WebConfig};

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match WebConfig::parse(text, Path::new("/nonexistent")) {
        Err(problem) => assert!(!problem.to_string().contains('\n'), "an error is one line: {problem}"),
        Ok(config) => {
            let shown = format!("{config:?}");
            let tls =
                config.tls.iter().flat_map(|tls| [Some(&tls.cert), Some(&tls.key), tls.client_ca.as_ref()]).flatten();
            for pem in tls {
                match pem {
                    // A short one may also be a part of another value.
                    Pem::Inline(secret) => assert!(secret.len() < 64 || !shown.contains(secret), "{shown}"),
                    // The target reads no files of the machine.
                    Pem::File(_) => return,
                }
            }
            read(text);
        }
    }
}

/// Reads the text from a file, as at start-up: also checks keys, certificates and cipher suites.
fn read(text: &str) {
    thread_local! {
        static FOLDER: tempfile::TempDir = tempfile::tempdir().unwrap();
    }
    FOLDER.with(|folder| {
        let path = folder.path().join("web.yml");
        std::fs::write(&path, text).unwrap();
        if let Err(error) = ReloadingConfig::read(&path) {
            assert!(!error.to_string().contains('\n'), "an error is one line: {error}");
        }
    });
}
