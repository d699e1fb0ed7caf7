//! The command by which a new process takes this one's place: it takes the stream over, and what is
//! said there from then on is in [`crate::handover`].

use super::{Call, Order, Outcome, Refusal};
use crate::handover::{Demand, pass_on};

pub(super) fn run(call: &Call<'_>) -> Outcome {
    let [] = call.words else { return Err(call.wrong_words(crate::handover::COMMAND)) };
    let Some(_turn) = call.desk.passing_on.enter() else {
        let why = "pass on the listening sockets: another process is being given them just now";
        return Err(Refusal::Cannot(why.to_owned()));
    };
    let stream = call.stream.try_clone();
    let stream = stream.map_err(|error| Refusal::Cannot(format!("be answered: {error}")))?;
    // Who is given none has no answer to wait for.
    let mut demand = |demand| drop(call.desk.give(Order::Upgrade(demand)));
    match pass_on(stream, &mut demand) {
        Ok(true) => return Ok(None),
        Ok(false) => {}
        Err(error) => call.note(&format!("upgrade: given up, all stays as it is: {error}")),
    }
    demand(Demand::Stay);
    Ok(None)
}
