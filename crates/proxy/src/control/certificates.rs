//! Automatic certificates of the running proxy: a new one is put into force as by a reload.

use std::io;

use super::RunningProxy;
use crate::acme::Acme;

impl RunningProxy {
    /// Puts certificates into force that have been issued since the last call.
    pub(super) fn apply_new_certificates(&mut self) {
        if !self.acme.as_mut().is_some_and(Acme::take_issued) || self.is_draining() {
            return;
        }
        let renewed = self.template.with_stored_certificates().map_err(io::Error::other);
        if let Err(error) = renewed.and_then(|plan| self.reload(plan)) {
            eprintln!("weir: the new certificate is not in use: {error}");
        }
    }

    /// Informs the thread of automatic certificates of the plan.
    pub(super) fn follow_certificates(&self) {
        if let Some(acme) = &self.acme {
            acme.apply_plan(&self.plan);
        }
    }
}
