//! Values of the catalogue's settings on this machine, read through `host`. Judges nothing.

use std::collections::BTreeMap;

use host::tuning::{self, ObservedValue};
use record::sorted::CollectSorted;

use crate::catalogue::settings;
use crate::kernel::KernelVersion;
use crate::setting::{Probe, Scope, Setting};

/// One setting as found on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedSetting {
    pub setting: &'static Setting,
    pub interface: Option<String>,
    /// Value, or the reason why there is none.
    pub value: ObservedValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineState {
    pub release: String,
    pub kernel: KernelVersion,
    /// Memory, in bytes; 0 if it cannot be read.
    pub memory_bytes: u64,
    pub page_bytes: u64,
    /// Congestion controls that have a module for this kernel.
    pub congestion_modules: Vec<String>,
    /// Every setting of the catalogue, in its order.
    pub settings: Vec<ObservedSetting>,
}

impl MachineState {
    /// Returns the values by name; those of interfaces are left out.
    pub fn values(&self) -> BTreeMap<String, String> {
        let named = self.settings.iter().filter(|observed| observed.interface.is_none());
        let values = named.filter_map(|observed| {
            Some((observed.setting.name.to_owned(), observed.value.text()?.to_owned()))
        });
        values.collect_map()
    }
}

/// Reads every setting of the catalogue. To be called in the network namespace in question.
pub fn observe_machine() -> MachineState {
    let facts = host::facts::read();
    let interfaces = tuning::interfaces();
    let mut found = Vec::new();
    for setting in settings() {
        let is_per_interface = matches!(setting.probe, Probe::InterfaceFile(_) | Probe::Ethtool(_));
        if !is_per_interface {
            found.push(ObservedSetting { setting, interface: None, value: observe(setting, None) });
            continue;
        }
        if interfaces.is_empty() {
            let value = ObservedValue::NotObservable("no network interface except loopback".to_owned());
            found.push(ObservedSetting { setting, interface: None, value });
        }
        for interface in &interfaces {
            let value = observe(setting, Some(interface));
            found.push(ObservedSetting { setting, interface: Some(interface.clone()), value });
        }
    }
    let congestion_modules = tuning::congestion_modules(&facts.kernel);
    MachineState {
        kernel: KernelVersion::parse(&facts.kernel).unwrap_or_default(),
        release: facts.kernel,
        memory_bytes: facts.memory_bytes.unwrap_or(0),
        page_bytes: tuning::page_bytes(),
        congestion_modules,
        settings: found,
    }
}

/// Reads one setting, of `interface` if the setting is one of each interface.
pub fn observe(setting: &Setting, interface: Option<&str>) -> ObservedValue {
    match setting.probe {
        Probe::Sysctl => tuning::read_sysctl(setting.name),
        Probe::File(path) => tuning::read_choice(path),
        Probe::InterfaceFile(file) => match interface {
            Some(interface) => tuning::read_choice(tuning::interface_file(interface, file)),
            None => ObservedValue::NotObservable("name an interface".to_owned()),
        },
        Probe::Ethtool(which) => match interface {
            Some(interface) => tuning::read_driver(interface, which),
            None => ObservedValue::NotObservable("name an interface".to_owned()),
        },
        Probe::NofileSoft => tuning::nofile_soft(),
        Probe::MemlockSoft => tuning::memlock_soft(),
        Probe::CgroupQuota => tuning::cgroup_quota(),
        Probe::BootParameter(name) => tuning::boot_parameter(name),
        Probe::Module(name) => tuning::module_state(name),
        Probe::None if setting.scope == Scope::Application => {
            ObservedValue::NotObservable("an option of the program".to_owned())
        }
        Probe::None => ObservedValue::NotObservable("weir does not read it".to_owned()),
    }
}
