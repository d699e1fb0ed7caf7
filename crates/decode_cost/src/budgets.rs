//! Budgets of the decoders. `fuzz/README.md` shows the same table.

use crate::Cost;

/// Maximum cost of a decoder: a fixed part and a factor of the length of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub target: &'static str,
    /// Memory that is held at a time: fixed part in KiB.
    pub memory_kib: u64,
    /// Memory that is held at a time, in bytes per byte of input.
    pub memory_factor: u64,
    /// Sum of the allocations, in bytes per byte of input, besides eight times the fixed part of the memory.
    pub allocated_factor: u64,
    /// CPU time, in steps per byte of input, besides `STEPS_BASE` and one step for each byte of the fixed part
    /// of the memory.
    pub steps_factor: u64,
}

/// Steps that any input may take: calls, caches, and tables.
const STEPS_BASE: u64 = 200_000;

/// All budgets, in the order of the table.
pub const BUDGETS: &[Budget] = &[
    budget("request_head", 4, 1, 1, 3_000),
    budget("response_head", 4, 1, 1, 3_000),
    budget("chunked_body", 16, 4, 8, 100),
    budget("websocket", 16, 4, 16, 200),
    budget("event_stream", 16, 4, 16, 200),
    budget("proxy_header", 4, 1, 64, 400),
    budget("h2_server", 512, 30, 8_000, 8_000),
    budget("h2_client", 512, 30, 8_000, 8_000),
    budget("hpack", 256, 30, 16_000, 8_000),
    budget("differential", 64, 30, 200, 1_000),
    budget("forward_request", 64, 30, 300, 6_000),
    budget("forward_response", 64, 30, 300, 3_000),
    budget("proxy_target", 16, 30, 200, 1_000),
    budget("client_hello", 4, 8, 16, 100),
    budget("dns_answer", 16, 24, 100, 1_000),
    budget("dns_update", 16, 64, 300, 2_000),
    budget("tsig_key", 16, 64, 200, 1_000),
    budget("acme_response", 16, 8, 40, 4_000),
    budget("certificate", 4, 30, 100, 200),
    budget("ocsp_response", 16, 16, 32, 200),
    budget("replay_log", 16, 30, 200, 1_500),
    budget("histogram", 3_072, 8, 8, 100),
    budget("run_record", 12_288, 30, 200, 1_500),
    budget("fleet_message", 3_072, 30, 200, 1_500),
    budget("nats_server", 64, 30, 200, 1_500),
    budget("proxy_config", 1_024, 100, 2_000, 10_000),
    budget("proxy_template", 1_024, 100, 2_000, 10_000),
    budget("proxy_condition", 1_024, 100, 2_000, 10_000),
    budget("proxy_auth", 64, 200, 800, 20_000),
    budget("proxy_map", 16, 100, 400, 3_000),
    budget("user_tcp_frames", 1_024, 30, 2_000, 20_000),
    budget("proxy_import", 32_768, 2_000, 20_000, 60_000),
    budget("proxy_sources", 1_024, 100, 2_000, 10_000),
    budget("cache_policy", 32, 16, 200, 3_000),
    budget("cache_file", 16, 16, 64, 400),
    budget("toml_format", 64, 600, 2_000, 10_000),
];

const fn budget(
    target: &'static str,
    memory_kib: u64,
    memory_factor: u64,
    allocated_factor: u64,
    steps_factor: u64,
) -> Budget {
    Budget { target, memory_kib, memory_factor, allocated_factor, steps_factor }
}

impl Budget {
    /// Returns the budget of a fuzz target.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn of(target: &str) -> &'static Self {
        let found = BUDGETS.iter().find(|budget| budget.target == target);
        // Invariant: a test compares the fuzz targets with the table.
        found.expect("each target has a budget in decode_cost::BUDGETS")
    }

    /// Returns why a cost is above the budget of an input of this length.
    pub(crate) fn excess(&self, input_bytes: usize, cost: Cost) -> Option<String> {
        let input_bytes = input_bytes as u64;
        let fixed_bytes = self.memory_kib * 1024;
        let memory_max = fixed_bytes + self.memory_factor * input_bytes;
        let allocated_max = 8 * fixed_bytes + self.allocated_factor * input_bytes;
        let steps_max = STEPS_BASE + fixed_bytes + self.steps_factor * input_bytes;
        let rows = [
            ("bytes of memory", cost.peak_bytes, memory_max),
            ("bytes allocated", cost.allocated_bytes, allocated_max),
            ("steps", cost.steps, steps_max),
            ("bytes of memory after the end", cost.kept_bytes, 0),
        ];
        let excess = rows.into_iter().find(|(_, actual, max)| actual > max);
        excess.map(|(unit, actual, max)| {
            format!("{actual} {unit} for {input_bytes} bytes of input; the limit is {max}")
        })
    }
}
