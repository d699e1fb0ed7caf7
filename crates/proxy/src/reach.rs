//! What of the machine the process keeps within its reach, by its plan. How the rest is given up is in
//! [`rt::privileges`].

use std::io;
use std::path::PathBuf;

use rt::address::Address;
use rt::privileges::{Confinement, Files, Privileges, RESOLVER};

use crate::plan::{LogTarget, Plan};

/// Files that the process has to reach besides what its plan says.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// For reading: the config.
    pub read: Vec<PathBuf>,
}

/// Who the process becomes, and what it may reach then.
pub(crate) fn privileges(plan: &Plan, reach: &Reach) -> Privileges {
    let wanted = &plan.privileges;
    let folder_of = |path: &PathBuf| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.map_or_else(|| PathBuf::from("."), PathBuf::from)
    };
    let written = plan.logs.iter().filter_map(|log| match &log.target {
        LogTarget::File(path) => Some(folder_of(path)),
        _ => None,
    });
    let bound = plan.listeners.iter().flat_map(|listener| &listener.bind);
    let sockets = bound.filter_map(|address| match address {
        Address::Unix(path) => Some(folder_of(path)),
        Address::Tcp(_) => None,
    });
    let sockets = sockets.chain(plan.control.iter().map(folder_of));
    let keys = plan.pools.iter().filter_map(|pool| pool.sticky.as_ref()?.key_file.as_ref());
    let read =
        reach.read.iter().chain(keys).map(folder_of).chain(RESOLVER.iter().map(PathBuf::from));
    let files = Files {
        read: read.chain(["/proc/self".into(), "/var/run/netns".into()]).collect(),
        write: written.chain(sockets).chain(["/dev".into()]).collect(),
    };
    Privileges {
        user: wanted.user,
        group: wanted.group,
        no_new_privileges: wanted.no_new_privileges,
        files: wanted.landlock.then_some(files),
    }
}

/// Says where the kernel's refusal may come from: since the start, the process reaches only files in
/// the directories that its first config named.
pub(crate) fn explain(error: io::Error, confinement: &Confinement) -> io::Error {
    let text = error.to_string();
    let is_refusal = error.kind() == io::ErrorKind::PermissionDenied;
    let is_confined = matches!(confinement, Confinement::Enforced { .. });
    // A port below 1024 has a message of its own.
    if !is_refusal || !is_confined || text.contains("ports below") {
        return error;
    }
    let text = format!(
        "{text}\nfile access is confined (Landlock) to the directories of the config that the process \
         started with: restart it for new ones, or set privileges.landlock = false"
    );
    io::Error::new(error.kind(), text)
}
