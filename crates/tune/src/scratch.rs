//! Check of values in a new network namespace: the kernel itself accepts or rejects them there, and the machine
//! keeps its own.

use std::collections::BTreeMap;
use std::io;

use host::sandbox::namespace::run_in_new_netns;
use host::tuning::{ObservedValue, read_sysctl, sysctl_path, write_value};
use record::sorted::CollectSorted;

use crate::foreign::ForeignLine;
use crate::kernel_value::parse_number;

/// Groups of settings that each network namespace has.
const GROUPS: [&str; 5] = ["net.ipv4.", "net.ipv6.", "net.core.", "net.unix.", "net.netfilter.nf_conntrack_"];
/// Words of settings that act when they are written, or load a module.
const ACTIONS: [&str; 3] = ["flush", "congestion_control", "secret"];

/// Writes the values of lines in a new network namespace, in their order. Returns the error of the kernel by the
/// index of the line. Lines of other settings are left out.
///
/// # Errors
/// This user may not make a namespace.
pub fn rejected_lines(lines: &[ForeignLine]) -> io::Result<BTreeMap<usize, String>> {
    let tried = lines.iter().enumerate().filter(|(_, line)| line.is_setting() && is_tried(&line.name));
    run_in_new_netns(|| {
        tried
            .filter_map(|(at, line)| Some((at, write(&scratch_name(&line.name), &line.value)?)))
            .collect_map()
    })
}

/// Returns whether a value of this setting may be tried: it belongs to a namespace, and a write does nothing else.
fn is_tried(name: &str) -> bool {
    GROUPS.iter().any(|group| name.starts_with(group)) && !ACTIONS.iter().any(|action| name.contains(action))
}

/// Returns the name in a namespace without the machine's interfaces.
fn scratch_name(name: &str) -> String {
    for group in [".conf.", ".neigh."] {
        if let Some((family, rest)) = name.split_once(group)
            && let Some((interface, leaf)) = rest.rsplit_once('.')
            && interface != "all"
        {
            return format!("{family}{group}default.{leaf}");
        }
    }
    name.to_owned()
}

/// Writes a value, and returns the reason why the kernel rejects it. Settings that are not numbers, and those that the
/// namespace does not have or only shows, are left out.
fn write(name: &str, value: &str) -> Option<String> {
    let ObservedValue::Value(now) = read_sysctl(name) else { return None };
    let is_numbers = !now.is_empty() && now.split_whitespace().all(|field| parse_number(field).is_some());
    let path = sysctl_path(name).filter(|path| is_numbers && host::tuning::is_writable(path))?;
    let error = write_value(&path, value).err()?;
    (error.kind() == io::ErrorKind::InvalidInput)
        .then(|| "this kernel rejects it: tried in a new network namespace (EINVAL)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_of_a_namespace_are_tried() {
        for (name, is_of_namespace) in [
            ("net.ipv4.tcp_rmem", true),
            ("net.ipv6.conf.eth0.mtu", true),
            ("net.netfilter.nf_conntrack_tcp_loose", true),
            ("net.netfilter.nf_hooks_lwtunnel", false),
            ("net.ipv4.route.flush", false),
            ("net.ipv4.tcp_congestion_control", false),
            ("vm.swappiness", false),
            ("kernel.pid_max", false),
            ("fs.nr_open", false),
        ] {
            assert_eq!(is_tried(name), is_of_namespace, "{name}");
        }
        assert_eq!(scratch_name("net.ipv4.conf.eth0.rp_filter"), "net.ipv4.conf.default.rp_filter");
        assert_eq!(scratch_name("net.ipv4.conf.all.rp_filter"), "net.ipv4.conf.all.rp_filter");
        assert_eq!(scratch_name("net.ipv4.tcp_rmem"), "net.ipv4.tcp_rmem");
    }

    #[test]
    fn the_kernel_rejects_in_a_namespace_of_its_own() {
        let text = "net.ipv4.tcp_syn_retries = 200\nnet.ipv4.tcp_rmem = 4096\nnet.ipv6.conf.eth7.mtu = 1\n\
            vm.swappiness = 900\nnet.ipv4.icmp_echo_ignore_all = 7\nnet.ipv4.tcp_fin_timeout = 0x1e\n";
        let lines = crate::foreign::parse_file("a", text);
        let before = read_sysctl("net.ipv4.tcp_fin_timeout");
        let Ok(rejected) = rejected_lines(&lines) else {
            return test_needs::skip(test_needs::ROOT, "a new network namespace takes root");
        };
        assert_eq!(rejected.keys().copied().collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!(read_sysctl("net.ipv4.tcp_fin_timeout"), before);
    }
}
