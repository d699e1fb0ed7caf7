//! The unix sockets that the subject listens on or connects to, and the servers behind those.
//!
//! Not for TCP: [`super::follow`] does that. Unix sockets have no `TCP_INFO`, so whether a request is
//! out cannot be seen.

use super::follow::Known;
use super::{GENERATOR, ORIGIN, SUBJECT};
use crate::process::tables;
use crate::sock_diag::unix::{UnixDiag, UnixRow, sums};
use crate::sockets::{holders_of, sockets_held};
use crate::source::NotObservable;
use record::observed::{UnixQueues, UnixUse};
use std::collections::HashSet;

/// Paths that are watched.
const MAX_PATHS: usize = 64;
/// Descriptors that one look reads.
const MAX_LINKS: usize = 50_000;
/// Sockets that are remembered to be of no watched path.
const MAX_REMEMBERED: usize = 100_000;

/// The unix sockets of the subject's network namespace.
#[derive(Debug, Default)]
pub(super) struct UnixFollower {
    diag: Option<Result<UnixDiag, NotObservable>>,
    rows: Vec<UnixRow>,
    uses: Vec<UnixUse>,
    paths: Vec<String>,
    /// Sockets of other programs.
    strangers: HashSet<u32>,
    trouble: Option<NotObservable>,
}

impl UnixFollower {
    /// Every path that was found.
    pub(super) fn uses(&self) -> &[UnixUse] {
        &self.uses
    }

    /// What of the unix sockets cannot be seen; nothing where none is used.
    pub(super) fn not_observable(&self) -> Vec<NotObservable> {
        let failed =
            self.diag.as_ref().and_then(|diag| diag.as_ref().err()).or(self.trouble.as_ref());
        let no_info = (!self.uses.is_empty()).then(|| {
            NotObservable::new(
                "replies that are awaited on unix sockets",
                "unix sockets have no TCP_INFO: only unread bytes and waiting connections are seen",
            )
        });
        failed.cloned().into_iter().chain(no_info).collect()
    }

    /// Looks for paths that were not found yet, and gives the processes that listen behind the subject.
    pub(super) fn look(&mut self, known: &Known<'_>) -> Vec<i32> {
        let Some(&first) = known.subject.first() else {
            return Vec::new();
        };
        self.read(first);
        let rows = std::mem::take(&mut self.rows);
        let is_new = |row: &&UnixRow| {
            !row.name.is_empty() && !self.paths.contains(&row.name) && self.paths.len() < MAX_PATHS
        };
        let of_row = |row: &UnixRow| if row.listens { row.inode } else { row.peer };
        let new: Vec<&UnixRow> = rows
            .iter()
            .filter(is_new)
            .filter(|row| of_row(row) != 0 && !self.strangers.contains(&of_row(row)))
            .collect();
        let mut pids = Vec::new();
        if !new.is_empty() {
            let held = held_by(known.subject);
            for row in new {
                let ours = held.contains(&u64::from(of_row(row)));
                if ours && !self.paths.contains(&row.name) && self.paths.len() < MAX_PATHS {
                    pids.extend(self.add(row, &rows, known, &held));
                } else if !ours {
                    self.strangers.insert(of_row(row));
                }
            }
            if self.strangers.len() > MAX_REMEMBERED {
                self.strangers.clear();
            }
        }
        self.rows = rows;
        pids
    }

    /// Adds the path of a socket that the subject holds an end of. Gives the processes behind it.
    fn add(
        &mut self,
        row: &UnixRow,
        rows: &[UnixRow],
        known: &Known<'_>,
        held: &HashSet<u64>,
    ) -> Vec<i32> {
        let path = &row.name;
        let at_path = || rows.iter().filter(|one| one.name == *path);
        if at_path().any(|one| one.listens && held.contains(&u64::from(one.inode))) {
            let generator = held_by(known.others);
            let used = at_path().any(|one| generator.contains(&u64::from(one.peer)));
            self.paths.push(path.clone());
            self.uses.push(UnixUse {
                path: path.clone(),
                served_by: Some(SUBJECT.to_owned()),
                used_by: used.then(|| GENERATOR.to_owned()),
            });
            return Vec::new();
        }
        let listening: HashSet<u64> =
            at_path().filter(|one| one.listens).map(|one| one.inode.into()).collect();
        let pids = holders_of(&listening, path).unwrap_or_default();
        self.paths.push(path.clone());
        self.uses.push(UnixUse {
            path: path.clone(),
            served_by: (!pids.is_empty()).then(|| ORIGIN.to_owned()),
            used_by: Some(SUBJECT.to_owned()),
        });
        pids.into_iter().filter(|pid| !known.subject.contains(pid)).collect()
    }

    fn read(&mut self, pid: i32) {
        self.rows.clear();
        let diag = self.diag.get_or_insert_with(|| UnixDiag::open(Some(pid)));
        if let Ok(diag) = diag {
            match diag.rows(&mut self.rows) {
                Ok(true) => {}
                Ok(false) => {
                    let why = "there were more than are looked at";
                    self.trouble = Some(NotObservable::new("every unix socket", why));
                }
                Err(error) => self.trouble = Some(error),
            }
        }
    }

    /// The sockets of the paths now.
    pub(super) fn queues(&mut self) -> Vec<UnixQueues> {
        if self.paths.is_empty() {
            return Vec::new();
        }
        // It was opened when the paths were found.
        self.read(0);
        sums(&self.rows, &self.paths)
    }
}

fn held_by(pids: &[i32]) -> HashSet<u64> {
    let mut held = HashSet::new();
    let mut links_left = MAX_LINKS;
    for &pid in pids {
        for tid in tables(pid) {
            sockets_held(pid, tid, &mut held, &mut links_left);
        }
    }
    held
}
