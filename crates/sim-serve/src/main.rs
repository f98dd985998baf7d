//! A simulated trtllm-serve, for tests of monitoring and for trying the exporter without a GPU. It loads no model: `trtllm-sim`
//! simulates the engine in real time, and this program serves its reports, as trtllm-serve does. Unlike trtllm-serve, it also
//! reports what really happened (`/truth`) and what the driver of its GPUs shows (`/gpus`), and a test can stop, drain or break it
//! (`/control`).

mod answers;
mod clock;
mod families;
mod http;
mod live;
mod options;
mod orchestrator;
mod page;
mod publisher;
mod totals;
mod world;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use clap::Parser as _;
use parking_lot::Mutex;
use serde_json::json;

use answers::Server;
use live::Live;
use options::Arguments;

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "trtllm-sim-serve: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> Result<(), String> {
    let engine = arguments.simulated(&arguments.engine)?;
    let version = engine.version.clone();
    // Simulates the time that loading a model takes.
    thread::sleep(Duration::from_secs_f64(engine.options.load_seconds));
    let world = arguments.world(&engine)?;
    let options = &engine.options;
    let live = Live::new(world, options.speed, options.iterations, &arguments, Instant::now());
    let live = Arc::new(Mutex::new(live));
    let address = (arguments.host, arguments.port).into();
    let listeners = http::listen(address, arguments.frontends).map_err(|error| format!("{address}: {error}"))?;
    if let Some(listener) = listeners.first() {
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let mut out = io::stdout();
        let _ = writeln!(out, "listening on {address}").and_then(|()| out.flush());
    }
    if let Some(path) = arguments.socket.clone() {
        let mut hello = json!({"model": arguments.model, "pid": std::process::id()});
        if let Some(version) = &arguments.model_version {
            hello["version"] = json!(version);
        }
        let live = Arc::clone(&live);
        thread::spawn(move || publisher::run(&live, &path, &hello));
    }
    let server = Arc::new(Server::new(Arc::clone(&live), arguments, version));
    for (frontend, listener) in listeners.into_iter().enumerate() {
        let server = Arc::clone(&server);
        http::serve(listener, move |request, stream| server.answer(frontend, request, stream));
    }
    loop {
        live.lock().advance(Instant::now());
        thread::sleep(Duration::from_millis(10));
    }
}
