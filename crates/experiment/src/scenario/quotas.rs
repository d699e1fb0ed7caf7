//! `scenario.cpu-quota`: quotas of the nodes and of the subject's child processes.

use std::collections::BTreeMap;

use record::document::Problems;
use record::document::table::TableValues;

use super::plan::{CpuQuota, Node};
use super::read::by_node;

const QUOTA_PERIOD_DEFAULT_NS: u64 = 100_000_000;
/// Minimum quota that groups accept, as a fraction of a CPU.
const QUOTA_CPUS_MIN: f64 = 0.01;

pub(super) fn read_quotas(values: &TableValues, problems: &mut Problems) -> BTreeMap<Node, CpuQuota> {
    let quotas = by_node(values, "cpu-quota", |table, name| {
        let period_ns = table.integer("period").unwrap_or(QUOTA_PERIOD_DEFAULT_NS);
        table.decimal(name).map(|cpus| CpuQuota { cpus, period_ns })
    });
    check_quotas(quotas.values(), values, problems);
    quotas
}

pub(super) fn read_workers_quota(values: &TableValues, problems: &mut Problems) -> Option<CpuQuota> {
    let table = values.table("cpu-quota")?;
    let period_ns = table.integer("period").unwrap_or(QUOTA_PERIOD_DEFAULT_NS);
    let quota = CpuQuota { cpus: table.decimal("workers")?, period_ns };
    check_quotas([&quota], values, problems);
    Some(quota)
}

fn check_quotas<'a>(
    quotas: impl IntoIterator<Item = &'a CpuQuota>,
    values: &TableValues,
    problems: &mut Problems,
) {
    let fits = |quota: &CpuQuota| {
        // Limits of the kernel: periods of 1 ms to 1 s, and at least 1 ms in each.
        let ms = 1_000_000..=1_000_000_000;
        ms.contains(&quota.period_ns)
            && quota.cpus >= QUOTA_CPUS_MIN
            && quota.cpus * quota.period_ns as f64 >= 1e6
    };
    if !quotas.into_iter().all(fits) {
        let text = "a quota requires a period of 1ms to 1s, and at least 1ms of CPU time in it";
        problems.add_error(values.offset_of("cpu-quota"), text);
    }
}
