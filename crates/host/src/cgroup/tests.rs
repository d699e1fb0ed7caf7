//! Texts of both versions, captured.

use super::*;

const MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/ab /sys/fs/cgroup/my\\040memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
const GROUPS: &str = "\
9:name=systemd:/
4:memory:/docker/ab/a:b
1:cpu,cpuacct:/weir/lab/x
0::/lab93
";

#[test]
fn mounts_are_read() {
    let mounts = parse_mounts(MOUNTS);
    assert_eq!(mounts.len(), 4);
    assert_eq!(mounts[1].directory, "/sys/fs/cgroup/my memory");
    assert_eq!(mounts[1].root, "/docker/ab");
    assert_eq!(mounts[0].controllers.as_deref(), Some("rw,cpu,cpuacct"));
    assert_eq!(mounts[3].controllers, None);
    assert_eq!(parse_mounts("nonsense\n1 2 - cgroup\n"), []);
}

#[test]
fn directories_go_from_the_group_up_without_the_root() {
    let mounts = parse_mounts(MOUNTS);
    let directories_of = |controller| group_directories(GROUPS, &mounts, controller);
    let cpu = ["weir/lab/x", "weir/lab", "weir"].map(|group| format!("/sys/fs/cgroup/cpu,cpuacct/{group}"));
    assert_eq!(directories_of(Controller::V1("cpu")), Some(cpu.to_vec()));
    // A group's name may hold a colon, and a container sees only a part of the hierarchy.
    assert_eq!(
        directories_of(Controller::V1("memory")),
        Some(vec!["/sys/fs/cgroup/my memory/a:b".to_owned()])
    );
    assert_eq!(directories_of(Controller::V2), Some(vec!["/sys/fs/cgroup/unified/lab93".to_owned()]));
    assert_eq!(directories_of(Controller::V1("blkio")), None);
    assert_eq!(group_directories("0::/\n", &mounts, Controller::V2), Some(vec![]));
    assert_eq!(group_directories("0::/../other\n", &mounts, Controller::V2), None);
    assert_eq!(group_directories("4:memory:/elsewhere\n", &mounts, Controller::V1("memory")), None);
    assert_eq!(group_directories("", &[], Controller::V2), None);
}

#[test]
fn quotas_are_read() {
    let quota = Quota { quota_us: 30_000, period_us: 100_000 };
    assert_eq!(parse_cpu_max("30000 100000\n"), Some(Some(quota)));
    assert_eq!(parse_cpu_max("max 100000\n"), Some(None));
    assert_eq!(parse_cfs("30000\n", "100000\n"), Some(Some(quota)));
    assert_eq!(parse_cfs("-1\n", "100000\n"), Some(None));
    assert!((quota.cpus() - 0.3).abs() < 1e-12);
    for text in ["", "max", "5 0\n", "x 5"] {
        assert_eq!(parse_cpu_max(text), None, "{text:?}");
    }
    assert_eq!(parse_cfs("5", ""), None);
}

#[test]
fn throttling_is_read_in_both_forms() {
    let expected = Throttling { periods: 21, throttled_periods: 20, throttled_ns: 1_410_000_000 };
    let v1 = "nr_periods 21\nnr_throttled 20\nthrottled_time 1410000000\nnr_bursts 0\nburst_time 0\n";
    let v2 = "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_periods 21\nnr_throttled 20\n\
        throttled_usec 1410000\nnr_bursts 0\nburst_usec 0\n";
    assert_eq!(parse_cpu_stat(v1), Some(expected));
    assert_eq!(parse_cpu_stat(v2), Some(expected));
    assert_eq!(parse_cpu_stat("usage_usec 9\nuser_usec 5\nsystem_usec 4\n"), None);
}

#[test]
fn bounds_of_memory_and_disks_are_read() {
    assert_eq!(parse_memory_max("max\n"), Some(None));
    assert_eq!(parse_memory_max("9223372036854771712\n"), Some(None));
    assert_eq!(parse_memory_max("9223372036854710272\n"), Some(None));
    assert_eq!(parse_memory_max("67108864\n"), Some(Some(67_108_864)));
    assert_eq!(parse_memory_max("x"), None);
    assert_eq!(parse_memory_events("low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\n"), Some(12));
    assert_eq!(parse_memory_events(""), None);
    assert_eq!(parse_write_bps_device("254:0 4194304\n8:0 2097152\n"), Some(2_097_152));
    assert_eq!(parse_write_bps_device("\n"), None);
    let io = "254:0 rbps=max wbps=2097152 riops=max wiops=120\n8:0 rbps=1 wbps=max riops=max wiops=max\n";
    assert_eq!(parse_io_max(io), Some(2_097_152));
    assert_eq!(parse_io_max(""), None);
}

#[test]
fn use_of_disks_is_read_in_both_forms() {
    // As in Documentation/admin-guide/cgroup-v2.rst, and a disk with figures of another controller.
    let second = "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n\
        8:0 rbytes=90430464 wbytes=299008000 rios=8950 wios=1252 dbytes=50331648 dios=3021 \
        cost.vrate=100.00 cost.usage=5\n";
    let expected = DiskCounts {
        read_bytes: 1_459_200 + 90_430_464,
        written_bytes: 314_773_504 + 299_008_000,
        reads: 192 + 8950,
        writes: 353 + 1252,
    };
    assert_eq!(parse_io_stat(second), expected);
    assert_eq!(parse_io_stat(""), DiskCounts::default());
    // Captured on Linux 6.18 from a group whose disk has a limit.
    let first = "254:0 Read 262144\n254:0 Write 524288\n254:0 Sync 1310720\n254:0 Async 0\n\
        254:0 Discard 524288\n254:0 Total 1310720\nTotal 1310720\n";
    assert_eq!(parse_blkio(first), Some((262_144, 524_288)));
    let disk_lines = first.strip_suffix("Total 1310720\n").unwrap();
    let two = format!("{disk_lines}8:0 Read 1\n8:0 Write 2\nTotal 1310723\n");
    assert_eq!(parse_blkio(&two), Some((262_145, 524_290)));
    // Captured from a group whose disk has no limit.
    assert_eq!((parse_blkio("Total 0\n"), parse_blkio("")), (None, None));
}

#[test]
fn escapes_of_a_path_are_undone() {
    assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
    assert_eq!(unescape("/a\\04"), "/a\\04");
    assert_eq!(unescape("\\999x"), "\\999x");
}

#[test]
fn the_live_group_of_this_process_is_read() {
    let mut reader = CgroupReader::open(std::process::id() as i32).unwrap();
    let first = reader.sample(1.0).unwrap();
    assert_eq!(first.and_then(|group| group.throttled_cpus), None);
    reader.sample(1.0).unwrap();
}
