//! Unix sockets that the subject listens on or connects to, and the servers behind them.
//!
//! [`super::origin_discovery`] covers TCP. Unix sockets have no `TCP_INFO`, so outstanding requests cannot be
//! observed.

use super::origin_discovery::KnownRoles;
use super::{GENERATOR, ORIGIN, SUBJECT};
use crate::kernel_file::NotObservable;
use crate::process::fd_tables;
use crate::sock_diag::unix::{UnixDiag, UnixSocket, sum_by_path};
use crate::sockets::{collect_socket_inodes, find_socket_holders};
use record::observed::{UnixQueues, UnixSocketRoles};
use std::collections::HashSet;

const MAX_PATHS: usize = 64;
/// Maximum number of descriptors read per scan.
const MAX_DESCRIPTORS: usize = 50_000;
/// Maximum number of remembered sockets without a watched path.
const MAX_UNWATCHED_INODES: usize = 100_000;

/// Unix sockets of the subject's network namespace.
#[derive(Debug, Default)]
pub(super) struct UnixDiscovery {
    diag: Option<Result<UnixDiag, NotObservable>>,
    sockets: Vec<UnixSocket>,
    uses: Vec<UnixSocketRoles>,
    paths: Vec<String>,
    unwatched_inodes: HashSet<u32>,
    snapshot_error: Option<NotObservable>,
}

impl UnixDiscovery {
    pub(super) fn uses(&self) -> &[UnixSocketRoles] {
        &self.uses
    }

    /// Returns what cannot be observed of the unix sockets; empty if none is used.
    pub(super) fn not_observable(&self) -> Vec<NotObservable> {
        let failed = self.diag.as_ref().and_then(|diag| diag.as_ref().err()).or(self.snapshot_error.as_ref());
        let no_info = (!self.uses.is_empty()).then(|| {
            NotObservable::new(
                "outstanding requests on unix sockets",
                "unix sockets have no TCP_INFO: only unread bytes and waiting connections are observable",
            )
        });
        failed.cloned().into_iter().chain(no_info).collect()
    }

    /// Scans for new paths, and returns the processes that listen behind the subject.
    pub(super) fn discover(&mut self, known_roles: &KnownRoles<'_>) -> Vec<i32> {
        let Some(&first) = known_roles.subject.first() else {
            return Vec::new();
        };
        self.read_sockets(first);
        let sockets = std::mem::take(&mut self.sockets);
        let is_new = |socket: &&UnixSocket| {
            !socket.name.is_empty() && !self.paths.contains(&socket.name) && self.paths.len() < MAX_PATHS
        };
        let held_inode = |socket: &UnixSocket| if socket.is_listening { socket.inode } else { socket.peer };
        let new_sockets: Vec<&UnixSocket> = sockets
            .iter()
            .filter(is_new)
            .filter(|socket| held_inode(socket) != 0 && !self.unwatched_inodes.contains(&held_inode(socket)))
            .collect();
        let mut pids = Vec::new();
        if !new_sockets.is_empty() {
            let subject_inodes = socket_inodes_of(known_roles.subject);
            for socket in new_sockets {
                let is_ours = subject_inodes.contains(&u64::from(held_inode(socket)));
                if is_ours && !self.paths.contains(&socket.name) && self.paths.len() < MAX_PATHS {
                    pids.extend(self.add(socket, &sockets, known_roles, &subject_inodes));
                } else if !is_ours {
                    self.unwatched_inodes.insert(held_inode(socket));
                }
            }
            if self.unwatched_inodes.len() > MAX_UNWATCHED_INODES {
                self.unwatched_inodes.clear();
            }
        }
        self.sockets = sockets;
        pids
    }

    /// Adds the path of a socket that the subject holds an end of. Returns the processes behind it.
    fn add(
        &mut self,
        socket: &UnixSocket,
        sockets: &[UnixSocket],
        known_roles: &KnownRoles<'_>,
        subject_inodes: &HashSet<u64>,
    ) -> Vec<i32> {
        let path = &socket.name;
        let at_path = || sockets.iter().filter(|candidate| candidate.name == *path);
        if at_path()
            .any(|candidate| candidate.is_listening && subject_inodes.contains(&u64::from(candidate.inode)))
        {
            let generator_inodes = socket_inodes_of(known_roles.others);
            let is_used = at_path().any(|candidate| generator_inodes.contains(&u64::from(candidate.peer)));
            self.paths.push(path.clone());
            self.uses.push(UnixSocketRoles {
                path: path.clone(),
                served_by: Some(SUBJECT.to_owned()),
                used_by: is_used.then(|| GENERATOR.to_owned()),
            });
            return Vec::new();
        }
        let listening_inodes: HashSet<u64> = at_path()
            .filter(|listener| listener.is_listening)
            .map(|listener| listener.inode.into())
            .collect();
        let pids = find_socket_holders(&listening_inodes, path).unwrap_or_default();
        self.paths.push(path.clone());
        self.uses.push(UnixSocketRoles {
            path: path.clone(),
            served_by: (!pids.is_empty()).then(|| ORIGIN.to_owned()),
            used_by: Some(SUBJECT.to_owned()),
        });
        pids.into_iter().filter(|pid| !known_roles.subject.contains(pid)).collect()
    }

    fn read_sockets(&mut self, pid: i32) {
        self.sockets.clear();
        let diag = self.diag.get_or_insert_with(|| UnixDiag::open(Some(pid)));
        if let Ok(diag) = diag {
            match diag.read_sockets(&mut self.sockets) {
                Ok(true) => {}
                Ok(false) => {
                    let why = "too many sockets; only some were read";
                    self.snapshot_error = Some(NotObservable::new("every unix socket", why));
                }
                Err(error) => self.snapshot_error = Some(error),
            }
        }
    }

    /// Returns the current sockets of the paths.
    pub(super) fn snapshot_queues(&mut self) -> Vec<UnixQueues> {
        if self.paths.is_empty() {
            return Vec::new();
        }
        // The socket was opened when the paths were found.
        self.read_sockets(0);
        sum_by_path(&self.sockets, &self.paths)
    }
}

fn socket_inodes_of(pids: &[i32]) -> HashSet<u64> {
    let mut inodes = HashSet::new();
    let mut descriptors_left = MAX_DESCRIPTORS;
    for &pid in pids {
        for tid in fd_tables(pid) {
            collect_socket_inodes(pid, tid, &mut inodes, &mut descriptors_left);
        }
    }
    inodes
}
