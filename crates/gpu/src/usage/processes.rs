//! Finds which engine a process belongs to, by reading `/proc`. A process belongs to an engine if it or one of its
//! ancestors publishes for the engine or listens on the port of its server. NVML reports the PIDs of the host, so this
//! works only if this process sees the same PIDs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{EngineClaim, EngineId};

/// Maximum number of a process's ancestors that are followed.
const MOST_ANCESTORS: usize = 64;
/// The inode of the PID namespace of the host, a constant of the kernel (`PROC_PID_INIT_INO`).
const HOST_PIDS: &str = "pid:[4026531836]";

#[derive(Debug)]
pub(super) struct ProcessTable {
    proc: PathBuf,
}

/// The sockets on which each engine's server listens, by inode.
pub(super) type Listeners = Vec<(EngineId, BTreeSet<String>)>;

impl ProcessTable {
    /// Reads processes from `proc`, which is `/proc` outside tests. `None` in a container that has its own PID namespace.
    pub(super) fn of_host(proc: &Path) -> Option<Self> {
        let namespace = fs::read_link(proc.join("self/ns/pid")).ok()?;
        (namespace == Path::new(HOST_PIDS)).then(|| Self { proc: proc.to_owned() })
    }

    pub(super) fn listeners(&self, engines: &[EngineClaim]) -> Listeners {
        if engines.iter().all(|engine| engine.port.is_none()) {
            return Listeners::new();
        }
        let tables = ["self/net/tcp", "self/net/tcp6"];
        let text: String = tables.map(|table| fs::read_to_string(self.proc.join(table)).unwrap_or_default()).concat();
        let of = |engine: &EngineClaim| Some((engine.id, listening(&text, engine.port?)));
        engines.iter().filter_map(of).collect()
    }

    /// Every engine that this process may belong to. Empty if the process has ended or is hidden.
    pub(super) fn engines_of(&self, pid: u32, engines: &[EngineClaim], listeners: &Listeners) -> Vec<EngineId> {
        let mut found = BTreeSet::new();
        for process in self.with_ancestors(pid) {
            let is_of = |engine: &&EngineClaim| engine.pids.contains(&process);
            found.extend(engines.iter().filter(is_of).map(|engine| engine.id));
            if !listeners.is_empty() {
                let sockets = self.sockets(process);
                let listens = |(_, of_engine): &&(EngineId, BTreeSet<String>)| !of_engine.is_disjoint(&sockets);
                found.extend(listeners.iter().filter(listens).map(|(id, _)| *id));
            }
        }
        found.into_iter().collect()
    }

    /// The process, its parent, and so on, without the first process of the host.
    fn with_ancestors(&self, pid: u32) -> Vec<u32> {
        let mut chain = Vec::new();
        let mut next = Some(pid);
        while let Some(pid) = next.filter(|pid| *pid > 1 && chain.len() < MOST_ANCESTORS) {
            let Ok(stat) = fs::read_to_string(self.proc.join(format!("{pid}/stat"))) else { break };
            chain.push(pid);
            next = parent(&stat);
        }
        chain
    }

    /// The inodes of a process's sockets. Empty if they may not be read.
    fn sockets(&self, pid: u32) -> BTreeSet<String> {
        let files = fs::read_dir(self.proc.join(format!("{pid}/fd"))).into_iter().flatten().flatten();
        let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        let inode = |target: PathBuf| Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
        targets.filter_map(inode).collect()
    }
}

/// The parent's PID from `/proc/PID/stat`. The name in parentheses may contain anything.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The inodes of sockets that listen on `port` of any address or of the local address, from `/proc/net/tcp` and `tcp6`.
fn listening(table: &str, port: u16) -> BTreeSet<String> {
    const LISTEN: &str = "0A";
    let inode = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (address, local_port) = fields.nth(1)?.split_once(':')?;
        let state = fields.nth(1)?;
        let is_any = address.bytes().all(|digit| digit == b'0');
        let is_local = address == "0100007F" || address == "00000000000000000000000001000000";
        let is_ours = (is_any || is_local) && state == LISTEN && u16::from_str_radix(local_port, 16) == Ok(port);
        is_ours.then(|| fields.nth(5).map(str::to_owned))?
    };
    table.lines().filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A `/proc` with these processes, each with its parent and its sockets.
    fn table(processes: &[(u32, u32, &[u32])], tcp: &str) -> (tempfile::TempDir, ProcessTable) {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path();
        for (pid, parent, sockets) in processes {
            let fd = proc.join(format!("{pid}/fd"));
            fs::create_dir_all(&fd).unwrap();
            fs::write(proc.join(format!("{pid}/stat")), format!("{pid} (a) b 7 ) S {parent} 1 1 0")).unwrap();
            symlink("/dev/null", fd.join("0")).unwrap();
            for (number, inode) in sockets.iter().enumerate() {
                symlink(format!("socket:[{inode}]"), fd.join((number + 1).to_string())).unwrap();
            }
        }
        fs::create_dir_all(proc.join("self/ns")).unwrap();
        fs::create_dir_all(proc.join("self/net")).unwrap();
        fs::write(proc.join("self/net/tcp"), tcp).unwrap();
        symlink(HOST_PIDS, proc.join("self/ns/pid")).unwrap();
        let table = ProcessTable::of_host(proc).unwrap();
        (folder, table)
    }

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        \x20  0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 501 1 0 100 0 0 10 0\n\
        \x20  1: 00000000:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 502 1 0 100 0 0 10 0\n\
        \x20  2: 0100007F:1F40 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000  1000        0 503 1 0 100 0 0 10 0\n\
        \x20  3: 0A00000A:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 504 1 0 100 0 0 10 0\n";

    #[test]
    fn a_process_belongs_to_the_engine_that_it_or_an_ancestor_publishes_for() {
        let (_folder, table) = table(&[(10, 1, &[]), (11, 10, &[]), (12, 11, &[]), (20, 1, &[])], "");
        let claim = |id, pids: &[u32]| EngineClaim { id, pids: pids.to_vec(), ..EngineClaim::default() };
        let engines = [claim(1, &[11]), claim(2, &[20]), claim(3, &[1, 99])];
        let of = |pid| table.engines_of(pid, &engines, &table.listeners(&engines));
        assert_eq!((of(11), of(12), of(20)), (vec![1], vec![1], vec![2]));
        // These belong to no engine: a parent, a process that has ended, and the first process of the host.
        assert_eq!((of(10), of(99), of(1)), (vec![], vec![], vec![]));
        let both = [claim(1, &[11]), claim(2, &[12])];
        assert_eq!(table.engines_of(12, &both, &Listeners::new()), [1, 2]);
    }

    #[test]
    fn a_process_belongs_to_the_engine_whose_port_it_or_an_ancestor_listens_on() {
        let (_folder, table) = table(&[(10, 1, &[501]), (11, 10, &[]), (20, 1, &[7, 502]), (30, 1, &[503, 504])], TCP);
        let claim = |id, port| EngineClaim { id, port: Some(port), ..EngineClaim::default() };
        let engines = [claim(1, 8000), claim(2, 8001), claim(3, 8002)];
        let of = |pid| table.engines_of(pid, &engines, &table.listeners(&engines));
        assert_eq!((of(10), of(11), of(20), of(30)), (vec![1], vec![1], vec![2], vec![]));
    }

    #[test]
    fn the_pids_of_a_container_are_not_those_that_nvml_reports() {
        let (folder, _table) = table(&[], "");
        let namespace = folder.path().join("self/ns/pid");
        fs::remove_file(&namespace).unwrap();
        assert!(ProcessTable::of_host(folder.path()).is_none());
        symlink("pid:[4026532177]", &namespace).unwrap();
        assert!(ProcessTable::of_host(folder.path()).is_none());
    }
}
