use super::*;

const HOUR: Duration = Duration::from_secs(3600);

struct Fixture {
    names: Arc<Names>,
    socket: Socket,
    joined: mpsc::UnboundedReceiver<Joined>,
}

fn fixture() -> Fixture {
    let (sender, joined) = mpsc::unbounded_channel();
    let names = Names::new(HOUR, sender);
    let socket = names.socket("tensorrt_llm");
    Fixture { names, socket, joined }
}

fn hello(model: &str, version: &str, pid: u64) -> Hello {
    let text = |text: &str| Some(text.to_owned());
    Hello { model: text(model), version: text(version), pid: Some(pid), derived: false, ..Hello::default() }
}

fn publisher() -> Arc<Publisher> {
    Publisher::new(0)
}

fn derived(model: &str, pid: u64) -> Hello {
    Hello { derived: true, ..hello(model, "", pid) }
}

impl Socket {
    fn claims(&self, hello: Option<&Hello>) -> Result<Registration, Refused> {
        self.try_claim(&RequestedName::of(hello, self.default_model)?, &publisher(), false)
    }

    /// A publisher that sends its hello only.
    async fn waits(&self, hello: &Hello) -> Result<Registration, Refused> {
        self.claim(Some(hello), &publisher(), std::future::pending()).await
    }
}

impl Fixture {
    fn claim(&self, hello: &Hello) -> Registration {
        self.socket.claims(Some(hello)).unwrap()
    }

    fn joined(&mut self) -> Vec<String> {
        let names = std::iter::from_fn(|| self.joined.try_recv().ok());
        names.map(|joined| format!("{} {}", joined.name.0, joined.name.1)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn an_explicit_name_belongs_to_its_connection_until_that_ends() {
    let mut fixture = fixture();
    let first = fixture.claim(&hello("llama", "1", 1));
    let other = fixture.claim(&hello("llama", "2", 1));
    assert_eq!(fixture.joined(), ["llama 1", "llama 2"]);
    let refused = fixture.socket.waits(&hello("llama", "1", 1)).await.unwrap_err();
    assert_eq!(refused.reason(), PublisherRefusal::Name);
    assert!(refused.to_string().contains("belongs to another publisher"), "{refused}");
    // A process may connect again before the exporter notices that its last connection has ended.
    let name = hello("llama", "1", 1);
    let (again, ()) = tokio::join!(fixture.socket.waits(&name), async {
        tokio::time::sleep(PATIENCE / 2).await;
        drop(first);
    });
    assert!(!Arc::ptr_eq(&again.unwrap().inbox, &other.inbox));
    assert_eq!(fixture.joined(), [""; 0], "it continues the same engine");
}

#[tokio::test(start_paused = true)]
async fn derived_names_take_the_lowest_free_version() {
    let mut fixture = fixture();
    let registrations = [1, 2, 3].map(|pid| fixture.claim(&derived("llama", pid)));
    assert_eq!(fixture.joined(), ["llama 1", "llama 2", "llama 3"]);
    let [first, second, third] = registrations.each_ref().map(|registration| Arc::clone(&registration.inbox));
    let at = |registration: Registration| {
        [&first, &second, &third].iter().position(|inbox| Arc::ptr_eq(inbox, &registration.inbox))
    };
    drop(registrations);
    assert_eq!(at(fixture.claim(&derived("llama", 3))), Some(2), "the same process has its old name");
    assert_eq!(at(fixture.claim(&derived("llama", 4))), Some(0), "another one the lowest");
    fixture.names.configure([("other".to_owned(), "1".to_owned())].into(), &Ending::default()).unwrap();
    let _other = fixture.claim(&derived("other", 5));
    assert_eq!(fixture.joined(), ["other 2"], "version 1 is configured");
}

#[tokio::test]
async fn connections_without_a_hello_share_one_name() {
    let mut fixture = fixture();
    let one = fixture.socket.claims(None).unwrap();
    let other = fixture.socket.claims(None).unwrap();
    assert!(Arc::ptr_eq(&one.inbox, &other.inbox));
    let nameless = Hello { model: None, ..derived("", 7) };
    let _derived = fixture.claim(&nameless);
    assert_eq!(fixture.joined(), ["tensorrt_llm 1", "tensorrt_llm 2"]);
    drop(one);
    assert_eq!(other.inbox.connections(), 1);
    assert!(fixture.socket.claims(Some(&hello("tensorrt_llm", "1", 8))).is_err());
    drop(other);
    let _taken = fixture.claim(&hello("tensorrt_llm", "1", 8));
    let _third = fixture.socket.claims(None).unwrap();
    assert_eq!(fixture.joined(), ["tensorrt_llm 3"]);
}

#[tokio::test]
async fn names_of_the_configuration_and_of_other_sockets_are_taken() {
    let fixture = fixture();
    let configured = |model: &str| HashSet::from([(model.to_owned(), "1".to_owned())]);
    let stay = Ending::default();
    fixture.names.configure(configured("mixtral"), &stay).unwrap();
    let by = |socket: &Socket, model| socket.claims(Some(&hello(model, "1", 1))).unwrap_err().to_string();
    assert!(by(&fixture.socket, "mixtral").contains("an engine of the configuration"));
    let registration = fixture.claim(&hello("llama", "1", 1));
    let other = fixture.names.socket("tensorrt_llm");
    assert!(by(&other, "llama").contains("an engine of another socket"));
    let taken = fixture.names.configure(configured("llama"), &stay).unwrap_err();
    assert!(taken.to_string().contains("publishes on a socket"), "{taken}");
    let found = fixture.names.discovered("qwen");
    let taken = fixture.names.configure(configured("qwen"), &stay).unwrap_err();
    assert!(taken.to_string().contains("has found"), "{taken}");
    // An engine that ends with the same reload does not keep its name.
    let discovered = HashSet::from([("qwen".to_owned(), found)]);
    let ending = Ending { sockets: [fixture.socket.id()].into(), discovered };
    fixture.names.configure(configured("qwen"), &ending).unwrap();
    fixture.names.configure(configured("llama"), &ending).unwrap();
    fixture.names.configure(configured("mixtral"), &stay).unwrap();
    drop((registration, fixture.socket));
    other.claims(Some(&hello("llama", "1", 1))).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_long_name_is_cut_where_discovery_cuts_it() {
    let mut fixture = fixture();
    let long = |folder: &str| format!("/mnt/{}/{folder}", "x".repeat(80));
    let first = fixture.claim(&hello(&long("llama"), "1", 1));
    let _second = fixture.claim(&hello(&long("mixtral"), "1", 2));
    let _longest = fixture.claim(&hello(&"y".repeat(100), &"2".repeat(70), 3));
    let cut = format!("{} {}", "y".repeat(64), "2".repeat(64));
    assert_eq!(fixture.joined(), ["llama 1", "mixtral 1", &cut]);
    // Another model with the same folder. An explicit name is taken, and a derived one gets another version.
    let refused =
        fixture.socket.claims(Some(&hello(&long("x/llama"), "1", 4))).err().map(|refused| refused.to_string());
    assert!(refused.as_deref().is_some_and(|text| text.contains("belongs to another publisher")), "{refused:?}");
    let _derived = fixture.claim(&derived(&long("z/llama"), 5));
    assert_eq!(fixture.joined(), ["llama 2"]);
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn a_silent_publisher_loses_its_name_to_one_that_has_more_to_send() {
    const SECOND: Duration = Duration::from_secs(1);
    let name = hello("llama", "1", 1);
    // When the owner sends lines, whether the other one has more than its hello, and when that gets the name. It asks after 4 s.
    for (lines, has_more, expected) in [
        (0..0, true, Some(10)),
        (0..0, false, None),
        (0..7, true, None),
        (6..7, true, Some(16)),
        (6..30, true, None),
        (0..30, true, None),
        (0..30, false, None),
    ] {
        let mut fixture = fixture();
        let started = Instant::now();
        let (owner, other) = (publisher(), publisher());
        let requested = RequestedName::of(Some(&name), "tensorrt_llm").unwrap();
        let first = fixture.socket.try_claim(&requested, &owner, false).unwrap();
        let talking = async {
            tokio::time::sleep(lines.start * SECOND).await;
            for _ in lines.clone() {
                owner.line_received();
                tokio::time::sleep(SECOND).await;
            }
        };
        let claiming = async {
            tokio::time::sleep(4 * SECOND + SECOND / 2).await;
            let claimed = fixture.socket.claim(Some(&name), &other, std::future::ready(has_more)).await;
            (claimed, started.elapsed().as_secs())
        };
        let ((claimed, at), ()) = tokio::join!(claiming, talking);
        assert_eq!(claimed.as_ref().ok().map(|_| at), expected, "{lines:?} {has_more}");
        assert_eq!(fixture.joined(), ["llama 1"]);
        let Ok(again) = claimed else {
            assert!(at <= 10, "it waited until {at} s");
            continue;
        };
        assert!(Arc::ptr_eq(&again.inbox, &first.inbox), "it continues the same engine");
        // The end of the first connection does not free the name of the second one.
        drop(first);
        assert!(fixture.socket.claims(Some(&name)).is_err());
    }
}
