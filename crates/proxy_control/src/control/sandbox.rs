//! The process's sandbox, derived from its plan: user, group and accessible files.
//! [`rt::privileges`] drops the rest.

use std::io;
use std::path::{Path, PathBuf};

use rt::address::Address;
use rt::privileges::{AllowedFiles, Confinement, Privileges, RESOLVER_PATHS};
use rt::tls::{HOST_ROOT_PATHS, Verification};

use crate::acme::acme_plans;
use crate::plan::{Action, AuthPlan, ListenerTls, LogTarget, Plan, PoolTls};

/// Files that the process must access in addition to those in its plan.
#[derive(Clone, Debug, Default)]
pub struct SandboxPaths {
    /// Files to read: the config.
    pub read: Vec<PathBuf>,
}

/// Returns the user and group to switch to, and the files that remain accessible.
pub(crate) fn privileges(plan: &Plan, extra: &SandboxPaths) -> Privileges {
    let configured = &plan.privileges;
    let log_directories = plan.logs.iter().filter_map(|log| match &log.target {
        LogTarget::File(path) => Some(directory_of(path)),
        _ => None,
    });
    let bind_addresses = plan.listeners.iter().flat_map(|listener| &listener.bind);
    let sockets = bind_addresses.filter_map(|address| match address {
        Address::Unix(path) => Some(directory_of(path)),
        Address::Tcp(_) => None,
    });
    let sockets = sockets.chain(plan.control.iter().map(|path| directory_of(path)));
    let read = extra
        .read
        .iter()
        .map(|path| directory_of(path))
        .chain(plan.read_again().into_iter().map(directory_of))
        .chain(plan.state_file.iter().map(|path| directory_of(path)))
        .chain(RESOLVER_PATHS.iter().map(PathBuf::from));
    let read = read.chain(tls_paths(plan)).chain(map_paths(plan)).chain(file_roots(plan));
    let key_logs =
        plan.listeners.iter().filter_map(|listener| listener.tls.as_ref()?.options.key_log.as_ref());
    let key_logs = key_logs.map(|path| directory_of(path));
    let acme_storage = acme_plans(plan).into_iter().map(|acme| acme.storage);
    let files = AllowedFiles {
        read: read.chain(["/proc/self".into(), "/var/run/netns".into()]).collect(),
        write: log_directories
            .chain(sockets)
            .chain(key_logs)
            .chain(acme_storage)
            .chain(plan.state_file.iter().map(|path| directory_of(path)))
            .chain(["/dev".into()])
            .collect(),
        trees: plan.caches.iter().filter_map(|cache| Some(cache.disk.as_ref()?.directory.clone())).collect(),
    };
    Privileges {
        user: configured.user,
        group: configured.group,
        no_new_privileges: configured.no_new_privileges,
        files: configured.landlock.then_some(files),
    }
}

/// Returns the directories of certificates and keys, also those that links lead to: a reload reads
/// the files again.
fn tls_paths(plan: &Plan) -> Vec<PathBuf> {
    let listeners = plan.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let pools = plan.pools.iter().filter_map(|pool| pool.tls.as_ref());
    let files = listeners.clone().flat_map(ListenerTls::files).chain(pools.clone().flat_map(PoolTls::files));
    let mut directories: Vec<PathBuf> = listeners.filter_map(|tls| tls.directory.clone()).collect();
    for file in files {
        let targets = [Some(file.to_owned()), std::fs::canonicalize(file).ok()];
        directories.extend(targets.iter().flatten().map(|path| directory_of(path)));
    }
    let acme = acme_plans(plan);
    directories.extend(acme.iter().map(|acme| acme.storage.clone()));
    directories.extend(acme.iter().filter_map(|acme| acme.ca.as_deref()).map(directory_of));
    let keys = acme.iter().filter_map(|acme| acme.key_source()).map(|source| source.path());
    directories.extend(keys.flat_map(with_target).map(|path| directory_of(&path)));
    let authorities: Vec<_> = plan.auth_plans().filter_map(AuthPlan::keys_authorities).collect();
    directories.extend(authorities.iter().flatten().map(|path| directory_of(path)));
    let verifies_by_host = |tls: &PoolTls| tls.options.verification == Verification::HostRoots;
    if pools.clone().any(verifies_by_host)
        || acme.iter().any(|acme| acme.ca.is_none())
        || authorities.contains(&None)
    {
        let roots = HOST_ROOT_PATHS.iter().map(PathBuf::from);
        directories.extend(roots.filter(|directory| directory.exists()));
    }
    directories.sort_unstable();
    directories.dedup();
    directories
}

/// Returns a path, and the one that it leads to if it is a link.
fn with_target(path: &Path) -> impl Iterator<Item = PathBuf> {
    [Some(path.to_owned()), std::fs::canonicalize(path).ok()].into_iter().flatten()
}

/// Returns the directories of maps, also those that links lead to: a change is read again.
fn map_paths(plan: &Plan) -> Vec<PathBuf> {
    let stores = plan.stores();
    let files = stores.iter().filter_map(|(_, store)| store.path());
    let auth_files = plan.auth_plans().filter_map(AuthPlan::file).map(|file| file.path().to_owned());
    let files = files.map(Path::to_owned).chain(auth_files);
    let targets = files.flat_map(|path| [std::fs::canonicalize(&path).ok(), Some(path)]);
    targets.flatten().map(|path| directory_of(&path)).collect()
}

/// Returns the directories of files, and those that links at their place lead to.
fn file_roots(plan: &Plan) -> Vec<PathBuf> {
    let roots = plan.routes.iter().filter_map(|route| match &route.action {
        Action::Files(files) => files.root(),
        _ => None,
    });
    roots.flat_map(|root| [Some(root.to_owned()), std::fs::canonicalize(root).ok()]).flatten().collect()
}

fn directory_of(path: &Path) -> PathBuf {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// Adds an explanation to a permission error: since the start, the process can only access files in
/// the directories of its first config.
pub(crate) fn explain_denied_access(error: io::Error, sandbox: &Confinement) -> io::Error {
    let text = error.to_string();
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
    let is_confined = matches!(sandbox, Confinement::Enforced { .. });
    // A port below 1024 has its own message.
    if !is_denied || !is_confined || text.contains("ports below") {
        return error;
    }
    let text = format!(
        "{text}\nLandlock restricts file access to the directories of the config at the start: \
         restart the process to allow new ones, or set privileges.landlock = false"
    );
    io::Error::new(error.kind(), text)
}
