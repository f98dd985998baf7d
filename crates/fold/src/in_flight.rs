//! Whether an engine has unfinished requests. The C++ executor's records are exact. The PyTorch engine counts active requests
//! before the iteration and never reports their end. So its last record before idle may show one active request and none
//! completed: with the overlap scheduler, after an error, or after a request that only had a context phase.
//!
//! So requests are also counted, in three accounts. An account begins with the requests of a record, adds those that
//! start and subtracts those that end. The accounts differ in the source that reports the ends of requests. An empty
//! account makes the record doubtful. It proves nothing, because a server that hangs looks the same for a moment.

use super::health::Outstanding;

/// Unfinished requests of a PyTorch engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    /// Active minus completed, both from the last record.
    by_record: i64,
    /// The account that takes the ends of requests from records.
    by_count: i64,
    /// The account that takes the ends of requests from RequestPerfMetrics.
    pub by_entries: OpenRequests,
    /// The account that takes the ends of requests from the success and error counters of the server.
    pub by_server: OpenRequests,
    /// The numbers are those of rank 0 only. Other ranks may have requests.
    pub one_rank: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenRequests {
    open: i64,
    /// An end was reported at least once.
    used: bool,
}

impl OpenRequests {
    /// An account that is already empty stays empty, because reports may come late.
    pub(crate) fn end(&mut self, requests: u64) {
        self.open = self.open.saturating_sub_unsigned(requests).max(0);
        self.used |= requests > 0;
    }

    fn is_settled(self) -> bool {
        self.used && self.open == 0
    }
}

impl InFlight {
    /// Starts the accounts with the first known record of an engine, which may have written earlier records.
    pub(crate) fn begin(active: i64, completed: u64) -> Self {
        let open = active.saturating_sub_unsigned(completed).max(0);
        let account = OpenRequests { open, used: false };
        Self { by_record: open, by_count: open, by_entries: account, by_server: account, one_rank: false }
    }

    /// Whether fewer requests are active in the next record than the last one left.
    pub(crate) fn lacks(&self, active: i64, started: u64) -> bool {
        active.saturating_sub_unsigned(started) < self.by_record
    }

    /// Continues the accounts with the next record. `known`: no record before it is missing.
    pub(crate) fn record(&mut self, active: i64, started: u64, completed: u64, known: bool) {
        self.by_record = active.saturating_sub_unsigned(completed).max(0);
        self.by_count = if known && active.saturating_sub_unsigned(started) > 0 {
            self.by_count.saturating_add_unsigned(started).saturating_sub_unsigned(completed).max(0)
        } else {
            self.by_record
        };
        for account in [&mut self.by_entries, &mut self.by_server] {
            account.open = if self.by_record == 0 { 0 } else { account.open.saturating_add_unsigned(started) };
        }
    }

    /// Whether requests are left after the last record.
    pub(crate) fn outstanding(&self) -> Outstanding {
        if self.by_record == 0 && !self.one_rank {
            Outstanding::No
        } else if self.by_record == 0
            || self.by_count == 0
            || self.by_entries.is_settled()
            || self.by_server.is_settled()
        {
            Outstanding::Doubtful
        } else {
            Outstanding::Yes
        }
    }

    /// Whether the next record may contain a wait for work. The accounts of entries and of the server are too late for this.
    pub(crate) fn may_be_idle(&self) -> bool {
        self.by_record == 0 || self.by_count == 0
    }
}
