//! A host that runs out of disk space, threads or memory while the daemon works.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::getuid;

use super::engine::{Answer, Engine, RESET};
use super::scene::Scene;
use crate::support;
use crate::support::daemon::{BINARY, Launch};
use crate::support::page::Page;
use crate::support::standin::Standin;
use crate::support::{ensure, until};

/// The command that starts a program in its own mount namespace, where a test may mount file systems. `None` if this
/// machine does not allow that.
fn unshare() -> Option<Vec<&'static str>> {
    let program = match getuid().is_root() {
        true => vec!["unshare", "--mount"],
        false => vec!["unshare", "--mount", "--map-root-user"],
    };
    let tried = Command::new(program[0]).args(&program[1..]).args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
    if tried.is_ok_and(|output| output.status.success()) {
        return Some(program);
    }
    println!("skipped: this machine does not allow tests to mount a file system");
    None
}

#[test]
fn a_log_on_a_full_disk_stops_nothing_and_goes_on_when_there_is_space() {
    let Some(unshare) = unshare() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display().to_string();
    let script = format!("mount -t tmpfs -o size=64k tmpfs {at}; exec \"$@\" 2>{at}/log");
    let scene = Scene::start_behind(&[&unshare[..], &["bash", "-c", &script, "bash"]].concat(), &[]);
    // The file system is mounted only in the daemon's mount namespace, so the test reaches it through /proc.
    let inside = PathBuf::from(format!("/proc/{}/root{at}", scene.daemon.id()));
    let log = || fs::read_to_string(inside.join("log")).unwrap();
    let dropped = || scene.daemon.page().count("trtllm_exporter_log_lines_dropped_total", &[]);
    assert_eq!(dropped(), 0);
    let mut fill = fs::File::create(inside.join("fill")).unwrap();
    while fill.write_all(&[0; 1024]).is_ok() {}
    // The disk is full, but the last memory page of the log still has room for some lines.
    let mut models = 0;
    while dropped() == 0 {
        models += 1;
        let hello = format!("{{\"hello\":{{\"model\":\"{}-{models}\"}}}}\n", "m".repeat(40));
        scene.socket.connect().write_all(hello.as_bytes()).unwrap();
        scene.daemon.signal("HUP");
        assert!(models < 10_000, "{}", log());
    }
    let unreadable = |counted: &str, more: u64| counted == "not_json 1" && more == 0;
    scene.fault("disk", "no space for the log", &unreadable, |scene| {
        scene.answer("/metrics", Answer::Body(b"nonsense".to_vec()));
    });
    fs::remove_file(inside.join("fill")).unwrap();
    drop(fill);
    let before = log().len();
    scene.daemon.signal("HUP");
    until(|| ensure(log().len() > before, || "nothing is logged any more".to_owned()));
    scene.finish();
}

/// A copy of the binary in a folder where every user can run it, because the build folder may be private.
fn public_binary(folder: &Path) -> String {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.join("trtllm-exporter");
    fs::copy(BINARY, &copy).unwrap();
    copy.display().to_string()
}

/// The command that runs a program as a user without other processes. The limit of processes does not apply to root.
fn as_user(id: u32) -> Vec<String> {
    let words = ["setpriv".to_owned(), format!("--reuid={id}"), format!("--regid={id}"), "--clear-groups".to_owned()];
    if getuid().is_root() { words.to_vec() } else { vec!["env".to_owned()] }
}

/// Apart from one thread per GPU, 16 threads are enough. With fewer, GPUs without a thread are reported, and everything
/// else works.
#[test]
fn with_few_threads_some_gpus_are_unknown_and_engines_are_read() {
    const GPUS: usize = 4;
    let folder = tempfile::tempdir().unwrap();
    let binary = public_binary(folder.path());
    let standin = Standin::new(&format!("gpus={GPUS}\n"));
    let library = folder.path().join("libnvidia-ml.so");
    fs::copy(standin.library(), &library).unwrap();
    fs::write(folder.path().join("libnvidia-ml.so.state"), format!("gpus={GPUS}\n")).unwrap();
    let engine = Engine::start();
    let gpus = |page: &Page| page.series.iter().filter(|(series, _)| series.starts_with("nv_gpu_utilization{")).count();
    let is_enough = 16 + GPUS;
    // Test this only as root. Otherwise the daemon runs as the user of the tests, whose other processes count as well.
    let limits = if getuid().is_root() { &[10, is_enough][..] } else { &[][..] };
    for &threads in limits {
        let limit = ["prlimit".to_owned(), format!("--nproc={threads}"), binary.clone()];
        let launch = Launch::program(&[as_user(65_531), limit.to_vec()].concat());
        let library = library.to_str().unwrap();
        let daemon = launch.start(&["--source", &engine.source(), "--gpu", "required", "--gpu.library", library]);
        let page = daemon.until(|page| {
            let counted = page.find("nv_trt_llm_iterations_total", &[]).unwrap_or_default();
            let named = daemon.logged(&["cannot start the thread of a GPU"]);
            let all = gpus(page) + named;
            ensure(counted > 10.0 && all == GPUS, || format!("{counted} iterations, {all} GPUs: {}", daemon.stderr()))
        });
        assert_eq!(gpus(&page) == GPUS, threads == is_enough, "{threads}: {}", daemon.stderr());
        assert_eq!(daemon.logged(&["no readable UUID"]), 0, "{}", daemon.stderr());
        println!("threads      at most {threads}: {} of {GPUS} GPUs", gpus(&page));
    }
}

#[test]
fn an_engine_whose_name_cannot_be_looked_up_for_lack_of_threads_comes_back_and_disturbs_no_other() {
    let words = as_user(65_534);
    let program: &[&str] = &words.iter().map(String::as_str).collect::<Vec<_>>();
    let folder = tempfile::tempdir().unwrap();
    let binary = public_binary(folder.path());
    let (named, healthy) = (Engine::start(), Engine::start());
    let by_name = named.source().replace("127.0.0.1", "localhost");
    let arguments = ["--source", &by_name, "--model", "named", "--source", &healthy.source(), "--model", "healthy"];
    let daemon = Launch::program(&[program, &[&binary]].concat()).start(&arguments);
    let count = |name: &str, model: &str| daemon.page().find(name, &[&format!("model={model}")]).unwrap_or_default();
    until(|| ensure(count("nv_trt_llm_iterations_total", "named") > 2.0, || "no iterations".to_owned()));

    // A process may change the limits of another process of the same user.
    let id = daemon.id().to_string();
    let limits = fs::read_to_string(format!("/proc/{id}/limits")).unwrap();
    let unlimited = limits.lines().find_map(|line| line.strip_prefix("Max processes")).unwrap();
    let unlimited = unlimited.split_whitespace().nth(1).unwrap();
    let limit = |processes: &str| {
        let limit = format!("--nproc={processes}:");
        let command = [program, &["prlimit", "--pid", &id, &limit]].concat();
        assert!(Command::new(command[0]).args(&command[1..]).status().unwrap().success());
    };
    limit("1");
    // The thread that made the first DNS lookup ends after ten idle seconds. Two threads of the runtime remain.
    until(|| {
        let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let threads = tasks.map(name).filter(|name| name.starts_with("tokio")).count();
        ensure(threads <= 2, || format!("{threads} threads of the runtime"))
    });
    // The engine closes its connection, so its host name is resolved again.
    named.set(RESET, Answer::Body(Vec::new()));
    let restarts = || daemon.page().find("trtllm_exporter_task_restarts_total", &["task=poll"]).unwrap_or_default();
    until(|| ensure(restarts() >= 20.0, || "the look-up has a thread".to_owned()));
    assert!(daemon.stderr().lines().count() <= 20, "one line a poll");
    assert_eq!(count("trtllm_exporter_source_up", "named"), 0.0);
    for path in ["/healthz", "/metrics"] {
        assert_eq!(daemon.get(path).status, 200, "{path}");
    }
    let before = count("nv_trt_llm_iterations_total", "healthy");
    until(|| ensure(count("nv_trt_llm_iterations_total", "healthy") > before, || "no progress".to_owned()));
    assert_eq!(count("trtllm_exporter_source_up", "healthy"), 1.0);
    limit(unlimited);
    until(|| ensure(count("trtllm_exporter_source_up", "named") == 1.0, || "still without the engine".to_owned()));
    named.pause(true);
    until(|| {
        let (counted, sent) = (count("nv_trt_llm_iterations_total", "named"), named.handed_out());
        ensure(counted == sent as f64, || format!("{counted} counted, {sent} sent"))
    });
    println!("threads      none for {} look-ups, {} log lines", restarts(), daemon.stderr().lines().count());
}

/// A memory control group, which limits the memory of its processes. It is removed when this value is dropped.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(limit: u64) -> Option<Self> {
        let name = format!("trtllm-exporter-test-{}", std::process::id());
        for (root, file) in [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")] {
            let group = Self(Path::new(root).join(&name));
            if fs::create_dir(&group.0).is_ok() && fs::write(group.0.join(file), limit.to_string()).is_ok() {
                return Some(group);
            }
        }
        println!("skipped: this machine does not allow tests to limit memory");
        None
    }

    fn add(&self, process: u32) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn within_the_memory_of_the_kubernetes_example_hostile_peers_do_not_get_it_killed() {
    let Some(group) = MemoryGroup::new(128 << 20) else { return };
    let scene = Scene::start(&["--poll.timeout", "60s", "--stale-after", "1h"]);
    group.add(scene.daemon.id());
    let rejected = |counted: &str, more: u64| counted.starts_with("not_a_record ") && more == 0;
    let count = if support::long() { 4_000_000 } else { 1_000_000 };
    let objects = format!("[{}{{}}]", "{},".repeat(count - 1)).into_bytes();
    scene.fault("memory", "millions of empty objects", &rejected, |scene| {
        scene.answer("/metrics", Answer::Body(objects.clone()));
    });
    let lines = |counted: &str, more: u64| counted == "not_json 50" && more == 0;
    scene.fault("memory", "fifty lines of a megabyte at once", &lines, |scene| {
        let line = [&vec![b'x'; (1 << 20) - 1][..], b"\n"].concat();
        std::thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| scene.publish(&line));
            }
        });
    });
    // Checks that the daemon still runs. The control group is removed after its process has ended.
    scene.finish();
    drop(group);
}
