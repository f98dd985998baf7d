//! `--source`: the kind of source, its address and its options.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use super::forms::remedy;
use super::options::SourceOptions;
use trtllm_records::orchestrator::SOURCE as ORCHESTRATOR;
use trtllm_sources::hosting::Hosting;
use trtllm_sources::kubernetes::PodSelection;
use trtllm_sources::otlp::SpanReceiver;
use trtllm_sources::perf_metrics_dir::LinesDir;
use trtllm_sources::replay::Pace;
use trtllm_sources::server::{Access, DEFAULT_PORT, check_host, port_of};
use trtllm_sources::trtllm_serve::Extras;

/// A parsed `--source`.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceSpec {
    /// `sim:…`. The simulated SDK accepts this text in place of an engine directory.
    Simulated(String),
    /// An engine that runs in this process. The daemon refuses it if it is built without the feature `executor`.
    Executor(Box<Hosting>),
    TrtllmServe {
        access: Access,
        extras: Extras,
    },
    /// The orchestrator of disaggregated serving.
    Orchestrator(Access),
    Socket(PathBuf),
    /// Receives OTLP traces at this address.
    Otlp(SpanReceiver),
    /// The JSON lines of finished requests, without a server.
    PerfMetrics(LinesDir),
    /// The iteration log of a server. `-` is the standard input.
    Log {
        path: PathBuf,
        from_start: bool,
    },
    /// Every trtllm-serve of this host or pod: on these ports, or on a port in the command line of a running process.
    Auto {
        ports: Vec<u16>,
    },
    /// Every trtllm-serve in a pod that Kubernetes tells of.
    Kubernetes(Box<PodSelection>),
    Replay {
        path: PathBuf,
        /// Chooses one engine of a recording with several.
        engine: Option<String>,
        pace: Pace,
    },
}

const USER_INFO: &str = "a user and password in the URL are not supported; remove them";

impl SourceSpec {
    /// The kind of source, as the label `source` shows it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Simulated(_) => "sim",
            Self::Executor(_) => "executor",
            Self::TrtllmServe { .. } | Self::Auto { .. } | Self::Kubernetes(_) => "trtllm-serve",
            Self::Orchestrator(_) => ORCHESTRATOR,
            Self::PerfMetrics(_) => "perf-metrics",
            Self::Socket(_) => "socket",
            Self::Otlp(_) => "otlp",
            Self::Replay { .. } => "replay",
            Self::Log { .. } => "log",
        }
    }

    /// Where the source receives OTLP traces.
    #[must_use]
    pub const fn span_receiver(&self) -> Option<&SpanReceiver> {
        match self {
            Self::Otlp(receiver) | Self::TrtllmServe { extras: Extras { otlp: Some(receiver), .. }, .. } => {
                Some(receiver)
            }
            _ => None,
        }
    }

    /// Forwards all spans that the source receives to the receiver at this URL. Fails if the URL is invalid, or that of the source itself.
    pub fn forward_spans(&mut self, url: &str) -> Result<(), String> {
        let (Self::Otlp(receiver) | Self::TrtllmServe { extras: Extras { otlp: Some(receiver), .. }, .. }) = self
        else {
            return Err(
                "the source receives no spans; use otlp:HOST:PORT or the option otlp of trtllm-serve:".to_owned()
            );
        };
        // Variables and other programs have the URL with the path.
        let endpoint = http_target("", url.trim_end_matches('/').trim_end_matches("/v1/traces"))?;
        if server_key(&endpoint) == server_key(&format!("http://{}", receiver.address)) {
            return Err("these are the source's own spans; name the next receiver".to_owned());
        }
        receiver.forward_to = Some(endpoint);
        Ok(())
    }
}

impl FromStr for SourceSpec {
    type Err = String;

    /// The error is the first mistake, with its remedy.
    fn from_str(url: &str) -> Result<Self, String> {
        let url = [("auto", "auto:"), ("kubernetes", "kubernetes:")]
            .iter()
            .find(|(short, _)| *short == url)
            .map_or(url, |(_, url)| url);
        if let Some(why) = unrendered(url) {
            return Err(format!("this {why}"));
        }
        let (scheme, rest) = url.split_once(':').ok_or_else(|| format!("no scheme; {}", remedy()))?;
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options = SourceOptions::parse(query)?;
        let spec = match scheme {
            // The simulated SDK checks its options itself.
            "sim" if body.is_empty() => {
                options.take_all();
                Self::Simulated(url.to_owned())
            }
            "sim" => return Err(format!("unexpected {body:?} after sim:; use sim: or sim:?key=value&…")),
            "trtllm-disagg" => Self::Orchestrator(access("trtllm-disagg:", rest, &mut options)?),
            "trtllm-serve" => Self::TrtllmServe {
                access: access("trtllm-serve:", rest, &mut options)?,
                extras: Extras {
                    perf_metrics: options.boolean("perf_metrics")?.unwrap_or(true),
                    lines: lines(&mut options)?,
                    prometheus_metrics: options.boolean("prometheus_metrics")?.unwrap_or(true),
                    otlp: options.take("otlp").map(|text| receiver(&text, "otlp=")).transpose()?,
                },
            },
            "auto" if body.is_empty() => Self::Auto { ports: options.ports()?.unwrap_or_else(|| vec![DEFAULT_PORT]) },
            "auto" => return Err(format!("unexpected {body:?} after auto:; use auto or auto:?ports=8000,8001")),
            "kubernetes" => Self::Kubernetes(Box::new(pods(body, &mut options)?)),
            "socket" | "replay" | "perf-metrics" | "log" if body.is_empty() => {
                return Err(format!("{scheme}: has no path; use {scheme}:PATH"));
            }
            "perf-metrics" => Self::PerfMetrics(LinesDir {
                path: PathBuf::from(body),
                from_start: options.boolean("from_start")?.unwrap_or(false),
            }),
            "socket" => Self::Socket(PathBuf::from(body)),
            "otlp" => Self::Otlp(receiver(body, "otlp:")?),
            "log" => {
                Self::Log { path: PathBuf::from(body), from_start: options.boolean("from_start")?.unwrap_or(false) }
            }
            "replay" => {
                let pace = match (options.above_zero("rate")?, options.speed()?) {
                    (Some(_), Some(_)) => {
                        return Err("rate and speed cannot be combined; remove one of them".to_owned());
                    }
                    (Some(rate), None) => Pace::Rate(rate),
                    (None, speed) => Pace::Recorded(speed.unwrap_or(1.0)),
                };
                Self::Replay { path: PathBuf::from(body), engine: options.take("engine"), pace }
            }
            "executor" => Self::Executor(Box::new(super::hosted::hosting(body, &mut options)?)),
            "triton" => return Err(format!("a Triton server's page is not a source; {}", remedy())),
            "http" | "https" => {
                return Err(format!(
                    "unknown scheme; write trtllm-serve: before the URL of an engine, or {}",
                    remedy()
                ));
            }
            _ => return Err(format!("unknown scheme; {}", remedy())),
        };
        options.finish()?;
        Ok(spec)
    }
}

/// The address after `prefix`, where spans are received.
fn receiver(text: &str, prefix: &str) -> Result<SpanReceiver, String> {
    let address = text.replace("localhost:", "127.0.0.1:").parse().map_err(|_| {
        format!("{text:?} is not an address to listen on; use {prefix}HOST:PORT with an IP address, such as {prefix}127.0.0.1:4317")
    })?;
    Ok(SpanReceiver { address, forward_to: None })
}

/// Reads the options `perf_metrics_dir` and `perf_metrics_from_start`.
fn lines(options: &mut SourceOptions) -> Result<Option<LinesDir>, String> {
    let path = options.path("perf_metrics_dir")?;
    let from_start = options.boolean("perf_metrics_from_start")?;
    if path.is_none() && from_start.is_some() {
        return Err("perf_metrics_from_start needs perf_metrics_dir; add it or remove the option".to_owned());
    }
    Ok(path.map(|path| LinesDir { path, from_start: from_start.unwrap_or(false) }))
}

/// Reads the pods that `kubernetes:` looks for.
fn pods(namespace: &str, options: &mut SourceOptions) -> Result<PodSelection, String> {
    let is_name = |text: &str| {
        let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&text.len()) && text.bytes().all(valid)
    };
    if !namespace.is_empty() && !is_name(namespace) {
        return Err(format!("{namespace:?} is not the name of a namespace; use kubernetes: or kubernetes:NAMESPACE"));
    }
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let port = |text: &str| text.parse().ok().filter(|port| *port > 0);
    let api_server = options.take("api_server").map(|url| access("api_server=", &url, options)).transpose()?;
    let selection = PodSelection {
        namespace: text(namespace),
        selector: options.read("selector", "a label selector, such as app=llama", text)?,
        node: options.read("node", "the name of a node", text)?,
        all_nodes: options.boolean("all_nodes")?.unwrap_or(false),
        port: options.read("port", "a number from 1 to 65535", port)?,
        api_server,
    };
    if selection.node.is_some() && selection.all_nodes {
        return Err("node and all_nodes cannot be combined; remove one of them".to_owned());
    }
    Ok(selection)
}

/// The server at the URL with which `rest` begins, after `prefix`, with the options for access to it.
fn access(prefix: &str, rest: &str, options: &mut SourceOptions) -> Result<Access, String> {
    let url = rest.split('?').next().unwrap_or_default();
    // Other errors quote parts of the URL. A quoted part could come from a password, which may contain any character.
    let target = http_target(prefix, url).map_err(|why| if rest.contains('@') { USER_INFO.to_owned() } else { why })?;
    let ca_file = options.path("ca_file")?;
    if ca_file.is_some() && target.starts_with("http:") {
        return Err("ca_file is for https; remove it or use https".to_owned());
    }
    Ok(Access { target, ca_file, bearer_token_file: options.path("bearer_token_file")? })
}

fn http_target(prefix: &str, url: &str) -> Result<String, String> {
    let form = format!("{prefix}http://HOST:PORT or https");
    if url.contains('#') {
        return Err(format!("the address of a server has no part after #; write {form}"));
    }
    let uri: http::Uri = url.parse().map_err(|_| format!("{url:?} is not a URL; write {form}"))?;
    let (scheme, default_port) = match uri.scheme_str() {
        Some("http") => ("http", 80),
        Some("https") => ("https", 443),
        _ => return Err(format!("expected {form}, not {url:?}; correct the URL")),
    };
    let authority = uri.authority().ok_or_else(|| format!("the host is missing; write {form}"))?;
    if authority.as_str().contains('@') {
        return Err(USER_INFO.to_owned());
    }
    if authority.host().is_empty() {
        return Err(format!("the host is missing; write {form}"));
    }
    check_host(authority.host())?;
    // The path stands in messages, and the value of an option may be a secret.
    if uri.path().contains('&') {
        return Err(format!("the first option follows a ?, not a &; write {prefix}http://HOST:PORT?KEY=VALUE&…"));
    }
    // A path that ends like this is not the address of a server but of its API. The exporter adds the path of the API itself.
    let last = uri.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if ["v1", "metrics", "perf_metrics", "kv_cache_events", "health", "version", "completions", "cluster_info"]
        .contains(&last)
    {
        return Err(format!("the URL ends in /{last}; give only the address of the server, as in {form}"));
    }
    let port = port_of(authority)?.unwrap_or(default_port);
    Ok(format!("{scheme}://{}:{port}{}", authority.host(), uri.path().trim_end_matches('/')))
}

/// A key that is equal for all spellings of the address of one server, such as `http://LOCALHOST:80/` and `https://[::1]:80`.
#[must_use]
pub fn server_key(target: &str) -> String {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
    let host = host.trim_end_matches('.').to_lowercase();
    let host = match host.trim_matches(['[', ']']).parse::<IpAddr>().map(|address| address.to_canonical()) {
        // A client that connects to the unspecified address reaches its own host.
        Ok(address) if address.is_loopback() || address.is_unspecified() => "localhost".to_owned(),
        Ok(address) => address.to_string(),
        Err(_) => host,
    };
    format!("{host}:{port}/{path}")
}

/// The error for a text that a template engine should have replaced, such as `{{ .Values.model }}`.
pub(super) fn unrendered(text: &str) -> Option<&'static str> {
    let is_template = (text.contains("{{") && text.contains("}}")) || text.contains("${") || text.contains("$(");
    is_template.then_some("is a template that was not rendered; render it, or write the value itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_of_a_server_is_the_same_server() {
        for other in [
            "http://LOCALHOST:8000",
            "https://127.0.0.1:8000",
            "http://[::1]:8000",
            "http://127.9.9.9:8000",
            "http://[::ffff:127.0.0.1]:8000",
            "http://0.0.0.0:8000",
            "http://localhost.:8000",
        ] {
            assert_eq!(server_key(other), server_key("http://localhost:8000"), "{other}");
        }
        assert_eq!(server_key("http://[2001:DB8:0::1]:1"), server_key("http://[2001:db8::1]:1"));
        for other in ["http://localhost:8001", "http://localhost:8000/a", "http://llama-0:8000", "http://10.0.0.1:8000"]
        {
            assert_ne!(server_key(other), server_key("http://localhost:8000"), "{other}");
        }
    }

    #[test]
    fn the_scheme_of_every_form_is_known() {
        for form in crate::FORMS {
            let why = form.parse::<SourceSpec>().err().unwrap_or_default();
            assert!(!why.contains("scheme"), "{form}: {why}");
        }
    }

    #[test]
    fn spans_are_forwarded_to_another_receiver_only() {
        let forwarded = |source: &str, url: &str| {
            let mut source = source.parse::<SourceSpec>().unwrap();
            source.forward_spans(url).map(|()| match source {
                SourceSpec::Otlp(receiver) => receiver.forward_to,
                _ => None,
            })
        };
        let endpoint = Ok(Some("http://otel:4318".to_owned()));
        for url in ["http://otel:4318", "http://otel:4318/", "http://otel:4318/v1/traces"] {
            assert_eq!(forwarded("otlp:127.0.0.1:4317", url), endpoint, "{url}");
        }
        for (source, url, word) in [
            ("otlp:127.0.0.1:4317", "http://localhost:4317", "own spans"),
            ("otlp:127.0.0.1:4317", "otel:4318", "http://HOST:PORT"),
            ("otlp:127.0.0.1:4317", "http://a:b@otel:4318", "password"),
            ("trtllm-serve:http://h", "http://otel:4318", "receives no spans"),
            ("auto", "http://otel:4318", "receives no spans"),
        ] {
            let error = forwarded(source, url).unwrap_err();
            assert!(error.contains(word), "{source} {url}: {error}");
        }
    }

    #[test]
    fn every_kind_of_source_is_parsed() {
        let read = |url: &str| url.parse::<SourceSpec>().unwrap();
        assert_eq!(read("sim:?rate=20"), SourceSpec::Simulated("sim:?rate=20".to_owned()));
        let serve = |target: &str, perf_metrics, prometheus_metrics| SourceSpec::TrtllmServe {
            access: Access { target: target.to_owned(), ca_file: None, bearer_token_file: None },
            extras: Extras { perf_metrics, lines: None, prometheus_metrics, otlp: None },
        };
        assert_eq!(read("trtllm-serve:http://[::1]:8000/"), serve("http://[::1]:8000", true, true));
        assert_eq!(
            read("trtllm-serve:http://gpu7/a/b?perf_metrics=false&prometheus_metrics=false"),
            serve("http://gpu7:80/a/b", false, false)
        );
        let SourceSpec::TrtllmServe { access, .. } = read("trtllm-serve:https://h?ca_file=/a&bearer_token_file=/b")
        else {
            panic!("another kind");
        };
        let file = |path: &str| Some(PathBuf::from(path));
        let expected =
            Access { target: "https://h:443".to_owned(), ca_file: file("/a"), bearer_token_file: file("/b") };
        assert_eq!(access, expected);
        for port in ["99999", "65536", "0", "", "+80", "-1"] {
            let error = format!("trtllm-serve:http://127.0.0.1:{port}").parse::<SourceSpec>().unwrap_err();
            assert!(error.contains(&format!("{port:?}")), "{error}");
        }
        let error = "trtllm-serve:http://h:1/&token=secret".parse::<SourceSpec>().unwrap_err();
        assert!(error.contains("follows a ?") && !error.contains("secret"), "{error}");
        let error = "trtllm-serve:http://[fe80::1%eth0]:8000".parse::<SourceSpec>().unwrap_err();
        assert!(error.contains("the zone %eth0") && error.contains("without a zone"), "{error}");
        let SourceSpec::Orchestrator(access) = read("trtllm-disagg:https://h:8000/?ca_file=/a") else {
            panic!("another kind");
        };
        let expected = Access { target: "https://h:8000".to_owned(), ca_file: file("/a"), bearer_token_file: None };
        assert_eq!(access, expected);
        assert_eq!(read("auto"), SourceSpec::Auto { ports: vec![8000] });
        assert_eq!(read("auto:?ports=8000,9000"), SourceSpec::Auto { ports: vec![8000, 9000] });
        let pods = |selection| SourceSpec::Kubernetes(Box::new(selection));
        assert_eq!(read("kubernetes"), pods(PodSelection::default()));
        let access = Access { target: "https://h:6443".to_owned(), ca_file: file("/a"), bearer_token_file: file("/b") };
        let full = PodSelection {
            namespace: Some("team-a".to_owned()),
            selector: Some("app=llama,tier in (a,b)".to_owned()),
            node: Some("gpu-7".to_owned()),
            all_nodes: false,
            port: Some(9000),
            api_server: Some(access),
        };
        let query = "selector=app%3Dllama%2Ctier%20in%20(a%2Cb)&node=gpu-7&port=9000&api_server=https://h:6443&ca_file=/a&bearer_token_file=/b";
        assert_eq!(read(&format!("kubernetes:team-a?{query}")), pods(full));
        for (url, word) in [
            ("kubernetes:a/b", "namespace"),
            ("kubernetes:?port=0", "port"),
            ("kubernetes:?node=a&all_nodes=true", "all_nodes"),
            ("kubernetes:?selector=", "selector"),
            ("kubernetes:?ca_file=/a", "ca_file"),
            ("kubernetes:?api_server=h:1", "api_server=http://HOST:PORT"),
        ] {
            let error = url.parse::<SourceSpec>().unwrap_err();
            assert!(error.contains(word), "{url}: {error}");
        }
        assert_eq!(read("socket:/run/x.sock"), SourceSpec::Socket("/run/x.sock".into()));
        let at = |address: &str| SpanReceiver { address: address.parse().unwrap(), forward_to: None };
        assert_eq!(read("otlp:localhost:4317"), SourceSpec::Otlp(at("127.0.0.1:4317")));
        assert_eq!(read("otlp:[::]:4318"), SourceSpec::Otlp(at("[::]:4318")));
        let SourceSpec::TrtllmServe { extras, .. } = read("trtllm-serve:http://h?otlp=localhost:4317") else {
            panic!("another kind");
        };
        assert_eq!(extras.otlp, Some(at("127.0.0.1:4317")));
        let error = "trtllm-serve:http://h?otlp=h".parse::<SourceSpec>().unwrap_err();
        assert!(error.contains("otlp=127.0.0.1:4317"), "{error}");
        for address in ["", "4317", "gpu7:4317", "127.0.0.1"] {
            let error = format!("otlp:{address}").parse::<SourceSpec>().unwrap_err();
            assert!(error.contains("otlp:127.0.0.1:4317"), "{error}");
        }
        assert_eq!(
            read("log:/var/log/serve.log"),
            SourceSpec::Log { path: "/var/log/serve.log".into(), from_start: false }
        );
        assert_eq!(read("log:-?from_start=true"), SourceSpec::Log { path: "-".into(), from_start: true });
        assert_eq!(
            read("replay:a.json"),
            SourceSpec::Replay { path: "a.json".into(), engine: None, pace: Pace::Recorded(1.0) }
        );
        assert_eq!(
            read("replay:a?rate=10"),
            SourceSpec::Replay { path: "a".into(), engine: None, pace: Pace::Rate(10.0) }
        );
        assert_eq!(
            read("replay:a?speed=max"),
            SourceSpec::Replay { path: "a".into(), engine: None, pace: Pace::Recorded(f64::INFINITY) }
        );
    }
}
