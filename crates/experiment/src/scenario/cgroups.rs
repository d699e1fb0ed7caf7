//! Control groups of a run: the directories to make, and the settings to write. No I/O.
//!
//! Each program has its own group, so that all processes that it starts can be found again. The
//! group is in the cgroup v2 hierarchy if that is mounted (it has pressure figures too). Quotas are
//! set in the hierarchy that has the controller.

use std::path::{Path, PathBuf};

use host::sandbox::cgroup::CgroupHierarchies;

use super::errors::TestbedError;
use super::plan::CpuQuota;

/// Control group to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupSetup {
    pub path: PathBuf,
    pub settings: Vec<(&'static str, String)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CgroupLimits {
    pub cpu: Option<CpuQuota>,
    /// Bytes per second written to a device, with its numbers (`254:0`).
    pub disk: Option<(u64, (u32, u32))>,
    pub memory: Option<u64>,
}

/// Returns the groups of the program `name`.
///
/// # Errors
/// No hierarchy has the controller of a requested limit.
pub fn cgroup_setups(
    hierarchies: &CgroupHierarchies,
    name: &str,
    bounds: CgroupLimits,
) -> Result<Vec<CgroupSetup>, TestbedError> {
    let mut groups = Vec::new();
    let base = hierarchies.unified.as_deref().or_else(|| {
        let any = ["freezer", "pids", "cpu"];
        any.into_iter().find_map(|controller| hierarchies.v1_mount(controller))
    });
    if let Some(base) = base {
        groups.push(CgroupSetup { path: base.join(name), settings: Vec::new() });
    }
    if let Some(quota) = bounds.cpu {
        let period_us = quota.period_ns / 1000;
        let quota_us = (quota.cpus * period_us as f64).round() as u64;
        let first =
            vec![("cpu.cfs_period_us", period_us.to_string()), ("cpu.cfs_quota_us", quota_us.to_string())];
        let second = vec![("cpu.max", format!("{quota_us} {period_us}"))];
        add_cgroup(hierarchies, name, "cpu", (first, second), &mut groups)?;
    }
    if let Some((bytes_per_s, (major, minor))) = bounds.disk {
        let first = vec![("blkio.throttle.write_bps_device", format!("{major}:{minor} {bytes_per_s}"))];
        let second = vec![("io.max", format!("{major}:{minor} wbps={bytes_per_s}"))];
        let controller = if hierarchies.has_unified_controller("io") { "io" } else { "blkio" };
        add_cgroup(hierarchies, name, controller, (first, second), &mut groups)?;
    }
    if let Some(bytes) = bounds.memory {
        let first = vec![("memory.limit_in_bytes", bytes.to_string())];
        let second = vec![("memory.max", bytes.to_string())];
        add_cgroup(hierarchies, name, "memory", (first, second), &mut groups)?;
    }
    Ok(groups)
}

type Settings = Vec<(&'static str, String)>;

fn add_cgroup(
    hierarchies: &CgroupHierarchies,
    name: &str,
    controller: &'static str,
    (first, second): (Settings, Settings),
    groups: &mut Vec<CgroupSetup>,
) -> Result<(), TestbedError> {
    let (base, settings): (&Path, Settings) = match (hierarchies.v1_mount(controller), &hierarchies.unified) {
        (Some(place), _) => (place, first),
        (None, Some(place)) if hierarchies.has_unified_controller(controller) => (place, second),
        _ => {
            return Err(TestbedError::NoController(controller));
        }
    };
    let path = base.join(name);
    match groups.iter_mut().find(|group| group.path == path) {
        Some(group) => group.settings.extend(settings),
        None => groups.push(CgroupSetup { path, settings }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::sandbox::cgroup::parse_hierarchies;

    const QUOTA: CpuQuota = CpuQuota { cpus: 0.3, period_ns: 100_000_000 };

    #[test]
    fn the_first_version_has_a_group_a_controller() {
        let hierarchies = parse_hierarchies(
            "1 0 0:1 / /c/cpu rw - cgroup cgroup rw,cpu\n2 0 0:2 / /c/io rw - cgroup cgroup rw,blkio\n\
             3 0 0:3 / /c/u rw - cgroup2 cgroup2 rw\n",
        );
        let bounds = CgroupLimits { cpu: Some(QUOTA), disk: Some((2 << 20, (254, 0))), memory: None };
        let groups = cgroup_setups(&hierarchies, "weir-1", bounds).unwrap();
        assert_eq!(groups[0], CgroupSetup { path: "/c/u/weir-1".into(), settings: vec![] });
        assert_eq!(groups[1].settings[1], ("cpu.cfs_quota_us", "30000".to_owned()));
        assert_eq!(groups[2].settings[0].1, "254:0 2097152");
    }

    #[test]
    fn the_second_version_has_one_for_all() {
        let mut hierarchies = parse_hierarchies("3 0 0:3 / /c rw - cgroup2 cgroup2 rw\n");
        let bounds = CgroupLimits { cpu: Some(QUOTA), disk: Some((100, (8, 16))), memory: None };
        assert!(cgroup_setups(&hierarchies, "weir-1", bounds).unwrap_err().to_string().contains("'cpu'"));
        hierarchies.unified_controllers = vec!["cpu".to_owned(), "io".to_owned()];
        let groups = cgroup_setups(&hierarchies, "weir-1", bounds).unwrap();
        assert_eq!(groups.len(), 1);
        let settings = [("cpu.max", "30000 100000".to_owned()), ("io.max", "8:16 wbps=100".to_owned())];
        assert_eq!(groups[0].settings, settings);
    }
}
