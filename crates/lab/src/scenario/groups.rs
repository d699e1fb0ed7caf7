//! The control groups of a run: which folders to make, and what to write into them. Pure.
//!
//! Each program is in a group of its own, so that all that it starts can be found again. Where the
//! second version of groups is mounted that group is there (it has pressure figures too); quotas are
//! set in whichever version has the controller.

use std::path::{Path, PathBuf};

use host::setup::group::Hierarchies;

use super::plan::CpuQuota;

/// A group to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its folder.
    pub path: PathBuf,
    /// Files in it and what to write into each.
    pub settings: Vec<(&'static str, String)>,
}

/// What a group has to bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Processor time.
    pub cpu: Option<CpuQuota>,
    /// Bytes per second written to a device, with its numbers (`254:0`).
    pub disk: Option<(u64, (u32, u32))>,
    /// Bytes of memory.
    pub memory: Option<u64>,
}

/// The groups of one program, called `name`.
///
/// # Errors
/// A quota was asked for and no hierarchy has its controller; in words.
pub fn groups(found: &Hierarchies, name: &str, bounds: Bounds) -> Result<Vec<Group>, String> {
    let mut groups = Vec::new();
    let place = found.unified.as_deref().or_else(|| {
        let any = ["freezer", "pids", "cpu"];
        any.into_iter().find_map(|controller| found.controller(controller))
    });
    if let Some(place) = place {
        groups.push(Group { path: place.join(name), settings: Vec::new() });
    }
    if let Some(quota) = bounds.cpu {
        let period_us = quota.period_ns / 1000;
        let quota_us = (quota.cpus * period_us as f64).round() as u64;
        let first = vec![
            ("cpu.cfs_period_us", period_us.to_string()),
            ("cpu.cfs_quota_us", quota_us.to_string()),
        ];
        let second = vec![("cpu.max", format!("{quota_us} {period_us}"))];
        add(found, name, "cpu", (first, second), &mut groups)?;
    }
    if let Some((bytes_per_s, (major, minor))) = bounds.disk {
        let first =
            vec![("blkio.throttle.write_bps_device", format!("{major}:{minor} {bytes_per_s}"))];
        let second = vec![("io.max", format!("{major}:{minor} wbps={bytes_per_s}"))];
        let controller = if found.is_unified("io") { "io" } else { "blkio" };
        add(found, name, controller, (first, second), &mut groups)?;
    }
    if let Some(bytes) = bounds.memory {
        let first = vec![("memory.limit_in_bytes", bytes.to_string())];
        let second = vec![("memory.max", bytes.to_string())];
        add(found, name, "memory", (first, second), &mut groups)?;
    }
    Ok(groups)
}

type Settings = Vec<(&'static str, String)>;

fn add(
    found: &Hierarchies,
    name: &str,
    controller: &str,
    (first, second): (Settings, Settings),
    groups: &mut Vec<Group>,
) -> Result<(), String> {
    let (place, settings): (&Path, Settings) = match (found.controller(controller), &found.unified)
    {
        (Some(place), _) => (place, first),
        (None, Some(place)) if found.is_unified(controller) => (place, second),
        _ => {
            return Err(format!(
                "no control group can bound this here: the controller '{controller}' is neither \
                 mounted nor in cgroup.subtree_control of the unified hierarchy"
            ));
        }
    };
    let path = place.join(name);
    match groups.iter_mut().find(|group| group.path == path) {
        Some(group) => group.settings.extend(settings),
        None => groups.push(Group { path, settings }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::setup::group::parse_hierarchies;

    const QUOTA: CpuQuota = CpuQuota { cpus: 0.3, period_ns: 100_000_000 };

    #[test]
    fn the_first_version_has_a_group_a_controller() {
        let found = parse_hierarchies(
            "1 0 0:1 / /c/cpu rw - cgroup cgroup rw,cpu\n2 0 0:2 / /c/io rw - cgroup cgroup rw,blkio\n\
             3 0 0:3 / /c/u rw - cgroup2 cgroup2 rw\n",
        );
        let bounds = Bounds { cpu: Some(QUOTA), disk: Some((2 << 20, (254, 0))), memory: None };
        let groups = groups(&found, "weir-1", bounds).unwrap();
        assert_eq!(groups[0], Group { path: "/c/u/weir-1".into(), settings: vec![] });
        assert_eq!(groups[1].settings[1], ("cpu.cfs_quota_us", "30000".to_owned()));
        assert_eq!(groups[2].settings[0].1, "254:0 2097152");
    }

    #[test]
    fn the_second_version_has_one_for_all() {
        let mut found = parse_hierarchies("3 0 0:3 / /c rw - cgroup2 cgroup2 rw\n");
        let bounds = Bounds { cpu: Some(QUOTA), disk: Some((100, (8, 16))), memory: None };
        assert!(groups(&found, "weir-1", bounds).unwrap_err().contains("'cpu'"));
        found.unified_controllers = vec!["cpu".to_owned(), "io".to_owned()];
        let groups = groups(&found, "weir-1", bounds).unwrap();
        assert_eq!(groups.len(), 1);
        let settings =
            [("cpu.max", "30000 100000".to_owned()), ("io.max", "8:16 wbps=100".to_owned())];
        assert_eq!(groups[0].settings, settings);
    }
}
