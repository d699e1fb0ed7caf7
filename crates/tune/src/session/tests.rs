//! Exclusive pairs of settings, on files that behave as those of the kernel (`mm/page-writeback.c`, `mm/util.c`).

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;
use crate::apply::{parse_requests, persistent_text, plan_apply};
use crate::catalogue::{EXCLUSIVE_PAIRS, accepted_values};
use crate::judge::JudgeContext;
use crate::kernel::KernelVersion;
use crate::setting::Role;

/// Settings of `/proc/sys/vm`: a write of one of a pair sets the other to 0.
struct VmFiles(RefCell<BTreeMap<PathBuf, String>>);

impl VmFiles {
    fn new(values: &[(&str, &str)]) -> Self {
        let path = |name: &str| host::tuning::sysctl_path(name).unwrap();
        Self(RefCell::new(values.iter().map(|(name, value)| (path(name), (*value).to_owned())).collect()))
    }

    fn values(&self) -> BTreeMap<PathBuf, String> {
        self.0.borrow().clone()
    }
}

impl SettingFiles for VmFiles {
    fn read(&self, path: &Path) -> ObservedValue {
        self.0.borrow().get(path).cloned().map_or(ObservedValue::Absent, ObservedValue::Value)
    }

    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        let name = path.strip_prefix("/proc/sys").unwrap().display().to_string().replace('/', ".");
        let (accepted, _) = accepted_values(&name).unwrap();
        if accepted.rejection(value, "").is_some() {
            return Err(io::Error::from_raw_os_error(22));
        }
        let other = crate::catalogue::counterpart(&name).unwrap();
        let mut files = self.0.borrow_mut();
        files.insert(path.to_owned(), value.to_owned());
        files.insert(host::tuning::sysctl_path(other).unwrap(), "0".to_owned());
        Ok(())
    }
}

fn plan(files: &VmFiles, request: &str) -> Result<ApplyPlan, String> {
    let machine = BTreeMap::new();
    let context = JudgeContext {
        kernel: KernelVersion(6, 18),
        memory_bytes: 8 << 30,
        page_bytes: 4096,
        role: Role::Proxy,
        machine: &machine,
        congestion_modules: &[],
        replaced: BTreeMap::new(),
    };
    let requests = parse_requests(&[request.to_owned()]).unwrap();
    plan_apply(&requests, &context, false, |request| files.read(&request.path))
        .map_err(|found| format!("{found:?}"))
}

fn journal(plan: &ApplyPlan) -> TuneJournal {
    let header = JournalHeader {
        schema: SCHEMA.to_owned(),
        owner: ProcessIdentity::from_current_process(),
        pid_namespace: None,
        boot_id: String::new(),
        started_at: String::new(),
        requested: Vec::new(),
        target: Target::Host,
        ends_with: EndsWith::Revert,
        persisted: None,
    };
    let change = |change: &crate::apply::PlannedChange| JournaledChange {
        name: change.requested.name.clone(),
        path: change.requested.path.clone(),
        old: change.old.clone(),
        new: change.requested.value.clone(),
        follows: change.follows,
    };
    TuneJournal::new(header, plan.changes.iter().map(change).collect())
}

#[test]
fn a_revert_restores_both_settings_of_every_pair() {
    for (bytes, ratio) in EXCLUSIVE_PAIRS {
        // Either of the two is in force, and either is written.
        for (old, request) in [
            ([(bytes, "0"), (ratio, "20")], format!("{bytes}=104857600")),
            ([(bytes, "524288000"), (ratio, "0")], format!("{ratio}=15")),
            ([(bytes, "524288000"), (ratio, "0")], format!("{bytes}=104857600")),
            ([(bytes, "0"), (ratio, "20")], format!("{ratio}=15")),
        ] {
            let files = VmFiles::new(&old);
            let before = files.values();
            let plan = plan(&files, &request).unwrap();
            let text = persistent_text(&plan, "weir");
            assert_eq!(text.lines().filter(|line| line.starts_with("vm.")).count(), 1, "{text}");
            let mut journal = journal(&plan);
            let interrupted = journal.clone();
            let applied = write_all(&files, &journal.changes, &mut |_| {}).unwrap();
            assert_ne!(files.values(), before, "{request}");
            journal.applied = Some(applied);
            let report = restore(&files, &journal, false);
            assert!(report.is_complete(), "{request}: {report:?}");
            assert_eq!(files.values(), before, "{request}");
            // Also after a crash between the write and the confirmation.
            write_all(&files, &journal.changes, &mut |_| {}).unwrap();
            assert!(restore(&files, &interrupted, false).is_complete(), "{request}");
            assert_eq!(files.values(), before, "{request}");
            // Somebody else has written the first one meanwhile.
            write_all(&files, &journal.changes, &mut |_| {}).unwrap();
            let (path, theirs) =
                (&journal.changes[0].path, if request.contains("ratio=") { "7" } else { "999424" });
            files.write(path, theirs).unwrap();
            assert!(!restore(&files, &journal, false).is_complete(), "{request}");
            assert_eq!(files.read(path).text(), Some(theirs), "{request}");
        }
        let both_zero = VmFiles::new(&[(bytes, "0"), (ratio, "0")]);
        assert!(plan(&both_zero, &format!("{ratio}=15")).unwrap_err().contains("no way back"));
        // The later of two requests for a pair is the one that counts.
        let both = [format!("{bytes}=104857600"), format!("{ratio}=15")];
        assert_eq!(parse_requests(&both).unwrap().len(), 1);
    }
}

#[test]
fn a_setting_without_a_counterpart_follows_nothing() {
    let plan = plan(&VmFiles::new(&[("vm.swappiness", "60")]), "vm.swappiness=10").unwrap();
    assert_eq!((plan.changes.len(), plan.changes[0].follows), (1, false));
}
