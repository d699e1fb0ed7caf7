//! Context of one poll of a connection, instead of a list of arguments.

use std::rc::Rc;
use std::task::Context;

use super::{Core, WorkBuffers};

/// Context of one poll of a connection. The memory for a read is not in it, because its bytes are borrowed
/// while the context is used.
#[derive(Debug)]
pub(crate) struct PollContext<'p, 'w> {
    pub(crate) cx: &'p mut Context<'w>,
    pub(crate) core: &'p Rc<Core>,
    pub(crate) work: &'p mut WorkBuffers,
}
